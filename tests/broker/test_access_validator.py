"""Access checks. The answers are those of Apache 4.9.4 to the same calls, unless a test says otherwise."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pocketmq.broker.access.access_table import ADMIN_CODES, RESOURCES, SIGNED_CODES
from pocketmq.broker.access.access_validator import guard
from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager
from pocketmq.broker.access.plain_access_validator import PlainAccessValidator
from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from pocketmq.remoting.command import Response, decode_header
from pocketmq.remoting.dispatch import Dispatcher, RemotingError, Route
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from pocketmq.remoting.headers.query import QueryMessageRequestHeader
from pocketmq.remoting.signature import ACCESS_KEY, SIGNATURE, Signer
from pocketmq.runtime.clock import VirtualClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.format.message import TRANSACTION_PREPARED_TYPE
from tests.broker.acl_files import MORE_ACL, acl_home
from tests.broker.data_path import DataPath, records
from tests.broker.running import ask, connected, running_broker

USER, ADMIN, MORE = ("RocketMQ", "12345678"), ("rocketmq2", "12345678"), ("moreKeys", "moreSecret")
SERVED = (0, None)


@pytest.fixture
def call(tmp_path):
    return caller(tmp_path)


NO_MESSAGES = SimpleNamespace(store=SimpleNamespace(message_at=lambda physical_offset: None))


def caller(folder, services=NO_MESSAGES):
    """Return `call(code, fields, body, who)`, which returns the answer's (code, remark of AclException); no handler runs."""
    manager = PlainPermissionManager(acl_home(folder, more=MORE_ACL), VirtualClock(0))
    manager.load()
    table = {code: route._replace(handler=lambda services, request: Response()) for code, route in ROUTES.items()}
    dispatcher = Dispatcher(services, guard(table, PlainAccessValidator(manager)))

    def send(code, fields, body=b"", who=USER, host="127.0.0.1", flag=0, **unsigned):
        ext = {name: str(value) for name, value in fields.items()}
        if who is not None:
            ext[ACCESS_KEY] = who[0]
            ext[SIGNATURE] = Signer(who[1].encode()).sign(ext, body).decode()
        ext |= unsigned
        header = json.dumps({"code": code, "flag": flag, "opaque": 1, "extFields": ext}, separators=(",", ":")).encode()
        out = []
        dispatcher.serve(SimpleNamespace(remote_host=host), (0, header, body), out)
        if not out:
            return None
        ((serialize_type, head, _),) = FrameBuffer().feed(b"".join(bytes(part) for part in out))
        answer = decode_header(serialize_type, head)
        return answer.code, answer.remark and answer.remark.removeprefix("org.apache.rocketmq.acl.common.AclException: ")

    return send


def v2(topic, group="producer"):
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 0,
        "h": 0,
        "j": 0,
        "k": "false",
        "m": "false",
    }


def v1(topic, group="producer"):
    return {"producerGroup": group, "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
            "sysFlag": 0, "bornTimestamp": 0, "flag": 0}  # fmt: skip


def pull(topic, group):
    return {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}  # fmt: skip


def heartbeat(group, topic):
    consumers = [{"groupName": group, "subscriptionDataSet": [{"topic": topic}]}]
    return json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers}).encode()


def denied(what):
    return ResponseCode.SYSTEM_ERROR, f"No default permission for {what}"


def test_accounts_are_authenticated_by_signature(call):
    send = RequestCode.SEND_MESSAGE_V2, v2("topicD"), b"x"
    bad = 1, "Check signature failed for accessKey=RocketMQ"
    assert call(*send) == call(*send) == SERVED  # repeated bytes are accepted: as in Apache, signatures have no time
    assert call(*send, who=None) == (1, "No accessKey is configured")
    assert call(*send, who=("nobody1", "12345678")) == (1, "No acl config for nobody1")
    assert call(*send, who=None, AccessKey="", Signature="") == (1, "No acl config for ")
    assert call(*send, who=("RocketMQ", "87654321")) == bad
    assert call(*send, who=None, AccessKey="RocketMQ") == bad
    assert call(*send, e="1") == bad
    assert call(*send, extra="1") == bad
    assert call(*send, _UNIQUE_KEY_QUERY="true") == SERVED
    assert call(RequestCode.HEART_BEAT, {}, heartbeat("groupC", "topicC"), who=None) == (1, "No accessKey is configured")


