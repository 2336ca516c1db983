"""Request handlers of the name server."""

import json
import struct
import zlib

import pytest

from pocketmq.namesrv import register_body
from pocketmq.namesrv.handlers import ADMIN_CODES, OPEN_CODES, REGISTER_CODES, ROUTES
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, encode_body
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.headers.route import (
    BrokerHeartbeatRequestHeader,
    BrokerIdentityRequestHeader,
    BrokerMemberGroupRequestHeader,
    KVConfigKeyRequestHeader,
    KVNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader, GetTopicsByClusterRequestHeader
from tests.golden import linear

VERSION = DataVersion(3, 1_700_000_000_000)
WRAPPER = TopicConfigSerializeWrapper({"T": TopicConfig("T", 4, 8, 6), "主题": TopicConfig("主题", 1, 1, 2)}, VERSION)
BODY = encode_body(RegisterBrokerBody(WRAPPER))


def header(body=b"", **fields):
    given = {
        "broker_name": "a",
        "broker_addr": "10.0.0.1:1",
        "cluster_name": "c",
        "ha_server_addr": "10.0.0.1:2",
        "broker_id": 0,
    }
    crc = zlib.crc32(body) & 0x7FFFFFFF if body else 0
    return RegisterBrokerRequestHeader(**(given | {"body_crc32": crc} | fields))


def register(namesrv, body=BODY, connection=None, version=401, **fields):
    return namesrv.ask(
        Code.REGISTER_BROKER, header(body, **fields), body, version=version, connection=connection or namesrv.connection()
    )


def compressed(wrapper, tail=b"", count=None):
    def piece(data):
        return struct.pack(">i", len(data)) + data

    texts = [
        f"{t.topic_name} {t.read_queue_nums} {t.write_queue_nums} {t.perm} SINGLE_TAG".encode()
        for t in wrapper.topic_config_table.values()
    ]
    plain = piece(encode_body(wrapper.data_version)) + struct.pack(">i", len(texts) if count is None else count)
    return zlib.compress(plain + b"".join(map(piece, texts)) + piece(b"[]") + tail)


@pytest.mark.parametrize(
    ("body", "fields", "version"),
    [
        (BODY, {}, 401),
        (BODY.replace(b'"filterServerList":[]', b'"filterServerList":null'), {}, 401),
        (encode_body(WRAPPER), {}, 36),
        (compressed(WRAPPER), {"compressed": True}, 401),
        (compressed(WRAPPER, b"\0\0\0\0"), {"compressed": True}, 413),
        (BODY, {"body_crc32": 0}, 401),
    ],
    ids=["json", "nulls", "before 3.0.11", "compressed", "compressed 5.x", "no crc"],
)
def test_every_form_of_registration_registers_the_topics(namesrv, body, fields, version):
    answer = register(namesrv, body, version=version, **fields)
    assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
    assert namesrv.routes.topics() == ["T", "主题"]
    assert namesrv.routes.route("T").queue_datas[0].write_queue_nums == 8
    assert namesrv.routes.data_version("10.0.0.1:1") == VERSION


def test_registration_without_a_body_registers_no_topics(namesrv):
    assert register(namesrv, b"").code == 0
    assert list(namesrv.routes.brokers()) == ["a"] and namesrv.routes.topics() == []


@pytest.mark.parametrize(
    ("body", "fields", "said"),
    [
        (BODY, {"body_crc32": 1}, "crc32 not match"),
        (b"{", {}, "cannot be read"),
        (b"[]", {}, "cannot be read"),
        (b"\xff\xff", {}, "cannot be read"),
        (BODY, {"compressed": True}, "cannot be read"),
        (compressed(WRAPPER, count=-1)[:-3], {"compressed": True}, "cannot be read"),
        (compressed(WRAPPER, count=3), {"compressed": True}, "cannot be read"),
        (zlib.compress(struct.pack(">i", -5)), {"compressed": True}, "cannot be read"),
    ],
)
def test_invalid_registration_changes_nothing(namesrv, body, fields, said):
    answer = register(namesrv, body, **fields)
    assert answer.code == 1 and said in answer.remark
    assert namesrv.routes.brokers() == {}


def many_topics(names, padding=""):
    """Return a compressed registration body; `padding` contains the attributes of each topic."""
    texts = [f"{name} 8 8 6 SINGLE_TAG {padding}".encode() for name in names]
    pieces = [struct.pack(">i", len(text)) + text for text in (encode_body(VERSION), *texts, b"[]")]
    return zlib.compress(b"".join([pieces[0], struct.pack(">i", len(texts)), *pieces[1:]]))


@pytest.mark.parametrize("limit", [register_body.INFLATED_SIZE_MAX, 100_000])
def test_zip_bomb_is_refused(namesrv, monkeypatch, limit):
    monkeypatch.setattr(register_body, "INFLATED_SIZE_MAX", limit)
    attributes = '{"+a":"' + "x" * 50_000 + '"}'
    body = many_topics([f"T{number}" for number in range(600)], attributes)
    answer = register(namesrv, body, compressed=True)
    told = min(limit, 64 * 1024 + 100 * len(body))
    assert answer.code == 1 and f"inflates to more than {told} bytes" in answer.remark


@pytest.mark.parametrize(
    "start",
    [b"\0" * 64, b"\0\0\0\2{}\x7f\xff\xff\xff", b"\0\0\0\2{}\0\0\0\1\x7f\xff\xff\xff", b"\x7f\xff\xff\xff"],
    ids=["nothing", "topics without end", "a topic without end", "a version without end"],
)
def test_compressed_body_with_an_invalid_start_is_not_inflated_further(namesrv, start):
    def spent(size):
        body = zlib.compress(start + bytes(size))
        assert register(namesrv, body, compressed=True).code == 1
        return linear.cpu_s(lambda: [register(namesrv, body, compressed=True) for _ in range(5)])

    spent(1_000)
    assert spent(30_000_000) < 10 * spent(1_000) + 0.03


def test_compressed_body_with_more_topics_than_bytes_is_refused(namesrv):
    answer = register(namesrv, many_topics(["T"] * 40_000), compressed=True)
    assert answer.code == 1 and "bytes cannot contain 40000 topics" in answer.remark


@pytest.mark.parametrize("padding", ["", '{"+message.type":"NORMAL","+retention":"' + "y" * 100 + '"}'])
def test_largest_registration_of_similar_topics_is_accepted(namesrv, padding):
    names = [f"T{number}" for number in range(50_000)]
    assert register(namesrv, many_topics(names, padding), compressed=True).remark is None
    assert len(namesrv.routes.topics()) == 50_000


def test_compressed_registration_of_forty_thousand_topics_is_accepted(namesrv):
    names = [f"topic-{number:05d}" for number in range(40_000)]
    wrapper = TopicConfigSerializeWrapper({name: TopicConfig(name, 8, 8, 6) for name in names}, WRAPPER.data_version)
    assert register(namesrv, compressed(wrapper), compressed=True).code == 0


def test_broker_is_removed_when_its_connection_closes(namesrv):
    connection = namesrv.connection()
    for _ in range(3):
        register(namesrv, connection=connection)
    assert len(connection.callbacks) == 1
    connection.close()
    assert namesrv.routes.brokers() == {}


def test_heartbeat_timeout_of_the_broker_is_used(namesrv):
    register(namesrv, heartbeat_timeout_millis=500)
    namesrv.clock.now += 0.6
    assert len(namesrv.routes.expire()) == 1


def test_slave_gets_its_master_and_the_order_config(namesrv):
    namesrv.services.kv_config.put(ORDER_TOPIC_CONFIG, "T", "a:4")
    register(namesrv)
    answer = register(namesrv, broker_id=1, broker_addr="10.0.0.2:1")
    assert answer.ext == {"haServerAddr": "10.0.0.1:2", "masterAddr": "10.0.0.1:1"}
    assert json.loads(answer.body) == {"table": {"T": "a:4"}}


def test_data_version_query_tells_whether_topics_changed(namesrv):
    def query(version):
        identity = BrokerIdentityRequestHeader("a", "10.0.0.1:1", "c", 0)
        answer = namesrv.ask(Code.QUERY_DATA_VERSION, identity, encode_body(version))
        return answer.ext["changed"], answer.body and json.loads(answer.body)

    assert query(VERSION) == ("true", b"")
    register(namesrv)
    namesrv.clock.now += 100
    known = {"counter": 3, "timestamp": 1_700_000_000_000}
    assert query(VERSION) == ("false", known)
    assert query(DataVersion(4, 1)) == ("true", known)
    namesrv.clock.now += 100
    assert namesrv.routes.expire() == []


def test_unregistered_broker_is_removed_with_its_topics(namesrv):
    register(namesrv)
    assert namesrv.ask(Code.UNREGISTER_BROKER, BrokerIdentityRequestHeader("a", "10.0.0.1:1", "c", 0)).code == 0
    assert namesrv.routes.topics() == []


ROUTE = {
    "brokerDatas": [{"brokerAddrs": {"0": "10.0.0.1:1"}, "brokerName": "a", "cluster": "c"}],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "a", "perm": 2, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}],
}


