"""Commands for consumer groups and their offsets at the shared servers, and the evaluation of clients' running info."""

import time
from collections.abc import Iterator

import pytest

from pocketmq.admin.api.monitoring import same_subscriptions, stuck_queues
from pocketmq.admin.formats import safe_name
from pocketmq.admin.running_info_text import running_info_text
from pocketmq.admin.times import time_of
from pocketmq.client.versions import NEWER, version_name
from tests.admin.conftest import Mqadmin
from tests.interop.wire import Connection

QUEUE = '{"brokerName":"b","queueId":1,"topic":"T"}'
LONG_AGO_MS = 1_000_000_000_000


@pytest.fixture
def connection(broker: str) -> Iterator[Connection]:
    """A raw connection to the shared broker."""
    with Connection(broker) as opened:
        yield opened


def consumed(connection: Connection, group: str, topic: str, *consumer_offsets: int, is_online: bool = True) -> None:
    """Create a topic with three messages a queue, and a group with these consumer offsets."""
    connection.create_topic(topic, len(consumer_offsets))
    if is_online:
        connection.subscribe(group, topic)
    else:
        connection.create_topic(f"%RETRY%{group}", 1)
    for queue_id, consumer_offset in enumerate(consumer_offsets):
        for number in range(3):
            connection.send(topic, queue_id, b"%d" % number)
        connection.commit(group, topic, queue_id, consumer_offset)


def progress(mqadmin: Mqadmin, group: str) -> dict[tuple[str, int], int]:
    """Return a group's consumer offsets by topic and queue id."""
    queues = mqadmin("consumerProgress", "-g", group, "--json").json["queues"]
    return {(queue["topic"], queue["queueId"]): queue["consumerOffset"] for queue in queues}


def test_group_settings_of_5_x(mqadmin: Mqadmin, broker: str) -> None:
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
    mqadmin("updateSubGroup", "-b", broker, "-g", "Set5", "-o", "true", "-p", policy, "-r", "7")
    (found,) = mqadmin("getConsumerConfig", "-g", "Set5", "--json").json
    config = found["config"]
    assert (config["consumeMessageOrderly"], config["retryMaxTimes"]) == (True, 7)
    assert config["groupRetryPolicy"]["customizedRetryPolicy"] == {"next": [1000]}
    assert mqadmin("getConsumerConfig", "-g", "Missing").out == ""
    assert mqadmin("updateSubGroup", "-b", broker, "-g", "Set5", "-p", "not JSON").exit_code == 1
    mqadmin("deleteSubGroup", "-b", broker, "-g", "Set5")
    assert mqadmin("getConsumerConfig", "-g", "Set5", "--json").json == []


def test_offsets_are_deleted_with_a_group_on_request(mqadmin: Mqadmin, broker: str, connection: Connection) -> None:
    consumed(connection, "Gone", "GoneTopic", 2)
    mqadmin("deleteSubGroup", "-b", broker, "-g", "Gone")
    assert connection.consumer_offset("Gone", "GoneTopic", 0) == 2
    mqadmin("deleteSubGroup", "-b", broker, "-g", "Gone", "-r", "true")
    assert mqadmin("consumerProgress", "-g", "Gone", "--json").exit_code == 1


def test_one_queue_is_reset(mqadmin: Mqadmin, broker: str, connection: Connection) -> None:
    consumed(connection, "OneQueue", "OneQueueTopic", 3, 3)
    place = "-b", broker, "-q", "1"
    printed = mqadmin("resetOffsetByTime", "-g", "OneQueue", "-t", "OneQueueTopic", "-s", "now", *place, "-o", "1")
    assert printed.out.endswith("reset consumer offset to 1\n")
    assert progress(mqadmin, "OneQueue") == {("OneQueueTopic", 0): 3, ("OneQueueTopic", 1): 1}
    mqadmin("resetOffsetByTime", "-g", "OneQueue", "-t", "OneQueueTopic", "-s", "0", *place)
    assert progress(mqadmin, "OneQueue") == {("OneQueueTopic", 0): 3, ("OneQueueTopic", 1): 0}
    for wrong in (("-b", broker), ("-q", "1"), ("-o", "1")):
        assert mqadmin("resetOffsetByTime", "-g", "OneQueue", "-t", "OneQueueTopic", "-s", "0", *wrong).exit_code == 1