def test_white_addresses_need_no_account(call):
    send = RequestCode.SEND_MESSAGE_V2, v2("topicA"), b"x"
    assert call(*send, who=None, host="192.168.0.9") == SERVED
    assert call(*send, who=None, host="192.168.1.9") == (1, "No accessKey is configured")
    # A request from an account's white list needs no signature, but must name the account.
    assert call(*send, who=None, host="192.168.1.9", AccessKey="rocketmq2") == SERVED
    assert call(*send, who=None, host="192.168.2.9", AccessKey="rocketmq2") == (
        1, "Check signature failed for accessKey=rocketmq2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fields", "answer"),
    [
        (10, v1("topicD"), SERVED),
        (10, v1("topicA"), denied("topic:topicA")),
        (310, v2("topicB"), SERVED),
        (310, v2("topicA"), denied("topic:topicA")),
        (310, v2("topicC"), denied("topic:topicC")),
        (310, v2("topicX"), denied("topic:topicX")),
        (310, v2("RMQ_SYS_TRACE_TOPIC"), SERVED),
        (310, v2("%RETRY%groupC", "groupC"), SERVED),
        (310, v2("%RETRY%groupC", "groupA"), denied("group:groupA")),
        (11, pull("topicC", "groupC"), SERVED),
        (11, pull("topicD", "groupC"), denied("topic:topicD")),
        (11, pull("topicC", "groupA"), denied("group:groupA")),
        (12, {"topic": "topicD", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, denied("topic:topicD")),
        (14, {"consumerGroup": "groupC", "topic": "topicC", "queueId": 0}, SERVED),
        (15, {"consumerGroup": "groupC", "topic": "topicD", "queueId": 0, "commitOffset": 0}, denied("topic:topicD")),
        (35, {"clientID": "c", "consumerGroup": "groupA"}, denied("group:groupA")),
        (35, {"clientID": "c", "producerGroup": "groupA"}, SERVED),
        (36, {"offset": 0, "group": "groupA", "delayLevel": 0}, denied("group:groupA")),
        (38, {"consumerGroup": "groupA"}, denied("group:groupA")),
        (52, {}, SERVED),
    ],
)
def test_permissions_of_accounts(call, code, fields, answer):
    assert call(code, fields) == answer
    assert call(code, fields, who=MORE) == SERVED
    assert call(code, fields, who=ADMIN) == SERVED


