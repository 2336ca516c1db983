"""Admin requests: every answer has the shape of Apache 4.9.4's, and correct values."""

import base64
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting import fastjson
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, Request, Response
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import (
    BrokerStatsRequestHeader,
    CloneGroupOffsetRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumerStatusRequestHeader,
    ConsumeStatsRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GroupRequestHeader,
    ProducerGroupRequestHeader,
    TopicAndGroupRequestHeader,
)
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.query import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerRunningInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
)
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from pocketmq.runtime import properties_file
from tests.broker.running import ask, connected, create_topic, running_broker
from tests.broker.sampling import sample

RECORDED = Path(__file__).parents[1] / "golden" / "wire" / "mqadmin494.jsonl.gz"
MAPS = {
    "offsetTable", "topicConfigTable", "subscriptionGroupTable", "subscriptionTable", "data", "consumeStatsList", "mqTable",
}  # fmt: skip
TOPIC, GROUP = "AdmTopic", "AdmConsumerGroup"


def recorded_answer(code: int) -> RemotingCommand:
    """Return the recorded answer of Apache's broker to `code`."""
    with gzip.open(RECORDED, "rt") as file:
        for row in map(json.loads, file):
            if row["asked"] == code and row["flag"] & 1 and row["code"] == 0:
                data = base64.b64decode(row["frame"])
                header_size = int.from_bytes(data[5:8], "big")
                answer = RemotingCommand(0, ext=row["ext"], remark=row["remark"])
                answer.body = data[8 + header_size :]
                return answer
    raise AssertionError(f"no answer to {code} is recorded")


def shape(value: Any, name: str = "") -> Any:
    """Return keys and types; for lists and for maps with arbitrary keys the merged shape of all values."""
    if isinstance(value, dict) and name in MAPS:
        return [merged([shape(item, name if name == "offsetTable" else "") for item in value.values()])]
    if isinstance(value, dict):
        return {key: shape(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [merged([shape(item, name) for item in value])]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def merged(shapes: list[Any]) -> Any:
    return (
        {key: item for one in shapes for key, item in one.items()} if shapes and isinstance(shapes[0], dict) else shapes[:1]
    )


@dataclass
class Tools:
    broker: Broker
    client: RemotingClient
    asked: list[Request[Any]]

    async def ask(self, code: int, header: Any = None, body: bytes = b"") -> RemotingCommand:
        return await ask(self.client, self.broker, code, header, body)

    async def json(self, code: int, header: Any = None, body: bytes = b"") -> Any:
        answer = await self.ask(code, header, body)
        assert answer.code == 0, answer.remark
        return fastjson.loads(answer.body)


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    """A broker with a topic of two queues, three messages, and a group that has consumed two of them and is online."""
    asked: list[Request[Any]] = []

    def answer(_: Any, request: Request[Any]) -> Response:
        asked.append(request)
        status = b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"AdmTopic"}:5}}'
        return Response(0, remark="mine", body=status if request.code == 221 else b'{"jstack":"x"}')

    table = {code: Route(code, NoHeader, answer) for code in (40, 220, 221, 307, 309)}
    async with running_broker() as broker, connected(table) as client:
        tools = Tools(broker, client, asked)
        await create_topic(client, broker, TOPIC, 2)
        heartbeat = {
            "clientID": "me",
            "producerDataSet": [{"groupName": "AdmProducerGroup"}],
            "consumerDataSet": [
                {
                    "groupName": GROUP,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": TOPIC, "subString": "a", "tagsSet": ["a"], "codeSet": [97], "subVersion": 1}
                    ],
                }
            ],
        }
        await tools.ask(RequestCode.HEART_BEAT, None, json.dumps(heartbeat).encode())
        for queue_id, properties in ((0, "TAGS\x01a"), (0, None), (1, "DELAY\x011"), (1, None)):
            header = SendMessageRequestHeaderV2("AdmProducerGroup", TOPIC, "TBW102", 4, queue_id, 0, 0, 0, properties)
            await tools.ask(RequestCode.SEND_MESSAGE_V2, header, b"hello")
        for queue_id in (0, 1):
            await tools.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, queue_id, 1))
        await tools.ask(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(GROUP, TOPIC, 0, 0, 1, 4, 0, 0, 0, "*"))
        yield tools