@pytest.mark.parametrize(("version", "accepts", "is_strict"), [(401, False, True), (399, False, False), (317, True, True)])
def test_route_is_strict_json_for_clients_that_accept_it(namesrv, version, accepts, is_strict):
    register(namesrv)
    body = namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("主题", accepts), version=version).body
    assert fastjson.loads(body) == ROUTE
    assert (b'{"0":' in body) == is_strict and (b"{0:" in body) != is_strict


def test_a_strict_route_is_ascii(namesrv):
    register(namesrv, cluster_name="集群")
    body = namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")).body
    assert body.isascii() and json.loads(body)["brokerDatas"][0]["cluster"] == "集群"


@pytest.mark.parametrize("code", [Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO])
def test_clients_after_4_9_4_get_enable_acting_master(namesrv, code):
    """Rust clients cannot decode a route without this field."""
    register(namesrv)
    header = GetRouteInfoRequestHeader("T") if code == Code.GET_ROUTEINFO_BY_TOPIC else None
    for version, is_told in (399, False), (401, False), (403, True), (474, True):
        body = namesrv.ask(code, header, version=version).body
        assert (b'"cluster":"c","enableActingMaster":false}' in body) == is_told
        assert is_told or b"enableActingMaster" not in body


def test_route_of_an_unknown_topic_is_refused(namesrv):
    answer = namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("X"))
    assert answer.code == 17
    assert answer.remark.startswith("No topic route info in name server for the topic: X\nSee ")