@pytest.mark.parametrize(
    ("code", "fields", "answer"),
    [
        (320, v2("topicA"), denied("topic:topicA")),
        (325, v2("topicA"), denied("topic:topicA")),
        (325, v2("SomeCluster_REPLY_TOPIC"), SERVED),
        (310, v2("%RETRY%groupA", "groupC"), denied("group:groupA")),
        (10, v1("%RETRY%groupA", "groupC"), denied("group:groupA")),
        (361, pull("topicD", "groupC"), denied("topic:topicD")),
        (14, {"consumerGroup": "groupA", "topic": "topicA", "queueId": 0}, denied("topic:topicA")),
        (14, {"consumerGroup": "groupA", "topic": "topicC", "queueId": 0}, denied("group:groupA")),
        (370, {"topic": "topicC", "recallHandle": "h"}, denied("topic:topicC")),
        (222, {"topic": "topicC", "group": "groupA", "timestamp": 0}, denied("group:groupA")),
        (314, {"srcGroup": "groupC", "destGroup": "groupA", "topic": "topicC"}, denied("group:groupA")),
        (314, {"srcGroup": "groupC", "destGroup": "groupC", "topic": "topicD"}, denied("topic:topicD")),
        (314, {"srcGroup": "groupC", "destGroup": "groupC"}, SERVED),
        (200_050, {"consumerGroup": "groupC", "topic": "topicD", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1,
                   "pollTime": 0}, denied("topic:topicD")),
        (200_051, {"consumerGroup": "groupC", "topic": "%RETRY%groupC_topicC", "queueId": 0, "extraInfo": "", "offset": 0},
         SERVED),
        (200_051, {"consumerGroup": "groupA", "topic": "topicC", "queueId": 0, "extraInfo": "", "offset": 0},
         denied("group:groupA")),
        (200_051, {"consumerGroup": "groupC", "topic": "%RETRY%groupC", "queueId": 0, "extraInfo": "", "offset": 0}, SERVED),
        (200_051, {"consumerGroup": "groupC", "topic": "%RETRY%groupC+topicC", "queueId": 0, "extraInfo": "", "offset": 0},
         SERVED),
        (200_051, {"consumerGroup": "groupC", "topic": "%RETRY%groupC+topicD", "queueId": 0, "extraInfo": "", "offset": 0},
         denied("topic:topicD")),
        # The name of a group may be a prefix of another's.
        (200_053, {"consumerGroup": "group", "topic": "%RETRY%groupA", "queueId": 0, "extraInfo": "", "offset": 0,
                   "invisibleTime": 1}, denied("group:groupA")),
        (200_053, {"consumerGroup": "", "topic": "%RETRY%_topicD", "queueId": 0, "extraInfo": "", "offset": 0,
                   "invisibleTime": 1}, SERVED),  # the group `_topicD`
        (200_053, {"consumerGroup": "", "topic": "%RETRY%groupA", "queueId": 0, "extraInfo": "", "offset": 0,
                   "invisibleTime": 1}, denied("group:groupA")),
    ],
)  # fmt: skip
def test_requests_unchecked_by_4_9_4_need_permission(call, code, fields, answer):
    assert call(code, fields) == answer
    assert call(code, fields, who=MORE) == SERVED


def test_heartbeats_need_permission_for_their_groups_and_topics(call):
    assert call(34, {}, heartbeat("groupC", "topicC")) == SERVED
    assert call(34, {}, heartbeat("groupA", "topicC")) == denied("group:groupA")
    assert call(34, {}, heartbeat("groupC", "topicA")) == denied("topic:topicA")
    assert call(34, {}, b"xx")[0] == ResponseCode.SYSTEM_ERROR


