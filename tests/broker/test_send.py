import asyncio
import itertools
import struct
from time import monotonic

import pytest

from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import encode_request
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import decode_record
from tests.broker.data_path import STORE_HOST, TOPIC, DataPath, StubChannel, send_header, until
from tests.golden.linear import cpu_s
from tests.support.amount import cases


def member(body, properties="", flag=0):
    text = properties.encode()
    size = 20 + len(body) + 2 + len(text)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">H", len(text)) + text


@pytest.fixture
async def path():
    return DataPath()


async def test_message_is_stored_as_sent(path):
    answer = path.send("TAGS\x01t\x02color\x01red", b"body", queue_id=3, flag=42, sys_flag=1, reconsume_times=2)
    assert answer.code == 0
    assert answer.ext == {
        "msgId": answer.ext["msgId"],
        "queueId": "3",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    (record,) = path.stored(queue_id=3)
    assert decode_message_id(answer.ext["msgId"]) == (STORE_HOST, record.physical_offset)
    assert (record.body, record.flag, record.sys_flag, record.reconsume_times) == (b"body", 42, 1, 2)
    assert (record.born_host, record.store_host) == (path.channel.host_bytes, STORE_HOST)
    assert record.born_timestamp_ms == 1_600_000_000_000
    assert record.store_timestamp_ms == path.clock.message_time_ms()
    assert decode_properties(record.properties) == {"TAGS": "t", "color": "red", "CLUSTER": "DefaultCluster"}


async def test_properties_that_are_not_valid_unicode_are_stored_with_replacements_as_by_apache(path):
    """As sent by C++ and PHP clients with GBK texts, and by Node and Python with half a character."""
    sent = encode_request(RequestCode.SEND_MESSAGE_V2, send_header("a\x01GBK!\x02b\x01half!"), b"x", 7)
    ((kind, header, body),) = FrameBuffer().feed(b"".join(sent))
    path.serve((kind, header.replace(b"GBK!", b"\xd6\xd0").replace(b"half!", b"\\ud83d"), body), path.channel)
    (answer,) = path.channel.take()
    path.turn()
    assert (answer.code, answer.opaque) == (0, 7)
    (record,) = path.stored()
    assert decode_properties(record.properties) == {"a": "\ufffd\ufffd", "b": "?", "CLUSTER": "DefaultCluster"}


async def test_v1_header_is_stored_the_same(path):
    answer = path.call(RequestCode.SEND_MESSAGE, send_header("TAGS\x01t", long=True, queue_id=1), b"x")
    assert answer.code == 0 and answer.ext["queueId"] == "1"


async def test_oneway_send_is_stored_and_not_answered(path):
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"quiet", oneway=True)
    path.turn()
    assert path.channel.take() == []
    assert [record.body for record in path.stored()] == [b"quiet"]


async def test_queue_id_minus_1_means_any_queue(path):
    chosen = {path.send(queue_id=-1).ext["queueId"] for _ in range(60)}
    assert chosen == {"0", "1", "2", "3"}


async def test_batch_is_stored_as_consecutive_messages(path):
    body = member(b"a", "TAGS\x01x", 7) + member(b"b") + member(b"c", "KEYS\x01k\x02")
    for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):  # C++ clients send 310
        answer = path.call(code, send_header("WAIT\x01true", batch=True, queue_id=1), body)
        assert answer.code == 0
    assert answer.ext["queueOffset"] == "3"
    offsets = [decode_message_id(message_id)[1] for message_id in answer.ext["msgId"].split(",")]
    records = path.stored(queue_id=1)
    assert [record.physical_offset for record in records][3:] == offsets
    assert [record.body for record in records] == [b"a", b"b", b"c"] * 2
    assert records[0].flag == 7
    properties = [decode_properties(record.properties) for record in records[:3]]
    assert properties[0] == {"TAGS": "x", "CLUSTER": "DefaultCluster", "WAIT": "true"}  # as stored by 4.9.4
    assert properties[2]["KEYS"] == "k"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"short",
        member(b"a")[:-1],
        member(b"a") + b"\0",
        b"\0\0\0\x63" + member(b"a")[4:],
        struct.pack(">iiiii", 20, 0, 0, 0, -1),
    ],
)
async def test_malformed_batch_is_refused_as_a_whole(path, body):
    answer = path.call(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), member(b"ok") + body if body else body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "batch" in answer.remark
    assert path.stored() == []


