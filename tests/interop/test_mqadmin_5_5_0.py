"""The real mqadmin 5.5.0: its requests that 4.9.4 lacks, with plausible output."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import need_java
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Cluster, Flavour
from tests.interop.wire import Connection

MESSAGES = 5


@pytest.fixture(scope="module")
def mqadmin_5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    need_java()
    shell = Mqadmin(tmp_path_factory.mktemp("mqadmin-5"), "5.5.0")
    yield shell
    shell.close()


@pytest.fixture
def admin(mqadmin_5: Mqadmin, cluster: Cluster, flavour: Flavour) -> Callable[..., str]:
    if flavour.name == "apache":
        pytest.skip("4.9.4's broker does not know these calls")

    def run(command: str, *arguments: str) -> str:
        printed = mqadmin_5.run(cluster.namesrv_address, command, *arguments)
        assert "Exception" not in printed, printed
        return printed

    return run


@pytest.fixture
def consumed(connection: Connection, named: Callable[[str], str]) -> tuple[str, str]:
    """A topic of two queues with messages, and a group that has pulled all and committed all but some."""
    topic, group = named("topic"), named("g")
    connection.create_topic(topic, 2)
    connection.subscribe(group, topic)
    for queue_id in (0, 1):
        for number in range(MESSAGES):
            connection.send(topic, queue_id, f"m{number}".encode(), {"KEYS": f"{topic}-{queue_id}-{number}"})
        connection.pull(group, topic, queue_id, 0)
        connection.commit(group, topic, queue_id, MESSAGES - 2)
    return topic, group


def progress(admin: Callable[..., str], topic: str, group: str) -> list[list[int]]:
    """Return broker offset, consumer offset, lag and number of messages in flight for each queue."""
    rows = [row.split() for row in admin("consumerProgress", "-g", group).splitlines() if row.startswith(f"{topic} ")]
    return [list(map(int, row[3:7])) for row in rows]


def test_in_flight_messages_of_consumers(admin: Callable[..., str], consumed: tuple[str, str]) -> None:
    assert progress(admin, *consumed) == [[MESSAGES, MESSAGES - 2, 2, 2]] * 2
    printed = admin("consumerProgress", "-g", consumed[1])
    assert re.search(r"^Consume Inflight Total: 4$", printed, re.MULTILINE), printed


def test_one_queue_is_reset(admin: Callable[..., str], cluster: Cluster, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    where = ("-g", group, "-t", topic, "-b", cluster.broker_address, "-q", "0")
    assert "reset consumer offset to 1" in admin("resetOffsetByTime", *where, "-s", "0", "-o", "1")
    assert progress(admin, topic, group) == [[MESSAGES, 1, 4, 0], [MESSAGES, MESSAGES - 2, 2, 2]]
    admin("skipAccumulatedMessage", "-g", group, "-t", topic)
    assert progress(admin, topic, group) == [[MESSAGES, MESSAGES, 0, 0]] * 2


def test_topics_and_groups_by_lists(
    admin: Callable[..., str], cluster: Cluster, named: Callable[[str], str], tmp_path: Path
) -> None:
    names, file = [named("one"), named("two")], tmp_path / "list.json"
    file.write_text(json.dumps([{"topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6} for name in names]))
    admin("updateTopicList", "-b", cluster.broker_address, "-f", str(file))
    for name in names:
        assert len(re.findall(rf"^{BROKER_NAME} +\d +0 +0", admin("topicStatus", "-t", name), re.MULTILINE)) == 3
    file.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 3} for name in names]))
    admin("updateSubGroupList", "-b", cluster.broker_address, "-f", str(file))
    for name in names:
        assert re.search(r"^retryMaxTimes += +3$", admin("getConsumerConfig", "-g", name), re.MULTILINE)


def test_topics_and_groups_one_by_one(admin: Callable[..., str], cluster: Cluster, named: Callable[[str], str]) -> None:
    topic, group, address = named("topic"), named("g"), cluster.broker_address
    printed = admin("updateTopic", "-b", address, "-t", topic, "-r", "2", "-w", "2", "-a", "+message.type=FIFO")
    assert f"create topic to {address} success." in printed
    admin("updateTopicPerm", "-b", address, "-t", topic, "-p", "4")
    admin("updateSubGroup", "-b", address, "-g", group, "-r", "7")
    assert re.search(r"^retryMaxTimes += +7$", admin("getConsumerConfig", "-g", group), re.MULTILINE)
    assert '"perm":4' in admin("topicRoute", "-t", topic)
    admin("setConsumeMode", "-b", address, "-t", topic, "-g", group, "-m", "POP", "-q", "2")
    admin("deleteSubGroup", "-b", address, "-g", group)
    admin("deleteTopic", "-c", CLUSTER_NAME, "-t", topic)
    assert topic not in admin("topicList").splitlines()


def test_message_queries(admin: Callable[..., str], consumed: tuple[str, str]) -> None:
    topic, _ = consumed
    key = f"{topic}-1-3"
    assert re.search(r" 1 +3 ", admin("queryMsgByKey", "-t", topic, "-k", key))
    assert f"Keys:                [{key}]" in admin("queryMsgByOffset", "-t", topic, "-b", BROKER_NAME, "-i", "1", "-o", "3")
    assert admin("printMsg", "-t", topic).count("BODY: m") == 2 * MESSAGES
    assert admin("consumeMessage", "-t", topic, "-b", BROKER_NAME, "-i", "0", "-o", "1", "-c", "2").count("BODY: m") == 2


@pytest.mark.parametrize(
    ("command", "arguments", "shown"),
    [
        ("clusterList", (), rf"^{CLUSTER_NAME} +{BROKER_NAME} +0 +ADDRESS +V4_9_4 .* true *$"),
        ("brokerStatus", ("-b", "ADDRESS"), r"^brokerVersionDesc +: V4_9_4$"),
        ("getBrokerConfig", ("-b", "ADDRESS"), rf"^brokerName +=  {BROKER_NAME}$"),
        ("brokerConsumeStats", ("-b", "ADDRESS"), r"^Diff Total: \d+$"),
        ("producer", ("-b", "ADDRESS"), r""),
        ("statsAll", (), r"^SELF_TEST_TOPIC "),
        ("exportConfigs", ("-c", CLUSTER_NAME, "-f", "FOLDER"), r"configs.json success$"),
        ("exportMetadata", ("-c", CLUSTER_NAME, "-f", "FOLDER"), r"metadata.json success$"),
        ("exportMetrics", ("-c", CLUSTER_NAME, "-f", "FOLDER"), r"metrics.json success$"),
    ],
)
def test_broker_status_commands(
    admin: Callable[..., str], cluster: Cluster, tmp_path: Path, command: str, arguments: tuple[str, ...], shown: str
) -> None:
    places = {"ADDRESS": cluster.broker_address, "FOLDER": str(tmp_path)}
    printed = admin(command, *(places.get(argument, argument) for argument in arguments))
    assert re.search(shown.replace("ADDRESS", cluster.broker_address), printed, re.MULTILINE), printed