def test_batch_acks_need_permission_for_their_groups_and_topics(call):
    ack = {"c": "groupC", "t": "topicD", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": ""}
    assert call(200_151, {}, json.dumps({"acks": [ack]}).encode()) == denied("topic:topicD")
    assert call(200_151, {}, json.dumps({"acks": [ack | {"t": "topicC"}]}).encode()) == SERVED


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_locks_need_permission_for_the_group(call, code):
    queues = {"clientId": "c", "mqSet": [{"topic": "topicC", "brokerName": "b", "queueId": 0}]}
    assert call(code, {}, json.dumps(queues | {"consumerGroup": "groupC"}).encode()) == SERVED
    assert call(code, {}, json.dumps(queues | {"consumerGroup": "groupA"}).encode()) == denied("group:groupA")
    assert call(code, {}, b"xx")[0] == ResponseCode.SYSTEM_ERROR


HALF = {"sys_flag": TRANSACTION_PREPARED_TYPE, "properties": "TRAN_MSG\x01true\x02PGROUP\x01p"}


@pytest.mark.parametrize(
    ("sent", "sub", "pub"),
    [
        ({}, SERVED, denied("topic:topicC")),
        ({"topic": "topicD"}, denied("topic:topicD"), SERVED),
        ({"topic": "topicD", "properties": "REAL_TOPIC\x01topicB"}, denied("topic:topicD"), SERVED),  # from the sender
        ({"topic": "topicD", "properties": "DELAY\x011"}, denied("topic:topicD"), SERVED),
        ({"topic": "topicD", "properties": "TIMER_DELAY_SEC\x019"}, denied("topic:topicD"), SERVED),
        ({"topic": "topicD", **HALF}, denied("topic:topicD"), SERVED),
        (HALF, SERVED, denied("topic:topicC")),
        ({"topic": "%RETRY%groupC", "producer_group": "groupC"}, SERVED, denied("group:groupC")),
        ({"topic": "%RETRY%groupA", "producer_group": "groupA"}, denied("group:groupA"), denied("group:groupA")),
    ],
)
async def test_request_by_message_offset_needs_permission_for_its_topic(tmp_path, sent, sub, pub):
    path = DataPath()
    message_id = path.send(**{"topic": "topicC", **sent}).ext["msgId"]
    call, (_, offset) = caller(tmp_path, path.services), decode_message_id(message_id)
    assert call(33, {"offset": offset}) == sub
    assert call(36, {"offset": offset, "group": "groupC", "delayLevel": 0}) == sub
    assert call(309, {"consumerGroup": "groupC", "clientId": "c", "msgId": message_id}) == sub
    end = {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": offset, "commitOrRollback": 8, "msgId": "u"}
    assert call(37, end) == pub
    assert call(323, {"msgId": message_id}) == pub
    for code, fields in ((33, {"offset": offset}), (37, end), (323, {"msgId": message_id})):
        assert call(code, fields, who=MORE) == call(code, fields, who=ADMIN) == SERVED
        assert call(code, fields, who=None) == (1, "No accessKey is configured")


async def test_group_may_send_back_messages_popped_from_its_retry_topics(tmp_path):
    path = DataPath()
    call = caller(tmp_path, path.services)
    for topic, answer in (("%RETRY%groupC_topicC", SERVED), ("%RETRY%groupC_topicD", denied("topic:topicD"))):
        message_id = path.send(topic=topic).ext["msgId"]
        assert call(36, {"offset": decode_message_id(message_id)[1], "group": "groupC", "delayLevel": 0}) == answer
        assert call(309, {"consumerGroup": "groupC", "clientId": "c", "msgId": message_id}) == answer


def test_offset_without_message_is_left_to_the_handler(call):
    assert call(33, {"offset": 5}) == call(33, {"offset": -1}) == SERVED
    assert call(309, {"consumerGroup": "groupC", "clientId": "c", "msgId": "odd"}) == SERVED
    assert call(309, {"consumerGroup": "groupA", "clientId": "c", "msgId": "odd"}) == denied("group:groupA")


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_admin_codes_need_an_admin(call, code):
    refused = 1, f"Need admin permission for request code={code}, but accessKey=moreKeys is not"
    fields = {"topic": "t", "defaultTopic": "d", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "groupName": "g",
              "topicFilterType": "SINGLE_TAG", "accessKey": "a", "globalWhiteAddrs": "", "physicalOffset": 0,
              "ms": 1, "producerGroup": "p", "statsName": "n", "statsKey": "k", "isOrder": "false"}  # fmt: skip
    assert call(code, fields, who=MORE) == refused
    assert call(code, fields, who=ADMIN) == SERVED


def test_a_refused_oneway_is_not_answered(call):
    assert call(RequestCode.SEND_MESSAGE_V2, v2("topicA"), flag=FLAG_ONEWAY) is None


def test_each_routed_code_is_in_exactly_one_part_of_the_permission_table():
    parts = [*RESOURCES, *ADMIN_CODES, *SIGNED_CODES]
    assert sorted(parts) == sorted(ROUTES)


def test_security_page_names_each_code_that_is_not_for_admins_only():
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    _, _, rest = page.partition("Permissions required by each request.")
    table, end, _ = rest.partition("Some topics contain messages of other topics")
    assert end
    named = {int(code) for code in re.findall(r"\b\d{2,6}\b", table)}
    assert {*RESOURCES, *SIGNED_CODES} <= named <= {*RESOURCES, *SIGNED_CODES, *ADMIN_CODES}


def test_code_missing_in_the_permission_table_needs_an_admin(tmp_path):
    manager = PlainPermissionManager(acl_home(tmp_path, more=MORE_ACL), VirtualClock(0))
    manager.load()
    new = Route(99_999, NoHeader, lambda services, request: Response())
    handler = guard({new.code: new}, PlainAccessValidator(manager))[new.code].handler

    def ask(who):
        fields = {ACCESS_KEY: who[0]}
        fields[SIGNATURE] = Signer(who[1].encode()).sign(fields, b"").decode()
        request = SimpleNamespace(code=new.code, ext=lambda: fields, body=b"", channel=SimpleNamespace(remote_host="::1"))
        return handler(NO_MESSAGES, request)

    assert ask(ADMIN).code == 0
    with pytest.raises(RemotingError, match="Need admin permission for request code=99999"):
        ask(MORE)


# --- system topics, retry topics, multi-dispatch and queries --------------------------------------------------------

SYSTEM_TOPICS = [
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_REVIVE_LOG_DefaultCluster", "DefaultCluster_REPLY_TOPIC",
]  # fmt: skip


def reads_of(topic, group="groupC"):
    """Return every request that shows messages of `topic` or their offsets."""
    queue = {"topic": topic, "queueId": 0}
    pop = {**queue, "consumerGroup": group, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0}
    return [
        (RequestCode.PULL_MESSAGE, pull(topic, group)),
        (RequestCode.LITE_PULL_MESSAGE, pull(topic, group)),
        (RequestCode.POP_MESSAGE, {**pop, "bornTime": 0, "initMode": 0}),
        (RequestCode.PEEK_MESSAGE, {**queue, "consumerGroup": group, "maxMsgNums": 1}),
        (RequestCode.NOTIFICATION, {**pop, "bornTime": 0}),
        (RequestCode.POLLING_INFO, {**queue, "consumerGroup": group}),
        (RequestCode.QUERY_MESSAGE, {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}),
        (RequestCode.QUERY_CONSUME_QUEUE, {**queue, "index": 0, "count": 9}),
        (RequestCode.QUERY_CONSUMER_OFFSET, {**queue, "consumerGroup": group}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": 0}),
        (RequestCode.GET_MAX_OFFSET, queue),
        (RequestCode.GET_MIN_OFFSET, queue),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group}),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": topic, "group": group}),
    ]


@pytest.mark.parametrize("topic", SYSTEM_TOPICS)
async def test_only_admins_may_read_system_topics(tmp_path, topic):
    call = caller(tmp_path, DataPath().services)
    for code, fields in reads_of(topic):
        assert (code, call(code, fields, who=MORE)) == (code, denied(f"topic:{topic}"))
        assert (code, call(code, fields, who=ADMIN)) == (code, SERVED)


async def test_reading_needs_permission_for_the_topic(tmp_path):
    call = caller(tmp_path, DataPath().services)
    for code, fields in reads_of("topicC"):
        assert (code, call(code, fields)) == (code, SERVED)
    for code, fields in reads_of("topicA"):
        assert (code, call(code, fields)) == (code, denied("topic:topicA"))
    for code, fields in reads_of("%DLQ%groupA"):
        assert (code, call(code, fields, who=MORE)) == (code, SERVED)


async def test_pop_retry_topic_also_needs_permission_for_its_topic(tmp_path):
    """Also for a group whose name is the part of the topic after %RETRY%."""
    path = DataPath()
    path.services.topics.table["topicA"] = path.services.topics.table["TBW102"]
    path.services.groups.find("groupB")
    call = caller(tmp_path, path.services)
    for name in ("groupB_topicA", "groupB+topicA"):
        for code, fields in reads_of("%RETRY%" + name, name):
            assert (code, call(code, fields)) == (code, denied("topic:topicA"))
    for code, fields in reads_of("%RETRY%other_topicA", "other_topicA"):
        assert (code, call(code, fields)) == (code, SERVED), "there is no group `other`"


@pytest.mark.parametrize(
    ("properties", "answer"),
    [
        ("INNER_MULTI_DISPATCH\x01topicB,topicA", denied("topic:topicA")),
        ("INNER_MULTI_DISPATCH\x01topicB,%LMQ%light", SERVED),
        ("INNER_MULTI_DISPATCH\x01%RETRY%groupA", denied("group:groupA")),
    ],
)
def test_multi_dispatch_needs_permission_for_each_topic(tmp_path, properties, answer):
    config = SimpleNamespace(enable_multi_dispatch=True)
    call = caller(tmp_path, SimpleNamespace(store=SimpleNamespace(config=config)))
    assert call(RequestCode.SEND_MESSAGE_V2, v2("topicD", "groupC") | {"i": properties}) == answer


async def test_key_query_returns_no_message_of_a_topic_with_equal_hash():
    path = DataPath()
    for topic in ("Aa", "BB"):  # "Aa".hashCode() == "BB".hashCode()
        path.send("KEYS\x01k", topic=topic)
    path.turn()
    header = QueryMessageRequestHeader("BB", "k", 9, 0, 1 << 60)
    answer = path.call(RequestCode.QUERY_MESSAGE, header)
    assert [record.topic for record in records(answer.body)] == [b"BB"]


GROUP_CODES = [
    (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "groupA", "clientId": "c"}),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "groupA"}),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "groupA"}),
    (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "groupA"}),
    (RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "groupA"}),
    (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "groupA", "topic": "topicC"}),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, {"group": "groupA", "topic": "topicC"}),
]


