"""Pulls of consumers with SQL92 subscriptions."""

import pytest

from pocketmq.broker.filter import consumer_filter, expression_filter
from pocketmq.remoting.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    TopicConfig,
    encode_body,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.consumer import UnregisterClientRequestHeader
from pocketmq.store.format.config_document import SEAL_KEY, check_seal, decode_document
from tests.broker.data_path import TOPIC, DataPath, pull_header, records, send_header, until

SQL = {"expression_type": "SQL92"}


def path_with(**broker):
    return DataPath({"enable_property_filter": True} | broker)


@pytest.fixture(autouse=True)
def bitmaps_have_time(monkeypatch):
    """Otherwise some are left out on a busy machine."""
    monkeypatch.setattr(consumer_filter, "BUDGET_S", 60.0)


@pytest.fixture
async def path():
    path = path_with()
    send(path, range(6))
    return path


def send(path, prices, **fields):
    for price in prices:
        path.send(f"price\x01{price}\x02TAGS\x01A", b"%d" % price, **fields)


def heartbeat(path, expression="price > 2", version=7, topic=TOPIC, kind="SQL92", group="cg", more=()):
    told = SubscriptionData(topic, expression, kind, sub_version=version)
    data = ConsumerData(group, subscription_data_set=[told, *more])
    path.call(RequestCode.HEART_BEAT, None, encode_body(HeartbeatData("c", [], [data])))


def leave(path, group="cg"):
    path.call(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", None, group))


def bodies(answer):
    return [record.body for record in records(answer.body)]


async def test_pull_with_its_own_expression_is_filtered(path):
    answer = path.pull(subscription="price BETWEEN 2 AND 3", **SQL)
    assert bodies(answer) == [b"2", b"3"]
    assert answer.ext["nextBeginOffset"] == "6"


async def test_pull_skips_messages_that_do_not_match(path):
    path.send("price\x01cheap", b"no number")
    for expression in ("price > 100", "gone > 1", "NOT gone = 'x'", "price <> 'x' AND TAGS > 1"):
        answer = path.pull(subscription=expression, **SQL)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "7"), expression


async def test_pull_returns_at_most_the_requested_number(path):
    answer = path.pull(subscription="price <> 1", max_msg_nums=3, **SQL)
    assert bodies(answer) == [b"0", b"2", b"3"]
    assert answer.ext["nextBeginOffset"] == "4"


@pytest.mark.parametrize("expression", ["price >", "", None])
async def test_pull_with_an_invalid_expression_is_refused(path, expression):
    answer = path.pull(subscription=expression, **SQL)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark.startswith("parse the consumer's subscription failed: ")


async def test_unknown_expression_type_is_refused(path):
    answer = path.pull(subscription="price > 1", expression_type="SQL99")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "SQL99" in answer.remark


async def test_expression_of_the_heartbeat_is_used(path):
    heartbeat(path)
    assert bodies(path.pull(sys_flag=0, sub_version=7)) == [b"3", b"4", b"5"]
    heartbeat(path, "price < 2", version=8)
    assert bodies(path.pull(sys_flag=0, sub_version=8)) == [b"0", b"1"]
    heartbeat(path, "price > 2", version=7)  # an older heartbeat that arrives late
    assert bodies(path.pull(sys_flag=0, sub_version=8)) == [b"0", b"1"]
    assert path.pull(sys_flag=0, sub_version=9).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_invalid_expression_of_a_heartbeat_refuses_its_pulls(path):
    heartbeat(path, "price >")
    answer = path.pull(sys_flag=0, sub_version=7)
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST and "expression may be wrong" in answer.remark
    heartbeat(path, "price > 4", version=8)
    assert bodies(path.pull(sys_flag=0, sub_version=8)) == [b"5"]
    heartbeat(path, "price <", version=9)
    assert path.pull(sys_flag=0, sub_version=9).code == ResponseCode.FILTER_DATA_NOT_EXIST