async def test_batch_beyond_the_limit_is_refused_as_a_whole():
    path = DataPath(max_message_size=100)
    assert path.call(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True, queue_id=1), member(b"a") * 4).code == 0
    answer = path.call(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True, queue_id=1), member(b"a") * 5)
    assert (answer.code, "maxMessageSize allows 100" in answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert len(path.stored(queue_id=1)) == 4


async def send_large_batch(path, body):
    """Send a batch and messages of another client; return the answer, and the number of those stored meanwhile."""
    path.channel.take()
    path.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("WAIT\x01true", batch=True), body)
    other, others = StubChannel(), 0
    while not path.channel.out:
        others += path.call(RequestCode.SEND_MESSAGE_V2, send_header(queue_id=1), b"other", other).code == 0
        await asyncio.sleep(0.001)
    (answer,) = path.channel.take()
    path.turn()
    return answer, others


async def test_batch_of_many_small_messages_is_stored_while_others_are_served(path):
    """As sent by Apache's SplitBatchProducer: 1 MB at a time."""
    bodies = [b"Hello world %d" % number for number in range(26_000)]
    answer, others = await send_large_batch(path, b"".join(map(member, bodies)))
    assert (answer.code, answer.ext["queueOffset"]) == (0, "0")
    offsets = [decode_message_id(message_id)[1] for message_id in answer.ext["msgId"].split(",")]
    places = [(path.store.commit_log.record_at(offset), offset) for offset in offsets]
    assert [bytes(decode_record(record, 0).body) for record, _ in places] == bodies
    assert [record.physical_offset for record in path.stored(queue_offset=25_980)] == offsets[25_980:]
    assert path.store.max_offset(TOPIC, 0) == 26_000
    assert others > 10
    assert not path.channel.is_suspended


async def test_batch_with_many_keys_is_indexed_in_slices(path):
    batch_size = cases(20, 60)
    keys = [" ".join(f"{number}.{key}" for key in range(4_000)) for number in range(batch_size)]
    body = b"".join(member(b"%d" % number, f"KEYS\x01{one}\x02") for number, one in enumerate(keys))
    channel = path.channel
    channel.take()

    def ask():
        path.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), body)
        path.turn()

    assert cpu_s(ask, 1) < 0.05
    slices, longest_s = path.services.slices, 0.0
    while not channel.out:
        slices._pause_end_s = float("-inf")
        longest_s = max(longest_s, cpu_s(lambda: (slices._go_on(), path.turn()), 1))
    assert longest_s < 0.05
    (answer,) = channel.take()
    assert answer.code == ResponseCode.SUCCESS
    assert len(path.store.query_message(TOPIC, f"{batch_size - 1}.3999", 64, 0, 1 << 50).views) == 1


async def test_messages_with_many_keys_are_indexed_in_slices(path):
    keys = " ".join(f"key{key}" for key in range(4_000))
    senders = [StubChannel(number) for number in range(10, 50)]

    def ask():
        for number, sender in enumerate(senders):
            path.ask(RequestCode.SEND_MESSAGE_V2, send_header(f"KEYS\x01{keys}\x02"), b"%d" % number, sender)
        path.turn()

    assert cpu_s(ask, 1) < 0.05
    assert any(sender.is_suspended for sender in senders)
    await until(lambda: all(sender.out for sender in senders))
    assert {answer.code for sender in senders for answer in sender.take()} == {ResponseCode.SUCCESS}
    assert path.store.max_offset(TOPIC, 0) == len(senders)
    assert len(path.store.query_message(TOPIC, "key3999", 64, 0, 1 << 50).views) == 40


async def test_large_batch_with_an_invalid_message_is_refused_as_a_whole(path):
    for bad in (member(b"a")[:-1], member(b"a", "DELAY\x011"), member(b"a", "k\x01" + "v" * 40_000)):
        answer, _ = await send_large_batch(path, member(b"a") * 2_000 + bad)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert path.stored() == []


@pytest.mark.parametrize("fields", [{"sys_flag": 4}, {"properties": "DELAY\x011"}, {"topic": "%RETRY%g"}])
async def test_invalid_batches_are_refused(path, fields):
    answer = path.call(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True, **fields), member(b"a"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


# --- topics ----------------------------------------------------------------------------------------------------------


async def test_send_creates_a_topic_from_the_default_topic(path):
    registered = []
    path.services.topics.topic_changed.subscribe(registered.append)
    assert path.send(topic="New").code == 0
    created = path.services.topics.get("New")
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (4, 4, 6)
    assert registered == ["New"]
    path.send(topic="New")
    assert registered == ["New"]


async def test_send_without_an_inheritable_default_topic_is_refused(path):
    answer = path.send(topic="New", default_topic="NoSuch")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark.startswith("topic[New] not exist, apply first please!")
    assert path.send(topic="New", default_topic=TOPIC).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("topic", ["", "a/b", "../../x", "t" * 128, "ü"])
async def test_invalid_topic_names_are_refused(path, topic):
    assert path.send(topic=topic).code == ResponseCode.SYSTEM_ERROR
    assert path.services.topics.get(topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ],
)
async def test_sends_to_the_broker_s_own_topics_are_refused(path, topic):
    assert path.send(topic=topic).code == ResponseCode.NO_PERMISSION