def test_only_the_topics_offsets_are_cloned(mqadmin: Mqadmin, connection: Connection) -> None:
    consumed(connection, "Source", "CloneA", 1, 2, is_online=False)
    consumed(connection, "Source", "CloneB", 3, is_online=False)
    connection.create_topic("%RETRY%Target", 1)
    mqadmin("cloneGroupOffset", "-s", "Source", "-d", "Target", "-t", "CloneA")
    assert progress(mqadmin, "Target") == {("CloneA", 0): 1, ("CloneA", 1): 2}
    assert (
        "group Source has no offsets in topic TBW102"
        in mqadmin("cloneGroupOffset", "-s", "Source", "-d", "Target", "-t", "TBW102").err
    )


def test_the_lag_of_a_brokers_groups(mqadmin: Mqadmin, broker: str, connection: Connection) -> None:
    consumed(connection, "Lagging", "LagTopic", 1, 3)
    found = mqadmin("brokerConsumeStats", "-b", broker, "-l", "2", "--json").json["queues"]
    assert [(one["queueId"], one["diff"]) for one in found if one["group"] == "Lagging"] == [(0, 2)]
    (row,) = mqadmin("statsAll", "-t", "LagTopic", "--json").json
    assert (row["group"], row["accumulation"]) == ("Lagging", 2)


def test_versions_of_clients() -> None:
    assert [version_name(ordinal) for ordinal in (0, 16, 401, 513)] == [
        "V3_0_0_SNAPSHOT",
        "V3_0_1_SNAPSHOT",
        "V4_9_4",
        "V5_5_0",
    ]
    assert version_name(99_999) == version_name(-1) == NEWER


def test_files_named_after_clients_stay_in_their_folder() -> None:
    assert safe_name("10.0.0.1@x#1") == "10.0.0.1@x#1"
    assert "/" not in safe_name("../../etc/passwd")
    assert safe_name("..") == safe_name("") == "_"
    assert len(safe_name("x" * 5000)) == 200


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01", "2026-13-01#00:00:00:000"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="yyyy-MM-dd#HH:mm:ss:SSS"):
        time_of(text)


def info(topic: str = "T", started_ms: int = LONG_AGO_MS, ordered: bool = False, **queue: object) -> dict[str, object]:
    return {
        "properties": {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "PROP_CONSUMEORDERLY": str(ordered).lower(),
        },
        "subscriptionSet": [{"topic": topic, "subString": "*"}],
        "mqTable": {QUEUE: {"commitOffset": 5, **queue}},
    }


def test_different_subscriptions_are_noticed_once_clients_have_started() -> None:
    assert same_subscriptions({"a": info(), "b": info()})
    assert not same_subscriptions({"a": info(), "b": info("Other")})
    now_ms = time.time_ns() // 1_000_000
    assert same_subscriptions({"a": info(started_ms=now_ms), "b": info("Other")})


def test_stuck_queues() -> None:
    now_ms = time.time_ns() // 1_000_000
    name = "c MessageQueue [topic=T, brokerName=b, queueId=1]"
    (line,) = stuck_queues("c", info(cachedMsgCount=3, lastConsumeTimestamp=LONG_AGO_MS))
    assert line.startswith(f"{name} can't consume for a while, maybe blocked, ")
    assert stuck_queues("c", info(cachedMsgCount=3, lastConsumeTimestamp=now_ms)) == []
    assert stuck_queues("c", info(cachedMsgCount=0, lastConsumeTimestamp=LONG_AGO_MS)) == []
    (line,) = stuck_queues("c", info(ordered=True, locked=False, lastLockTimestamp=LONG_AGO_MS))
    assert line.startswith(f"{name} can't lock for a while, ")
    (line,) = stuck_queues("c", info(ordered=True, locked=True, droped=True, tryUnlockTimes=4))
    assert line == f"{name} unlock 4 times, still failed"


def test_running_info_without_data() -> None:
    assert "#Consumer RT&TPS#" in running_info_text({})
    assert "#Consumer jstack#\nmain\n" in running_info_text({"jstack": "main"})
    popped = {"mqPopTable": {QUEUE: {"waitAckCount": 2, "droped": False, "lastPopTimestamp": 0}}}
    assert "PopProcessQueueInfo [waitAckCount:2, droped:false, " in running_info_text(popped)
