"""The real mqadmin 4.9.4: each command's whole output, as it prints it against Apache's servers."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.driver import Driver, Received, Sent
from tests.interop.drivers import Drivers
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Cluster
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

Admin = Callable[..., str]
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
SYSTEM_TOPICS = {
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", CLUSTER_NAME,
    BROKER_NAME, f"{CLUSTER_NAME}_REPLY_TOPIC",
}  # fmt: skip


@pytest.fixture
def admin(mqadmin: Mqadmin, cluster: Cluster) -> Admin:
    return lambda command, *arguments: mqadmin.run(cluster.namesrv_address, command, *arguments)


class Traffic:
    """A topic with messages, and a connected consumer that has received them all."""

    topic, group = "Admin-topic", "Admin-group"

    def __init__(self, client: Driver, broker_address: str) -> None:
        with Connection(broker_address) as connection:
            connection.create_topic(self.topic, 2)
            connection.create_topic(f"%RETRY%{self.group}", 1)
        client.start_producer("Admin-producer")
        self.sent: list[Sent] = []
        for number in range(10):
            self.sent += client.send("Admin-producer", self.topic, [f"admin {number}"], queueId=number % 2,
                                     tags=["A"], keys=[f"adm-{number}"])  # fmt: skip
        client.start_consumer("Admin-consumer", self.group, self.topic)
        got: dict[str, Received] = {m.body or "": m for m in client.wait_for("Admin-consumer", 10)}
        self.got = [got[one.body] for one in self.sent]
        client.shutdown("Admin-consumer")  # commits its progress; a running client takes 10 s for that
        client.start_consumer("Admin-consumer", self.group, self.topic)


@pytest.fixture(scope="module")
def traffic(cluster: Cluster, drivers: Drivers) -> Iterator[Traffic]:
    client = drivers.get("java_4_9_4", cluster)
    yield Traffic(client, cluster.broker_address)
    client.shutdown("Admin-producer", "Admin-consumer")


def topic_config(name: str, queues: int) -> str:
    return (f"TopicConfig [topicName={name}, readQueueNums={queues}, writeQueueNums={queues}, perm=RW-, "
            "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]")  # fmt: skip


def subscription_group(name: str, **changed: str) -> str:
    fields = {"groupName": name, "consumeEnable": "true", "consumeFromMinEnable": "false",
              "consumeBroadcastEnable": "false", "retryQueueNums": "1", "retryMaxTimes": "16", "brokerId": "0",
              "whichBrokerWhenConsumeSlowly": "1", "notifyConsumerIdsChangedEnable": "true", **changed}  # fmt: skip
    return f"SubscriptionGroupConfig [{', '.join(f'{key}={value}' for key, value in fields.items())}]"


def route(queues: int, address: str) -> str:
    return (
        f'{{\n\t"brokerDatas":[\n\t\t{{\n\t\t\t"brokerAddrs":{{0:"{address}"\n\t\t\t}},\n\t\t\t"brokerName":"{BROKER_NAME}",'
        f'\n\t\t\t"cluster":"{CLUSTER_NAME}"\n\t\t}}\n\t],\n\t"filterServerTable":{{}},\n\t"queueDatas":[\n\t\t{{\n\t\t\t'
        f'"brokerName":"{BROKER_NAME}",\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":{queues},\n\t\t\t"topicSysFlag":0,\n\t\t\t'
        f'"writeQueueNums":{queues}\n\t\t}}\n\t]\n}}'
    )


def test_update_list_and_delete_topic_mqadmin_4_9_4(admin: Admin, cluster: Cluster) -> None:
    by_cluster, by_broker = "Admin-made-1", "Admin-made-2"
    created = f"create topic to {cluster.broker_address} success.\n"
    assert admin("updateTopic", "-c", CLUSTER_NAME, "-t", by_cluster, "-r", "3", "-w", "3") == (
        created + topic_config(by_cluster, 3))  # fmt: skip
    assert admin("updateTopic", "-b", cluster.broker_address, "-t", by_broker, "-r", "2", "-w", "2", "-p", "6") == (
        created + topic_config(by_broker, 2))  # fmt: skip
    assert admin("topicRoute", "-t", by_cluster) == route(3, cluster.broker_address), "in the route at once"
    assert set(admin("topicList").split()) >= SYSTEM_TOPICS | {by_cluster, by_broker}
    assert admin("updateTopic", "-c", CLUSTER_NAME, "-t", by_cluster, "-r", "5", "-w", "5").startswith(created)
    assert admin("topicRoute", "-t", by_cluster) == route(5, cluster.broker_address)
    for topic in (by_cluster, by_broker):
        assert admin("deleteTopic", "-c", CLUSTER_NAME, "-t", topic) == (
            f"delete topic [{topic}] from cluster [{CLUSTER_NAME}] success.\n"
            f"delete topic [{topic}] from NameServer success.")  # fmt: skip
    assert not {by_cluster, by_broker} & set(admin("topicList").split())
    missing = admin("topicRoute", "-t", by_cluster)
    assert f"CODE: 17  DESC: No topic route info in name server for the topic: {by_cluster}" in missing


def test_update_topic_refusals_mqadmin_4_9_4(admin: Admin) -> None:
    conflict = admin("updateTopic", "-c", CLUSTER_NAME, "-t", "TBW102")
    assert "CODE: 1  DESC: The topic[TBW102] is conflict with system topic." in conflict
    assert admin("updateTopic", "-c", "NoSuchCluster", "-t", "Admin-x").startswith(
        "[error] Make sure the specified clusterName exists")  # fmt: skip


def test_update_sub_group_mqadmin_4_9_4(admin: Admin, cluster: Cluster) -> None:
    created = f"create subscription group to {cluster.broker_address} success.\n"
    assert admin("updateSubGroup", "-b", cluster.broker_address, "-g", "Admin-g1") == (
        created + subscription_group("Admin-g1"))  # fmt: skip
    assert admin("updateSubGroup", "-c", CLUSTER_NAME, "-g", "Admin-g2", "-s", "true", "-m", "true", "-d", "true", "-q", "2",
                 "-r", "5", "-i", "0", "-w", "1", "-a", "true") == created + subscription_group(
        "Admin-g2", consumeFromMinEnable="true", consumeBroadcastEnable="true", retryQueueNums="2", retryMaxTimes="5"
    )  # fmt: skip


def test_cluster_list_mqadmin_4_9_4(admin: Admin, cluster: Cluster) -> None:
    head, row = admin("clusterList").splitlines()
    assert head.split() == ["#Cluster", "Name", "#Broker", "Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)",
                            "#OutTPS(LOAD)", "#PCWait(ms)", "#Hour", "#SPACE"]  # fmt: skip
    assert re.fullmatch(
        rf"{CLUSTER_NAME}\s+{BROKER_NAME}\s+0\s+{re.escape(cluster.broker_address)}\s+V4_9_4\s+"
        r"\d+\.\d\d\(\d+,\d+ms\)\s+\d+\.\d\d\(\d+,\d+ms\)\s+\d+\s+\d+\.\d\d\s+0\.\d{4}\s*",
        row,
    ), row


def test_topic_status_mqadmin_4_9_4(admin: Admin, traffic: Traffic) -> None:
    head, *rows = admin("topicStatus", "-t", traffic.topic).splitlines()
    assert head.split() == ["#Broker", "Name", "#QID", "#Min", "Offset", "#Max", "Offset", "#Last", "Updated"]
    for queue_id, row in enumerate(rows):
        assert re.fullmatch(rf"{BROKER_NAME}\s+{queue_id}\s+0\s+5\s+{TIME},\d{{3}}", row), row
    assert len(rows) == 2


def test_consumer_progress_mqadmin_4_9_4(admin: Admin, traffic: Traffic) -> None:
    caught_up = rf"{traffic.group}\s+1\s+V4_9_4\s+PUSH\s+CLUSTERING\s+\d+\s+0"
    deadline = time.monotonic() + PATIENCE_S
    while True:  # the client commits its offsets every 5 s
        every = [row for row in admin("consumerProgress").splitlines() if row.startswith(traffic.group)]
        assert len(every) == 1
        if re.fullmatch(caught_up, every[0]):
            break
        assert time.monotonic() < deadline, every[0]
    text = admin("consumerProgress", "-g", traffic.group)
    rows = [row for row in text.splitlines() if row.startswith(traffic.topic)]
    assert len(rows) == 2
    for queue_id, row in enumerate(rows):
        assert re.fullmatch(rf"{traffic.topic}\s+{BROKER_NAME}\s+{queue_id}\s+5\s+5\s+0\s+{TIME}\s*", row), row
    assert re.search(rf"^%RETRY%{traffic.group}\s+{BROKER_NAME}\s+0\s+0\s+0\s+0\s+N/A", text, re.M), text
    assert re.search(r"^Consume TPS: \d+\.\d\d\nDiff Total: 0$", text, re.M), text


def shown_message(sent: Sent, got: Received, *, offset_id: bool, extra: str = "") -> str:
    """Returns a pattern for the output of the query commands for a message."""
    first = rf"OffsetID:\s+{sent.offset_msg_id}\n" if offset_id else ""
    number = sent.body.split()[1]
    return (
        rf"{first}Topic:\s+{got.topic}\nTags:\s+\[A\]\nKeys:\s+\[adm-{number}\]\nQueue ID:\s+{sent.queue_id}\n"
        rf"Queue Offset:\s+{sent.queue_offset}\nCommitLog Offset:\s+{int(sent.offset_msg_id[16:], 16)}\n"
        rf"Reconsume Times:\s+0\nBorn Timestamp:\s+{TIME},\d{{3}}\nStore Timestamp:\s+{TIME},\d{{3}}\n"
        r"Born Host:\s+127\.0\.0\.1:\d+\n"
        rf"Store Host:\s+127\.0\.0\.1:{int(sent.offset_msg_id[8:16], 16)}\nSystem Flag:\s+0\n"
        rf"Properties:\s+\{{{extra}(?=[^\n]*KEYS=adm-{number})(?=[^\n]*UNIQ_KEY={sent.msg_id})(?=[^\n]*CLUSTER={CLUSTER_NAME})"
        rf"(?=[^\n]*TAGS=A)[^\n]*\}}\nMessage Body Path:\s+\S+{sent.msg_id}\n\n\n"
        rf"MessageTrack \[consumerGroup={Traffic.group}, trackType=CONSUMED, exceptionDesc=null\]"
    )


def test_query_messages_mqadmin_4_9_4(admin: Admin, traffic: Traffic) -> None:
    topic, sent, got = traffic.topic, traffic.sent[5], traffic.got[5]
    by_id = admin("queryMsgById", "-i", sent.offset_msg_id)
    assert re.fullmatch(shown_message(sent, got, offset_id=True), by_id), by_id
    by_unique_key = admin("queryMsgByUniqueKey", "-t", topic, "-i", sent.msg_id)
    assert re.fullmatch(shown_message(sent, got, offset_id=False), by_unique_key), by_unique_key
    by_offset = admin("queryMsgByOffset", "-t", topic, "-b", BROKER_NAME, "-i", str(sent.queue_id), "-o",
                      str(sent.queue_offset))  # fmt: skip
    pulled = shown_message(sent, got, offset_id=True, extra=r"MIN_OFFSET=0, MAX_OFFSET=5, ")
    assert re.fullmatch(pulled, by_offset), by_offset
    head, row = admin("queryMsgByKey", "-t", topic, "-k", "adm-5").splitlines()
    assert head.split() == ["#Message", "ID", "#QID", "#Offset"]
    assert row.split() == [sent.msg_id, str(sent.queue_id), str(sent.queue_offset)]
    missing = admin("queryMsgByKey", "-t", topic, "-k", "no-such-key")
    assert "CODE: 208  DESC: query message by key finished, but no message." in missing


def test_print_msg_mqadmin_4_9_4(admin: Admin, traffic: Traffic) -> None:
    text = admin("printMsg", "-t", traffic.topic, "-d", "true")
    for queue_id in (0, 1):
        assert (f"minOffset=0, maxOffset=5, MessageQueue [topic={traffic.topic}, brokerName={BROKER_NAME}, "
                f"queueId={queue_id}]\n") in text  # fmt: skip
    printed = re.findall(r"MSGID: (\S+) MessageExt \[brokerName=(\S+), queueId=(\d+), storeSize=\d+, queueOffset=(\d+),.*"
                         r"body=\[[\d, ]+\], transactionId='null'\}\] BODY: (.*)", text)  # fmt: skip
    assert sorted(printed) == sorted(
        (one.msg_id, BROKER_NAME, str(one.queue_id), str(one.queue_offset), one.body) for one in traffic.sent
    )