SHAPES = [
    (RequestCode.GET_ALL_TOPIC_CONFIG, None),
    (RequestCode.GET_BROKER_RUNTIME_INFO, None),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None),
    (RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(TOPIC)),
    (RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader("AdmProducerGroup")),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader(GROUP)),
    (RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(GROUP)),
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(TOPIC)),
    (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None),
    (RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader("TOPIC_PUT_NUMS", TOPIC)),
    (RequestCode.GET_ALL_PRODUCER_INFO, None),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, None),
    (RequestCode.GET_ALL_DELAY_OFFSET, None),
    (RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(TOPIC, 0, 0, 5, GROUP)),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, -1)),
]


@pytest.mark.parametrize(("code", "header"), SHAPES, ids=[code.name for code, _ in SHAPES])
async def test_admin_answers_have_apaches_shape(tools: Tools, code: RequestCode, header: Any) -> None:
    sample(tools.broker.services.stats)
    ours = shape(await tools.json(code, header))
    theirs = shape(fastjson.loads(recorded_answer(code).body))
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        path = tools.broker.services.store.config.commit_log_directory
        del ours["table"][f"commitLogDiskRatio_{path}"], theirs["table"]["commitLogDiskRatio_./store/commitlog"]
        assert ours["table"].pop("getTransferredTps") == "str", "5.x's spelling"
        of_5_x = [key for key in ours["table"] if key.startswith(("timer", "litePull", "ack", "brokerActive"))]
        assert [ours["table"].pop(key) for key in of_5_x] == ["str"] * 12
        own = ("startAfter", "startRecoveryMs", "startRepairs")
        assert [ours["table"].pop(key) for key in own] == ["str"] * 3
    if code == RequestCode.GET_ALL_DELAY_OFFSET:
        assert ours == {"offsetTable": [[]]}, "nothing was delivered yet"
        return
    assert ours == theirs


async def test_maps_by_queue_have_object_keys_as_java_clients_read_them(tools: Tools) -> None:
    answer = await tools.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(TOPIC))
    assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"AdmTopic"}:{')


async def test_topic_stats_include_empty_queues(tools: Tools) -> None:
    rows = list((await tools.json(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("TBW102")))["offsetTable"].values())
    assert rows == [{"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}] * 8


async def test_consume_stats_have_the_group_s_progress(tools: Tools) -> None:
    rows = list(
        (await tools.json(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(GROUP, TOPIC)))["offsetTable"].values()
    )
    assert [(row["brokerOffset"], row["consumerOffset"]) for row in rows] == [(2, 1), (1, 1)]
    assert all(row["lastTimestamp"] > 0 for row in rows)
    other = await tools.json(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader("nobody"))
    assert other == {"consumeTps": 0.0, "offsetTable": {}}


async def test_config_answer_has_every_key_that_tools_need(tools: Tools) -> None:
    answer = await tools.ask(RequestCode.GET_BROKER_CONFIG)
    properties = properties_file.loads(answer.body.decode())
    needed = """brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType
        maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS
        autoCreateTopicEnable autoCreateSubscriptionGroup clientCallbackExecutorThreads"""
    assert set(needed.split()) <= set(properties)
    assert (properties["brokerRole"], properties["maxMessageSize"], properties["traceOn"]) == (
        "ASYNC_MASTER",
        "4194304",
        "true",
    )
    assert answer.ext is not None and json.loads(answer.ext["version"])["counter"] == 0


async def test_config_change_takes_effect_and_advances_the_version(tools: Tools) -> None:
    assert (
        await tools.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=5\nautoCreateTopicEnable=false\n")
    ).code == 0
    services = tools.broker.services
    assert services.store.config.file_reserved_time == 5
    assert services.config.auto_create_topic_enable is False
    assert services.config_version.counter == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"fileReservedTime=5\nnoSuchKey=1", "noSuchKey"),
        (b"fileReservedTime=5\nstorePathRootDir=/tmp/x", "storePathRootDir"),
        (b"fileReservedTime=5\nbrokerPermission=rw", "brokerPermission=rw"),
        (b"fileReservedTime=5\nrocketmqHome=/tmp;id", "rocketmqHome"),
        (b"", "no key=value"),
        (b"fileReservedTime=\\u12", "hexadecimal"),
    ],
)
async def test_config_change_with_an_invalid_key_is_refused_as_a_whole(tools: Tools, body: bytes, words: str) -> None:
    answer = await tools.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert words in (answer.remark or "")
    assert tools.broker.services.store.config.file_reserved_time == 72


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("b", "The topic[b] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ("../../x", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("T\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("", "The specified topic is blank."),
        ("t" * 128, "The specified topic is longer than topic max length 127."),
    ],
)
async def test_invalid_topic_names_are_refused(tools: Tools, topic: str, remark: str) -> None:
    created = await tools.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(topic, "TBW102", 1, 1, 6, "SINGLE_TAG")
    )
    deleted = await tools.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    for answer in (created, deleted):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