async def test_queue_id_beyond_the_topic_is_refused(path):
    path.services.topics.update(TopicConfig("Uneven", 2, 4))
    assert path.send(topic="Uneven", queue_id=3).code == 0
    answer = path.send(topic="Uneven", queue_id=4)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queueId[4] is illegal" in answer.remark


async def test_messages_of_a_multi_tag_topic_are_flagged(path):
    path.services.topics.update(TopicConfig("Multi", 1, 1, topic_filter_type="MULTI_TAG"))
    path.send(topic="Multi")
    assert path.stored("Multi")[0].sys_flag == 2


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_read_only_broker_refuses_ordered_topics_only(path):
    path.services.config.broker_permission = 4
    assert path.send().code == 0
    path.services.topics.get(TOPIC).order = True
    assert path.send().code == ResponseCode.NO_PERMISSION


async def test_send_that_waited_too_long_is_refused():
    path = DataPath({"broker_fast_failure_enable": True, "wait_time_mills_in_send_queue": 200})
    turn = path.services.turn
    assert path.send().code == 0
    turn.arm()
    turn.began_s -= 0.2
    answer = path.send()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 20")
    assert path.send().code == 0


@pytest.mark.parametrize("batch", [False, True])
async def test_send_behind_a_slow_page_cache_write_is_refused(monkeypatch, batch):
    path = DataPath({"broker_fast_failure_enable": True}, os_page_cache_busy_time_out_mills=1500)
    slow = itertools.count(monotonic(), 1.6)  # 1.6 s pass between two readings of the clock
    turn = path.services.turn
    turn.arm()
    if batch:
        path.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), member(b"one"))
    else:
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"one")
    monkeypatch.setattr("pocketmq.store.log.log_tail.monotonic", lambda: next(slow))
    path.turn()
    monkeypatch.undo()
    (first,) = path.channel.take()
    assert first.code == 0
    turn.arm()
    answer = path.send()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: ")
    assert "osPageCacheBusyTimeOutMills=1500" in answer.remark
    turn.arm()
    turn.began_s += 2
    assert path.send().code == 0


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (None, {}),
        ("TAGS\x01t", {"TAGS": "t"}),
        ("TAGS\x01t\x02", {"TAGS": "t"}),
        ("MSG_REGION\x01far\x02TAGS\x01t\x02", {"MSG_REGION": "far", "TAGS": "t"}),
    ],
)
async def test_messages_have_msg_region_if_the_trace_topic_is_enabled(sent, stored):
    path = DataPath({"trace_topic_enable": True, "region_id": "near"})
    assert path.send(sent).code == 0
    properties = decode_properties(path.stored()[0].properties)
    assert properties == {"MSG_REGION": "near", "CLUSTER": "DefaultCluster"} | stored


async def test_send_before_the_configured_start_time_is_refused(path):
    path.services.config.start_accept_send_request_time_stamp = path.clock.message_time_ms() + 1
    assert path.send().code == ResponseCode.SYSTEM_ERROR
    path.clock.advance(1)
    assert path.send().code == 0


async def test_oversized_messages_are_refused_naming_the_limits(path):
    answer = path.send(body=bytes((4 << 20) + 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "msg body length limit 4194304B, msg properties length limit 32KB." in answer.remark
    assert path.send("p\x01" + "v" * 32767).code == ResponseCode.MESSAGE_ILLEGAL
    assert path.send(body=bytes(4 << 20)).code == 0


async def test_store_refusal_is_answered_service_not_available(path):
    path.store.commit_log.refuse("test", "disk full")
    answer = path.send()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "disk full" in answer.remark


async def test_transactions_can_be_forbidden(path):
    path.services.config.reject_transaction_message = True
    answer = path.send("TRAN_MSG\x01true")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "sending transaction message is forbidden" in answer.remark
    assert path.send("TRAN_MSG\x01false").code == 0


# --- the retry topic -------------------------------------------------------------------------------------------------


async def test_send_to_the_retry_topic_goes_to_the_dlq_after_the_maximum_of_retries(path):
    retry, dlq = "%RETRY%cg", "%DLQ%cg"
    path.send(topic=retry, default_topic="NoSuch", reconsume_times=15)
    path.send(topic=retry, reconsume_times=16)
    assert [record.reconsume_times for record in path.stored(retry)] == [15]
    assert [record.reconsume_times for record in path.stored(dlq)] == [16]
    path.send(topic=retry, reconsume_times=2, max_reconsume_times=2)
    assert len(path.stored(dlq)) == 2


async def test_send_to_the_retry_topic_of_an_invalid_group_is_refused():
    path = DataPath({"auto_create_subscription_group": False})
    assert path.send(topic="%RETRY%nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
