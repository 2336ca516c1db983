"""Our mqadmin at Apache's servers of 5.5.0: commands of 4.9.4, and those of 5.x."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import need_java
from tests.interop.mqadmin_matrix.columns import OurTool
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Apache, Cluster
from tests.interop.test_replication import wait_until
from tests.interop.wire import Connection

GET_BROKER_CLUSTER_INFO = 106
Admin = Callable[..., str]


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_java()
    running = Cluster(tmp_path_factory.mktemp("apache-5.5.0"), Apache("5.5.0"))
    try:
        running.start_broker()
        with Connection(running.namesrv_address) as namesrv:  # 5.5.0 reports its start before it is registered
            address = running.broker_address.encode()
            wait_until("the broker is registered", lambda: address in namesrv.ask(GET_BROKER_CLUSTER_INFO, {}).body)
        with Connection(running.broker_address) as connection:
            connection.create_topic("Orders", 2)
            connection.send("Orders", 0, b"order")
        yield running
    finally:
        running.close()


@pytest.fixture
def admin(apaches: Cluster, tmp_path: Path) -> Admin:
    """Run a command that must succeed; return its output."""
    tool = OurTool(tmp_path)

    def run(*words: str) -> str:
        exit_code, printed = tool.run(apaches.namesrv_address, list(words), signed=False)
        assert exit_code == 0, printed
        return printed

    return run


def test_topics(admin: Admin, apaches: Cluster) -> None:
    address = apaches.broker_address
    assert f"create topic to {address} success." in admin(
        "updateTopic", "-c", CLUSTER_NAME, "-t", "Fifo", "-a", "+message.type=FIFO"
    )
    assert f"{BROKER_NAME}" in admin("topicRoute", "-t", "Fifo", "-l")
    assert "Fifo" in admin("topicList").split()
    assert admin("topicClusterList", "-t", "Fifo").strip() == CLUSTER_NAME
    assert "update topic perm from 6 to 4" in admin("updateTopicPerm", "-b", address, "-t", "Fifo", "-p", "4")
    (first, _) = json.loads(admin("topicStatus", "-t", "Orders", "--json"))
    assert (first["brokerName"], first["queueId"], first["maxOffset"]) == (BROKER_NAME, 0, 1)
    assert "from NameServer success" in admin("deleteTopic", "-c", CLUSTER_NAME, "-t", "Fifo")
    assert "CODE: 29  DESC: The topic[TBW102] is conflict" in admin("updateTopic", "-b", address, "-t", "TBW102")


def test_brokers_and_name_servers(admin: Admin, apaches: Cluster, tmp_path: Path) -> None:
    address = apaches.broker_address
    (row,) = json.loads(admin("clusterList", "--json"))
    assert (row["brokerName"], row["brokerAddr"], row["version"]) == (BROKER_NAME, address, "V5_5_0")
    assert "brokerVersionDesc               : V5_5_0" in admin("brokerStatus", "-b", address)
    assert admin("updateBrokerConfig", "-b", address, "-k", "fileReservedTime", "-v", "90").startswith(
        "update broker config success"
    )
    assert json.loads(admin("getBrokerConfig", "-b", address, "--json"))[address]["fileReservedTime"] == "90"
    refused = admin("updateBrokerConfig", "-b", address, "-k", "brokerConfigPath", "-v", "x")
    assert "CODE: 16  DESC: Can not update config in black list." in refused
    assert " OK, " in admin("wipeWritePerm", "-b", BROKER_NAME)
    assert " OK, " in admin("addWritePerm", "-b", BROKER_NAME)
    assert f"#MasterAddr\t{address}" in admin("haStatus", "-b", address)
    assert "CODE: 3 " in admin("getAclConfig", "-b", address), "5.x has no ACL files"
    for command, name in (("exportConfigs", "configs"), ("exportMetadata", "metadata"), ("exportMetrics", "metrics")):
        admin(command, "-c", CLUSTER_NAME, "-f", str(tmp_path))
        assert json.loads((tmp_path / f"{name}.json").read_text()), name


def test_commands_of_5_x(admin: Admin, apaches: Cluster, tmp_path: Path) -> None:
    address, file = apaches.broker_address, tmp_path / "list.json"
    file.write_text(json.dumps([{"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 3}]))
    assert "success" in admin("updateTopicList", "-b", address, "-f", str(file))
    file.write_text(json.dumps([{"groupName": "Listed", "retryMaxTimes": 3}]))
    assert "success" in admin("updateSubGroupList", "-b", address, "-f", str(file))
    table = json.loads((tmp_path / "list.json").read_text())
    admin("exportMetadata", "-b", address, "-g", "-f", str(tmp_path))
    groups = json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert groups["Listed"]["retryMaxTimes"] == table[0]["retryMaxTimes"]
    arguments = ("-b", address, "-t", "Listed", "-g", "Listed", "-m", "POP")
    assert f"set consume mode to {address} success." in admin("setConsumeMode", *arguments)


def test_messages(admin: Admin) -> None:
    sent = json.loads(
        admin("sendMessage", "-t", "Orders", "-p", "hello", "-k", "key-5", "-b", BROKER_NAME, "-i", "1", "--json")
    )
    assert sent["status"] == "SEND_OK"
    for query in (
        ("queryMsgById", "-i", sent["offset_msg_id"]),
        ("queryMsgByOffset", "-t", "Orders", "-b", BROKER_NAME, "-i", "1", "-o", "0"),
        ("printMsg", "-t", "Orders", "-c", "utf-8"),
    ):
        assert "hello" in [one["body"] for one in json.loads(admin(*query, "--json"))], query
    by_key = "queryMsgByKey", "-t", "Orders", "-k", "key-5"
    wait_until("the message is indexed", lambda: sent["msg_id"] in admin(*by_key))
    assert f"UNIQ_KEY={sent['msg_id']}" in admin("queryMsgByUniqueKey", "-t", "Orders", "-i", sent["msg_id"])
    assert "max: 1, min: 0" in admin("queryCq", "-t", "Orders", "-q", "1", "-i", "0")
    assert "Avg RT: " in admin("checkMsgSendRT", "-t", "Orders", "-a", "2")


def test_groups_and_offsets(admin: Admin, apaches: Cluster) -> None:
    address = apaches.broker_address
    with Connection(address) as connection:
        connection.create_topic("Lagging", 2)
        for queue_id in (0, 1):
            connection.send("Lagging", queue_id, b"message")
        connection.subscribe("Slow", "Lagging")
        wait_until("the retry topic is registered", lambda: "%RETRY%Slow" in admin("topicList"))
        for queue_id in (0, 1):
            connection.commit("Slow", "Lagging", queue_id, 1)
        assert f"wire-Slow {' ' * 26} 127.0.0.1:" in admin("consumerConnection", "-g", "Slow")

        def offsets() -> list[int]:
            queues = json.loads(admin("consumerProgress", "-g", "Slow", "--json"))["queues"]
            return [queue["consumerOffset"] for queue in queues if queue["topic"] == "Lagging"]

        assert offsets() == [1, 1]
        admin("resetOffsetByTime", "-g", "Slow", "-t", "Lagging", "-s", "0", "-b", address, "-q", "1", "-o", "0")
        assert offsets() == [1, 0]
        admin("resetOffsetByTime", "-g", "Slow", "-t", "Lagging", "-s", "0")
        assert offsets() == [0, 0]
        assert "Lagging" in admin("statsAll", "-t", "Lagging")
        admin("skipAccumulatedMessage", "-g", "Slow", "-t", "Lagging")
        assert offsets() == [1, 1]
    assert "consumeMessageOrderly                   =  true" in (
        admin("updateSubGroup", "-c", CLUSTER_NAME, "-g", "Made5", "-o", "true") + admin("getConsumerConfig", "-g", "Made5")
    )
    assert "from broker" in admin("deleteSubGroup", "-c", CLUSTER_NAME, "-g", "Made5", "-r", "true")