def with_attributes(text: str) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader("Kinds", "TBW102", 1, 1, 6, "SINGLE_TAG", attributes=text)


async def test_topic_attributes_are_set_shown_and_deleted(tools: Tools) -> None:
    for text, kept in (
        ("+message.type=FIFO,+queue.type=SimpleCQ", {"message.type": "FIFO", "queue.type": "SimpleCQ"}),
        ("", {"message.type": "FIFO", "queue.type": "SimpleCQ"}),
        ("+message.type=DELAY,+reserve.time=-1", {"message.type": "DELAY", "queue.type": "SimpleCQ", "reserve.time": "-1"}),
        ("-message.type,-reserve.time", {"queue.type": "SimpleCQ"}),
    ):
        assert (await tools.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, with_attributes(text))).code == 0
        assert (await tools.json(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader("Kinds")))["attributes"] == kept


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("+queue.type=BatchCQ", "topic Kinds: attribute queue.type=BatchCQ: this broker supports only SimpleCQ"),
        ("+cleanup.policy=COMPACTION", "this broker supports only DELETE"),
        (
            "+message.type=LITE",
            "message.type=LITE: this broker supports only UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED",
        ),
        ("+colour=red", "attribute 'colour': expected one of queue.type"),
        ("+reserve.time=--1", "reserve.time=--1: expected a number"),
        ("-message.type", "message.type is not set"),
        ("-queue.type", "queue.type cannot be deleted"),
        ("queue.type=SimpleCQ", "expected +name=value or -name"),
        ("+queue.type=SimpleCQ,", "attribute '': expected +name=value or -name"),
    ],
)
async def test_unsupported_topic_attributes_are_refused(tools: Tools, text: str, words: str) -> None:
    answer = await tools.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, with_attributes(text))
    assert (answer.code, words in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), answer.remark
    assert tools.broker.services.topics.get("Kinds") is None