@pytest.mark.parametrize(("code", "fields"), GROUP_CODES)
async def test_queries_about_a_group_need_permission_for_it(tmp_path, code, fields):
    call = caller(tmp_path, DataPath().services)
    assert call(code, fields) == denied("group:groupA")
    mine = {name: "groupC" if value == "groupA" else value for name, value in fields.items()}
    assert call(code, mine) == SERVED


# --- the broker -----------------------------------------------------------------------------------------------------


async def test_rules_changed_by_requests_take_effect_at_once(tmp_path):
    home = acl_home(tmp_path, "globalWhiteRemoteAddresses: [127.0.0.1]\n" + MORE_ACL)
    async with running_broker(acl_enable=True, rocketmq_home=str(home)) as broker, connected() as client:
        header = CreateAccessConfigRequestHeader("longenough", "12345678", topic_perms="a=PUB,b=SUB", admin=True)
        assert (await ask(client, broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)).code == 0
        config = json.loads((await ask(client, broker, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
        assert config == {
            "globalWhiteAddrs": ["127.0.0.1"],
            "plainAccessConfigs": [
                {"accessKey": "moreKeys", "admin": False, "defaultGroupPerm": "PUB|SUB", "defaultTopicPerm": "PUB|SUB",
                 "secretKey": "moreSecret"},
                {"accessKey": "longenough", "admin": True, "secretKey": "12345678", "topicPerms": ["a=PUB", "b=SUB"]},
            ],
        }  # fmt: skip
        version = (await ask(client, broker, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)).ext or {}
        assert json.loads(version["version"])["counter"] == 1
        assert json.loads(version["allAclFileVersion"]).keys() == {str(home / "conf" / "plain_acl.yml")}
        deleted = [
            (await ask(client, broker, RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequestHeader("longenough"))).code
            for _ in range(2)
        ]
        assert deleted == [0, ResponseCode.DELETE_ACL_CONFIG_FAILED]
        header = CreateAccessConfigRequestHeader("longenough", "short")
        refused = await ask(client, broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
        assert refused.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        header = UpdateGlobalWhiteAddrsConfigRequestHeader("10.0.0.1,10.0.0.{1,2}")
        assert (await ask(client, broker, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)).code == 0
        answer = await ask(client, broker, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert answer.code == 1 and "No accessKey is configured" in (answer.remark or "")
        assert broker.services.permissions is not None
        assert broker.services.permissions.global_white_addresses() == ["10.0.0.1", "10.0.0.{1,2}"]


async def test_acl_requests_are_refused_when_acl_is_off():
    async with running_broker() as broker, connected() as client:
        for code in range(50, 55):
            header = CreateAccessConfigRequestHeader("longenough", "12345678") if code == 50 else None
            header = DeleteAccessConfigRequestHeader("longenough") if code == 51 else header
            header = UpdateGlobalWhiteAddrsConfigRequestHeader("127.0.0.1") if code == 53 else header
            answer = await ask(client, broker, code, header)
            assert answer.code == {50: 209, 51: 210, 53: 211}.get(code, 1)
            assert "aclEnable=false" in (answer.remark or "")


async def test_broker_does_not_start_with_unreadable_rules(tmp_path):
    with pytest.raises(StartError, match="rocketmqHome"):
        async with running_broker(acl_enable=True, rocketmq_home=None):
            pass
    with pytest.raises(StartError, match="accessKey=short"):
        home = acl_home(tmp_path, "accounts: [{accessKey: short}]\n")
        async with running_broker(acl_enable=True, rocketmq_home=str(home)):
            pass