async def test_pull_newer_than_the_registered_filter_is_refused(path):
    heartbeat(path)
    path.services.clients.find_subscription("cg", TOPIC).sub_version = 8
    assert path.pull(sys_flag=0, sub_version=8).code == ResponseCode.FILTER_DATA_NOT_LATEST


async def test_sql_is_off_by_default_and_the_refusal_names_the_key():
    path = DataPath()
    heartbeat(path)
    answers = [path.pull(subscription="a > 1", **SQL), path.pull(sys_flag=0), check_config(path, "a > 1")]
    for answer in answers:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark.startswith("The broker does not support consumer to filter message by SQL92")
        assert "enablePropertyFilter" in answer.remark
    assert path.services.filters.table == {}


def check_config(path, expression, kind="SQL92"):
    body = encode_body(CheckClientRequestBody("c", "cg", None, SubscriptionData(TOPIC, expression, kind)))
    return path.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)


async def test_check_client_config_validates_expressions(path):
    assert check_config(path, "a IS NOT NULL").code == 0
    answer = check_config(path, "a IS")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "ends too early" in answer.remark
    assert check_config(path, "a", kind="JQ").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# --- held pulls --------------------------------------------------------------------------------------------------------


async def test_held_pull_is_woken_only_by_a_matching_message(path):
    path.ask(RequestCode.PULL_MESSAGE, pull_header(6, sys_flag=6, subscription="price > 100", **SQL))
    send(path, [7], queue_id=1)
    send(path, [8])
    assert path.channel.take() == [] and path.services.holds.count == 1
    path.ask(RequestCode.SEND_MESSAGE_V2, *send_request(9))
    path.ask(RequestCode.SEND_MESSAGE_V2, *send_request(101))
    path.channel.take()
    path.turn()
    (answer,) = path.channel.take()
    assert bodies(answer) == [b"101"] and answer.ext["nextBeginOffset"] == "9"


def send_request(price):
    return send_header(f"price\x01{price}"), b"%d" % price


async def test_held_pull_is_answered_with_the_next_offset_after_unwanted_messages(path):
    pull = pull_header(6, sys_flag=6, suspend_timeout_millis=20, subscription="price > 100", **SQL)
    path.ask(RequestCode.PULL_MESSAGE, pull)
    send(path, [7])
    path.clock.seconds += 1
    await until(lambda: path.channel.out)
    (answer,) = path.channel.take()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "7")


# --- retry topics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("supported", "found"), [(False, [b"1", b"5", b"other"]), (True, [b"5", b"other"])])
async def test_retry_messages_are_filtered_by_the_current_expression(supported, found):
    """filterSupportRetry: a changed expression also filters the messages of the retry topic."""
    path = path_with(filter_support_retry=supported)
    retry = SubscriptionData("%RETRY%cg", "*", sub_version=7)
    heartbeat(path, more=[retry])
    path.services.topics.update(TopicConfig("%RETRY%cg", 1, 1))
    for price, topic in ((1, TOPIC), (5, TOPIC), ("other", "T2")):
        path.send(f"price\x01{price}\x02RETRY_TOPIC\x01{topic}", f"{price}".encode(), topic="%RETRY%cg")
    assert bodies(path.pull(topic="%RETRY%cg", sys_flag=0, sub_version=7)) == found


# --- bitmaps -----------------------------------------------------------------------------------------------------------


def ext_units(path):
    row, queue = path.store.queues.ext.rows[TOPIC, 0], path.store.queue(TOPIC, 0)
    return [row.get(queue.unit_at(number)[2]) for number in range(queue.max_offset)]


async def test_bitmaps_mark_subscriptions_that_want_a_message():
    path = DataPath({"enable_property_filter": True, "enable_calc_filter_bit_map": True}, enable_consume_queue_ext=True)
    send(path, [0])
    heartbeat(path)
    heartbeat(path, "price < 5", group="other")
    path.clock.advance(1)
    send(path, [1, 3, 9])
    assert [bytes(unit.bitmap) for unit in ext_units(path)][:1] == [b""]
    filters = path.services.filters
    mine, other = (set(filters.get(TOPIC, group).bloom_filter_data.bit_pos) for group in ("cg", "other"))
    set_bits = [
        {bit for bit in range(112) if int.from_bytes(unit.bitmap, "little") >> bit & 1} for unit in ext_units(path)[1:]
    ]
    assert set_bits == [other, mine | other, mine]
    assert bodies(path.pull(sys_flag=0, sub_version=7)) == [b"3", b"9"]


