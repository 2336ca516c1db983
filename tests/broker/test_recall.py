"""Recall of timer messages through the whole data path: send, answer with a handle, recall by the handle."""

import struct

import pytest

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from pocketmq.remoting.headers.delay import RecallMessageRequestHeader
from pocketmq.store.format.properties import decode_properties
from tests.broker.data_path import TOPIC, DataPath, send_header, until


@pytest.fixture
async def path():
    return DataPath()


def timer(path, delay_ms, unique_key="K1", **properties):
    text = {"UNIQ_KEY": unique_key, "TIMER_DELAY_MS": str(delay_ms), **properties}
    return path.send("\x02".join(f"{name}\x01{value}" for name, value in text.items()), queue_id=2)


def member(properties):
    """Return a batch of one message with an empty body."""
    text = properties.encode()
    return struct.pack(">iiiii", 22 + len(text), 0, 0, 0, 0) + struct.pack(">H", len(text)) + text


def recall(path, handle, topic=TOPIC):
    return path.call(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(topic, handle, "pg"))


async def advance(path, ms):
    path.clock.advance(ms)
    await until(lambda: path.services.delays.is_idle)
    path.turn()


async def test_timer_message_is_stored_in_the_timer_topic_and_answered_with_its_ids(path):
    answer = timer(path, 5000)
    (waiting,) = path.stored(TIMER_TOPIC)
    assert answer.code == 0
    assert decode_message_id(answer.ext["msgId"])[1] == waiting.physical_offset
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "0")
    out_ms = int(decode_properties(waiting.properties)["TIMER_OUT_MS"])
    assert decode_recall_handle(answer.ext["recallHandle"]) == (TOPIC, "b", str(out_ms + 1), "K1")
    await advance(path, 4999)
    assert path.stored(queue_id=2) == []
    await advance(path, 1)
    (delivered,) = path.stored(queue_id=2)
    assert (delivered.body, delivered.store_timestamp_ms) == (b"hello", waiting.store_timestamp_ms + 5000)


@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01K\x02DELAY\x011", "UNIQ_KEY\x01K", "TIMER_DELAY_SEC\x015"])
async def test_answer_to_a_message_that_cannot_be_recalled_has_no_handle(path, properties):
    answer = path.send(properties)
    assert answer.code == 0 and "recallHandle" not in answer.ext


async def test_delay_level_takes_precedence_over_a_due_time(path):
    path.send("TIMER_DELAY_SEC\x015\x02DELAY\x011")
    (waiting,) = path.stored("SCHEDULE_TOPIC_XXXX")
    assert "TIMER_DELAY_SEC" not in decode_properties(waiting.properties)
    path.clock.advance(1000)
    path.turn()
    assert len(path.stored()) == 1


@pytest.mark.parametrize(("header", "member_properties"), [("TIMER_DELAY_SEC\x015", ""), ("", "DELAY\x011")])
async def test_a_batch_with_a_delay_is_refused(path, header, member_properties):
    answer = path.call(RequestCode.SEND_BATCH_MESSAGE, send_header(header, batch=True), member(member_properties))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "a batch cannot be delayed" in answer.remark
    assert path.stored() == []


async def test_recalled_message_is_not_delivered_but_others_are(path):
    handle = timer(path, 5000, "K1").ext["recallHandle"]
    timer(path, 5000, "K2")
    answer = recall(path, handle)
    assert (answer.code, answer.ext) == (0, {"msgId": "K1", "MSG_REGION": "DefaultRegion"})
    await advance(path, 60_000)
    assert [decode_properties(record.properties)["UNIQ_KEY"] for record in path.stored(queue_id=2)] == ["K2"]
    assert path.stored() == [], "the cancelling message is not delivered"


async def test_recall_within_the_second_of_delivery_succeeds(path):
    path.clock.set_ms(1_700_000_000_000)
    handle = timer(path, 5900).ext["recallHandle"]
    await advance(path, 5899)
    assert recall(path, handle).code == 0
    await advance(path, 10_000)
    assert path.stored(queue_id=2) == []


async def test_cancelling_message_sent_by_a_client_works_like_a_recall(path):
    at = str(path.clock.message_time_ms() + 5000)
    path.send(f"UNIQ_KEY\x01K1\x02TIMER_DELIVER_MS\x01{at}", queue_id=2)
    path.send(f"UNIQ_KEY\x01K2\x02TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{TOPIC}+K1", queue_id=2)
    await advance(path, 60_000)
    assert path.stored(queue_id=2) == []


async def test_recall_and_cancelling_message_leave_messages_of_other_topics(path):
    at = str(path.clock.message_time_ms() + 5000)
    answers = {}
    for topic in (TOPIC, "Other"):
        text = f"UNIQ_KEY\x01K1\x02TIMER_DELIVER_MS\x01{at}"
        answers[topic] = path.call(RequestCode.SEND_MESSAGE_V2, send_header(text, topic=topic), topic.encode())
    assert recall(path, answers[TOPIC].ext["recallHandle"]).code == 0
    path.send(f"UNIQ_KEY\x01K2\x02TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01K1")
    await advance(path, 60_000)
    assert (path.stored(), [record.body for record in path.stored("Other")]) == ([], [b"Other"])


async def test_a_recall_checks_in_apaches_order(path):
    services, now_ms = path.services, path.clock.message_time_ms()

    def refused(handle, topic=TOPIC):
        text = (
            handle if isinstance(handle, str) else RecallHandle(*(handle or (TOPIC, "b", str(now_ms + 5001), "K"))).encode()
        )
        answer = recall(path, text, topic)
        assert answer.remark.startswith("recall ")
        return answer.code, answer.remark

    assert refused((TOPIC, "b", str(now_ms - 1001), "K")) == (
        604, f"recall failed, timestamp invalid: {now_ms - 1001} is past and the message is delivered",
    )  # fmt: skip
    assert "timerMaxDelaySec=34560000" in refused((TOPIC, "b", str(now_ms + 34_560_000_000), "K"))[1]
    assert refused((TOPIC, "b", "soon", "K"))[0] == ResponseCode.ILLEGAL_OPERATION
    assert "'other'" in refused((TOPIC, "other", str(now_ms + 5001), "K"))[1]
    assert "topic not match" in refused(("U", "b", str(now_ms + 5001), "K"))[1]
    assert refused("%%%") == (604, "recall handle is invalid")
    assert refused("%%%", "nowhere") == (ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[nowhere] not exist")
    services.config.broker_permission = 4
    services.config.allow_recall_when_broker_not_writeable = False
    assert refused("%%%", "nowhere")[0] == ResponseCode.SERVICE_NOT_AVAILABLE
    services.config.start_accept_send_request_time_stamp = now_ms + 1
    assert "startAcceptSendRequestTimeStamp" in refused("%%%", "nowhere")[1]
    services.config.recall_message_enable = False
    assert refused("%%%", "nowhere") == (
        ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden (recallMessageEnable=false)",
    )  # fmt: skip
    assert path.stored(TIMER_TOPIC) == []