async def test_topic_list_creates_all_topics_or_none(tools: Tools) -> None:
    async def ask_for(*rows: dict[str, object]) -> RemotingCommand:
        return await tools.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, json.dumps({"topicConfigList": rows}).encode()
        )

    one = {"topicName": "One", "readQueueNums": 3, "perm": 4, "attributes": {"+message.type": "FIFO"}}
    answer = await ask_for(one, {"topicName": "TBW102"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The topic[TBW102] is conflict with system topic.")
    assert tools.broker.services.topics.get("One") is None
    assert (await ask_for(one, {"topicName": "Two"})).code == 0
    found = await tools.json(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader("One"))
    assert (found["readQueueNums"], found["perm"], found["attributes"]) == (3, 4, {"message.type": "FIFO"})
    assert (await ask_for({"topicName": "One", "attributes": {"-message.type": ""}})).code == 0
    assert (await tools.json(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader("One")))["attributes"] == {}
    assert tools.broker.services.topics.get("Two") is not None


async def test_group_list_creates_groups(tools: Tools) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert (await tools.ask(code, None, b'{"groupConfigList":[{"groupName":"A"},{"retryMaxTimes":1}]}')).code != 0
    assert tools.broker.services.groups.get("A") is None
    body = b'{"groupConfigList":[{"groupName":"A","retryMaxTimes":5},{"groupName":"B"}]}'
    assert (await tools.ask(code, None, body)).code == 0
    a, b = (tools.broker.services.groups.get(group) for group in "AB")
    assert a is not None and b is not None and (a.retry_max_times, b.retry_max_times) == (5, 16)


async def test_too_long_group_name_is_refused_naming_it_and_the_limit(tools: Tools) -> None:
    body = json.dumps({"groupName": "g" * 300}).encode()
    answer = await tools.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("the group is not created: its retry topic %RETRY%ggg")
    assert "has 307 bytes, at most 255 are allowed" in (answer.remark or "")


async def test_groups_are_created_shown_and_deleted(tools: Tools) -> None:
    body = b'{"groupName":"G","retryMaxTimes":3,"consumeBroadcastEnable":false}'
    assert (await tools.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0
    found = await tools.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader("G"))
    assert (found["retryMaxTimes"], found["consumeBroadcastEnable"], found["consumeEnable"]) == (3, False, True)
    deleted = await tools.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("G"))
    assert deleted.code == 0
    tools.broker.services.config.auto_create_subscription_group = False
    gone = await tools.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader("G"))
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_group_config_query_of_the_5_x_proxy_creates_the_group(tools: Tools) -> None:
    found = await tools.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader("never"))
    assert (found["groupName"], found["consumeEnable"]) == ("never", True)


async def test_group_fields_of_5_x_survive_an_update_by_4_9_tools(tools: Tools) -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}
    body = {"groupName": "F", "consumeMessageOrderly": True, "groupRetryPolicy": policy, "consumeTimeoutMinute": 3}
    for row in (body, {"groupName": "F", "retryMaxTimes": 2}):
        answer = await tools.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(row).encode())
        assert answer.code == 0
    found = await tools.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader("F"))
    assert found | body == found and found["retryMaxTimes"] == 2


@pytest.mark.parametrize("word", ["remove_offset", "clean_offset"])
async def test_group_deletion_removes_offsets_with_either_header_field(tools: Tools, word: str) -> None:
    header = DeleteSubscriptionGroupRequestHeader(GROUP, **{word: True})
    await tools.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    assert tools.broker.services.offsets.topics_of(GROUP) == []


async def test_reset_is_sent_to_consumers_and_moves_forward_only_with_force(tools: Tools) -> None:
    tools.broker.services.config.use_server_side_reset_offset = False
    table = await tools.json(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, -1, True))
    assert list(table["offsetTable"].values()) == [2, 1]
    table = await tools.json(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, -1, False))
    assert list(table["offsetTable"].values()) == [1, 1]
    await tools.ask(RequestCode.GET_BROKER_CONFIG)  # the requests pushed before it have arrived
    pushed = [request for request in tools.asked if request.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert len(pushed) == 2
    assert pushed[0].ext() == {"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "false"}
    assert list(fastjson.loads(pushed[0].body)["offsetTable"].values()) == [2, 1]


async def test_reset_of_an_offline_or_unknown_group_is_refused(tools: Tools) -> None:
    tools.broker.services.config.use_server_side_reset_offset = False
    for queue_id in (0, 1):
        tools.broker.services.offsets.commit("off", TOPIC, queue_id, 1)
    answer = await tools.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, "off", 5))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    answer = await tools.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, "nobody", 5))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <nobody> not exist")


async def test_requests_of_tools_are_relayed_to_the_client(tools: Tools) -> None:
    answer = await tools.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader(GROUP, "me", True))
    assert (answer.code, answer.remark, answer.body) == (0, "mine", b'{"jstack":"x"}')
    assert tools.asked[-1].ext() == {"consumerGroup": GROUP, "clientId": "me", "jstackEnable": "true"}
    store_host = tools.broker.services.store_host
    message_id = store_host.hex() + "0" * 16
    header = ConsumeMessageDirectlyRequestHeader(GROUP, "me", message_id)
    assert (await tools.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)).code == 0
    record = tools.broker.services.store.message_at(0)
    assert record is not None and tools.asked[-1].body == bytes(record)
    assert tools.asked[-1].ext()["brokerName"] == "b"