async def test_bitmaps_are_exact_again_after_the_heartbeat_that_follows_a_restart():
    path = DataPath({"enable_property_filter": True, "enable_calc_filter_bit_map": True}, enable_consume_queue_ext=True)
    heartbeat(path)
    path.services.filters.persist()
    path.services.filters.load()
    path.services.filters._filters.clear()
    expression_filter._kept.clear()  # as in a new process
    path.clock.advance(1)
    heartbeat(path)
    send(path, [1, 3])
    assert [any(unit.bitmap) for unit in ext_units(path)] == [False, True]


async def test_bitmaps_avoid_reading_unwanted_records():
    path = DataPath({"enable_property_filter": True, "enable_calc_filter_bit_map": True}, enable_consume_queue_ext=True)
    heartbeat(path)
    path.clock.advance(1)
    send(path, [1, 3])
    record_filter = path.services.filters.record_filter(TOPIC, "cg")
    assert [record_filter.may_match(unit) for unit in ext_units(path)] == [False, True]
    # The bitmaps of earlier messages say nothing about a changed expression.
    heartbeat(path, "price < 2", version=8)
    assert bodies(path.pull(sys_flag=0, sub_version=8)) == [b"1"]


# --- lifetime and persistence ------------------------------------------------------------------------------------------


async def test_filter_of_a_departed_group_is_kept_for_a_day(path):
    filters = path.services.filters
    heartbeat(path)
    born_ms = filters.get(TOPIC, "cg").born_time
    path.clock.advance(1000)
    leave(path)
    assert filters.get(TOPIC, "cg").dead_time == born_ms + 1000
    path.clock.advance(24 * 3600 * 1000 - 1)
    filters.clean()
    heartbeat(path)  # the same subscription: alive again, with its old birth time
    assert (filters.get(TOPIC, "cg").dead_time, filters.get(TOPIC, "cg").born_time) == (0, born_ms)
    leave(path)
    path.clock.advance(24 * 3600 * 1000)
    filters.clean()
    assert filters.get(TOPIC, "cg") is None and filters.table == {}


async def test_filter_of_a_topic_no_longer_subscribed_is_dead(path):
    heartbeat(path)
    heartbeat(path, topic="T2", version=8)
    filters = path.services.filters
    assert filters.get(TOPIC, "cg").is_dead and not filters.get("T2", "cg").is_dead
    path.channel.close()
    assert filters.get("T2", "cg").is_dead


async def test_consumer_filter_file_has_apache_s_form(path):
    heartbeat(path)
    filters = path.services.filters
    filters.persist()
    born_ms = filters.get(TOPIC, "cg").born_time
    written = decode_document(path.store.disk.read_file("/store/config/consumerFilter.json"))
    positions = filters.bloom_filter.positions("cg#T")
    assert check_seal(written) and written.pop(SEAL_KEY)
    assert written == {
        "filterDataByTopic": {
            "T": {
                "groupFilterData": {
                    "cg": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": positions},
                        "bornTime": born_ms,
                        "clientVersion": 7,
                        "consumerGroup": "cg",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "price > 2",
                        "expressionType": "SQL92",
                        "topic": "T",
                    }
                },
                "topic": "T",
            }
        }
    }
    path.clock.advance(100_000)
    filters.load()
    data = filters.get(TOPIC, "cg")
    assert data.is_dead and data.dead_time == born_ms + 70_000
    assert filters.record_filter(TOPIC, "cg").judge(["\x02price\x013\x02"]) == [True]


async def test_file_with_bits_of_another_bloom_filter_is_ignored(path):
    heartbeat(path)
    path.services.filters.persist()
    other = path_with(expect_consumer_num_use_filter=64).services.filters
    other.file = path.services.filters.file
    other.load()
    assert other.table == {}