def test_order_config_is_in_the_route_if_enabled(namesrv):
    register(namesrv)
    namesrv.services.kv_config.put(ORDER_TOPIC_CONFIG, "T", "a:4")
    ask = lambda: json.loads(namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")).body)  # noqa: E731
    assert "orderTopicConf" not in ask()
    assert namesrv.ask(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n").code == 0
    assert ask()["orderTopicConf"] == "a:4"


def test_cluster_info_and_system_topics(namesrv):
    register(namesrv)
    register(namesrv, broker_id=1, broker_addr="10.0.0.2:1")
    body = namesrv.ask(Code.GET_BROKER_CLUSTER_INFO).body
    assert body == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:1",1:"10.0.0.2:1"},"brokerName":"a","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["a"]}}'
    )
    system = json.loads(namesrv.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert system == {"brokerAddr": "10.0.0.1:1", "topicList": ["c", "a"]}


def test_topic_lists(namesrv):
    wrapper = TopicConfigSerializeWrapper(
        {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in {"n": 0, "u": 1, "s": 2, "us": 3}.items()}
    )
    register(namesrv, encode_body(RegisterBrokerBody(wrapper)))

    def listed(code, header=None):
        return json.loads(namesrv.ask(code, header).body)["topicList"]

    assert listed(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["n", "s", "u", "us"]
    assert listed(Code.GET_UNIT_TOPIC_LIST) == ["u", "us"]
    assert listed(Code.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["s", "us"]
    assert listed(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["s"]
    assert listed(Code.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("c")) == ["n", "s", "u", "us"]
    assert listed(Code.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("x")) == []


def test_key_value_config(namesrv):
    get = lambda key: namesrv.ask(Code.GET_KV_CONFIG, KVConfigKeyRequestHeader("ns", key))  # noqa: E731
    table = lambda: namesrv.ask(Code.GET_KVLIST_BY_NAMESPACE, KVNamespaceRequestHeader("ns"))  # noqa: E731
    assert (table().code, table().remark) == (22, "No config item, Namespace: ns")
    assert (get("k").code, get("k").remark) == (22, "No config item, Namespace: ns Key: k")
    assert namesrv.ask(Code.PUT_KV_CONFIG, PutKVConfigRequestHeader("ns", "k", "值")).code == 0
    assert get("k").ext == {"value": "值"}
    assert json.loads(table().body) == {"table": {"k": "值"}}
    for _ in range(2):
        assert namesrv.ask(Code.DELETE_KV_CONFIG, KVConfigKeyRequestHeader("ns", "k")).code == 0
    assert get("k").code == 22


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"orderMessageEnable=true\nkvConfigPath=/etc/passwd\n", 16, "kvConfigPath cannot be changed while running"),
        (b"orderMessageEnable=true\nlistenPort=1", 16, "listenPort"),
        (b"nonsense=1\norderMessageEnable=true", 16, "unknown key nonsense"),
        (b"orderMessageEnable=yes", 1, "orderMessageEnable=yes: expected true or false"),
        (
            b"serverChannelMaxIdleTimeSeconds=0",
            1,
            "serverChannelMaxIdleTimeSeconds=0: expected a whole number from 60 to 86400",
        ),
        (
            b"serverChannelMaxIdleTimeSeconds=1",
            1,
            "serverChannelMaxIdleTimeSeconds=1: expected a whole number from 60 to 86400",
        ),
        (b"serverChannelMaxIdleTimeSeconds=59", 1, "expected a whole number from 60"),
        (b"serverChannelMaxIdleTimeSeconds=99999999", 1, "expected a whole number from 60 to 86400"),
        (b"adminAllow=10.0.0.1", 16, "adminAllow cannot be changed while running"),
        (b"registerBrokersMax=1", 16, "registerBrokersMax cannot be changed while running"),
        (b"a=\\u12", 1, "line 1"),
    ],
)
def test_invalid_config_update_is_refused_as_a_whole_naming_the_key(namesrv, body, code, said):
    answer = namesrv.ask(Code.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == code and said in answer.remark
    assert not namesrv.services.config.order_message_enable and namesrv.changed == []


def test_the_config_is_shown(namesrv):
    lines = namesrv.ask(Code.GET_NAMESRV_CONFIG).body.decode().splitlines()
    assert {"listenPort=9876", "orderMessageEnable=false"} <= set(lines)


# --- permissions and limits -----------------------------------------------------------------------------------------


def test_each_code_belongs_to_clients_brokers_or_tools():
    assert not OPEN_CODES & REGISTER_CODES
    assert set(ROUTES) == OPEN_CODES | REGISTER_CODES | ADMIN_CODES
    assert {Code.PUT_KV_CONFIG, Code.WIPE_WRITE_PERM_OF_BROKER, Code.UPDATE_NAMESRV_CONFIG} <= ADMIN_CODES


def test_second_living_broker_is_refused_and_logged_once(namesrv, caplog):
    register(namesrv, connection=namesrv.connection())
    for _ in range(5):
        answer = register(namesrv, connection=namesrv.connection("10.0.0.9"), broker_addr="10.0.0.9:1")
        assert answer.code == 2002
        assert "two living brokers: c/a/0 at 10.0.0.9:1 registers, but c/a/0 at 10.0.0.1:1 registered" in answer.remark
    assert caplog.text.count("two living brokers") == 1
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_broker_is_unregistered_from_its_own_host_only(namesrv):
    register(namesrv)
    identity = BrokerIdentityRequestHeader("a", "10.0.0.1:1", "c", 0)
    answer = namesrv.ask(Code.UNREGISTER_BROKER, identity, connection=namesrv.connection("10.0.0.9"))
    assert answer.code == 1 and "is connected from 10.0.0.1, only that host may unregister it" in answer.remark
    assert namesrv.routes.topics() == ["T", "主题"]


def test_registration_beyond_a_limit_is_refused_naming_the_config_key(namesrv):
    namesrv.services.config.register_topics_max = namesrv.routes._config.register_topics_max = 1
    answer = register(namesrv)
    assert (answer.code, answer.remark) == (1, "2 topics: registerTopicsMax=1 is the limit")
    assert namesrv.routes.brokers() == {}


def test_requested_heartbeat_timeout_is_limited(namesrv):
    register(namesrv, heartbeat_timeout_millis=1 << 62)
    namesrv.clock.now += 86_401
    assert len(namesrv.routes.expire()) == 1


def test_heartbeats_keep_a_broker_in_its_member_group(namesrv):
    register(namesrv, heartbeat_timeout_millis=10_000, enable_acting_master=True)
    register(namesrv, broker_addr="10.0.0.2:1", broker_id=1, heartbeat_timeout_millis=10_000, enable_acting_master=True)
    for _ in range(3):
        namesrv.clock.now += 6
        assert namesrv.ask(Code.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader("c", "10.0.0.1:1", "a")).code == 0
        namesrv.routes.expire()
    assert namesrv.ask(Code.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader("c", "10.0.0.9:1")).code == 0
    answer = namesrv.ask(Code.GET_BROKER_MEMBER_GROUP, BrokerMemberGroupRequestHeader("c", "a"))
    assert answer.body == b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:1"},"brokerName":"a","cluster":"c"}}'
    unknown = namesrv.ask(Code.GET_BROKER_MEMBER_GROUP, BrokerMemberGroupRequestHeader("c", "b"))
    assert fastjson.loads(unknown.body)["brokerMemberGroup"] == {"brokerAddrs": {}, "brokerName": "b", "cluster": "c"}


def test_route_contains_enable_acting_master_of_the_broker(namesrv):
    register(namesrv, enable_acting_master=True)
    answer = namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"), version=500)
    assert json.loads(answer.body)["brokerDatas"][0]["enableActingMaster"] is True