async def test_consumer_status_has_the_offsets_of_each_client(tools: Tools) -> None:
    found = await tools.json(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader(TOPIC, GROUP, "me")
    )
    assert list(found["consumerTable"]["me"].values()) == [5]


async def test_relay_to_an_unknown_client_is_refused(tools: Tools) -> None:
    answer = await tools.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader(GROUP, "you"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The Consumer <{GROUP}> <you> not online")
    offline = await tools.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader(TOPIC, "nobody"))
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_queries_of_a_group_s_topics_and_subscriptions(tools: Tools) -> None:
    topics = await tools.json(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupRequestHeader(GROUP))
    assert topics == {"topicList": [TOPIC], "brokerAddr": f"127.0.0.1:{tools.broker.port}"}
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    found = await tools.json(code, TopicAndGroupRequestHeader(TOPIC, GROUP))
    assert (found["group"], found["topic"], found["subscriptionData"]["subString"]) == (GROUP, TOPIC, "a")
    assert (await tools.json(code, TopicAndGroupRequestHeader("Other", GROUP))).get("subscriptionData") is None


@pytest.mark.parametrize(
    ("topic", "offline", "copied"),
    [(TOPIC, False, True), (None, False, True), ("Gone", False, False), ("Left", False, False), ("Left", True, True)],
)
async def test_group_offsets_are_cloned(tools: Tools, topic: str | None, offline: bool, copied: bool) -> None:
    await create_topic(tools.client, tools.broker, "Left", 1)
    offsets = tools.broker.services.offsets
    offsets.commit(GROUP, "Left", 0, 7)
    offsets.commit(GROUP, "Gone", 0, 7)
    header = CloneGroupOffsetRequestHeader(GROUP, "AdmHeir", topic, offline)
    assert (await tools.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
    assert offsets.topics_of("AdmHeir") == ([topic or TOPIC] if copied else [])
    if copied:
        assert offsets.queues("AdmHeir", topic or TOPIC) == offsets.queues(GROUP, topic or TOPIC) != {}


async def test_consume_time_spans_of_a_group(tools: Tools) -> None:
    spans = (await tools.json(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicAndGroupRequestHeader(TOPIC, GROUP)))[
        "consumeTimeSpanSet"
    ]
    assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1]
    assert spans[0]["minTimeStamp"] <= spans[0]["consumeTimeStamp"] <= spans[0]["maxTimeStamp"]
    assert spans[0]["delayTime"] >= 0 and spans[1]["delayTime"] == 0


async def test_unknown_statistics_are_refused(tools: Tools) -> None:
    answer = await tools.ask(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader("TOPIC_PUT_NUMS", "Nothing"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <Nothing> not exist")


async def test_queue_units_outside_the_range_are_not_returned(tools: Tools) -> None:
    outside = await tools.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(TOPIC, 0, 99, 5))
    assert (outside.code, outside.body) == (0, b"")
    missing = await tools.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(TOPIC, 77, 0, 5))
    assert (missing.code, missing.remark) == (ResponseCode.SYSTEM_ERROR, f"77@{TOPIC} is not exist!")


@pytest.mark.parametrize(
    "code",
    [RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG],
)
async def test_cleaning_keeps_topics_in_use(tools: Tools, code: RequestCode) -> None:
    assert (await tools.ask(code)).code == 0
    assert tools.broker.services.store.max_offset(TOPIC, 0) == 2


async def test_administrative_codes_can_be_restricted_to_addresses() -> None:
    async with running_broker(admin_allow="10.0.0.0/8,2001:db8::/32") as broker, connected() as client:
        for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG):
            answer = await ask(client, broker, code, None, b"traceOn=false")
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION, f"request code {code} is not served to 127.0.0.1: it is not in adminAllow",
            )  # fmt: skip
        assert broker.config.trace_on
        assert (await create_topic(client, broker, "T")).code == ResponseCode.NO_PERMISSION
        assert (await ask(client, broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).code == 0
    async with running_broker(admin_allow="127.0.0.1") as broker, connected() as client:
        assert (await create_topic(client, broker, "T")).code == 0
