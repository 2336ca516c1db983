"""PocketMQ's own requests list, count, cancel and deliver pending delayed messages, of levels and timers."""

import base64
import json

import pytest

from pocketmq.broker.delay import pending as delay_query
from pocketmq.remoting.bodies import decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.delay_bodies import DelayedCounts, DelayedMessages
from pocketmq.remoting.headers.delay import (
    AdvanceClockRequestHeader,
    CountDelayedRequestHeader,
    DelayedMessageRequestHeader,
    QueryDelayedRequestHeader,
)
from tests.broker.data_path import TOPIC, DataPath, send_header, until

HOUR_MS = 3_600_000


@pytest.fixture
async def path():
    return DataPath()


def put(path, key, topic=TOPIC, **properties):
    text = {"UNIQ_KEY": key, "KEYS": f"order-{key} all", "TAGS": "t"} | properties
    joined = "\x02".join(f"{name}\x01{value}" for name, value in text.items())
    answer = path.call(RequestCode.SEND_MESSAGE_V2, send_header(joined, topic=topic), f"body of {key}".encode())
    assert answer.code == 0, answer.remark


def ask(path, **wanted):
    """Return all pages of an answer."""
    found, cursor = [], None
    while True:
        answer = path.call(RequestCode.QUERY_DELAYED, QueryDelayedRequestHeader(cursor=cursor, **wanted))
        assert answer.code == 0, answer.remark
        found += decode_body(DelayedMessages, answer.body).messages
        cursor = (answer.ext or {}).get("cursor")
        if cursor is None:
            return found


def ids(path, **wanted):
    return [message.msg_id for message in ask(path, **wanted)]


def count(path, **wanted):
    hours, cursor = {}, None
    while True:
        answer = path.call(RequestCode.COUNT_DELAYED, CountDelayedRequestHeader(cursor=cursor, **wanted))
        for hour_ms, added in decode_body(DelayedCounts, answer.body).hours.items():
            hours[int(hour_ms)] = hours.get(int(hour_ms), 0) + added
        cursor = (answer.ext or {}).get("cursor")
        if cursor is None:
            return hours


def change(path, code, physical_offset):
    return path.call(code, DelayedMessageRequestHeader(physical_offset))


def bodies(path, topic=TOPIC):
    return [record.body.decode() for record in path.stored(topic)]


async def advance(path, ms):
    path.clock.advance(ms)
    await until(lambda: path.services.delays.is_idle)
    path.turn()


async def test_levels_and_timers_are_listed_together_by_due_time(path):
    now_ms = path.clock.message_time_ms()
    put(path, "far", TIMER_DELAY_SEC=str(300 * 86_400))
    put(path, "level", DELAY="3")
    put(path, "late", TIMER_DELIVER_MS=str(now_ms + 10_700))
    put(path, "soon", TIMER_DELIVER_MS=str(now_ms + 10_400))
    put(path, "at once")
    assert ids(path) == ["level", "soon", "late", "far"]
    level, soon, _, far = ask(path)
    assert (level.level, level.due_timestamp, level.is_delay, level.topic) == (3, now_ms + 10_000, True, TOPIC)
    assert (soon.level, soon.due_timestamp, soon.is_delay, soon.queue_id) == (0, now_ms + 10_400, False, 0)
    assert (far.due_timestamp - now_ms, far.keys, far.tags, far.body_size) == (300 * 86_400_000, "order-far all", "t", 11)
    assert (far.properties, far.body) == (None, None)
    (shown,) = ask(path, msg_id="far", detailed=True)
    assert shown.body is not None and base64.b64decode(shown.body) == b"body of far"
    assert shown.properties is not None and shown.properties["TIMER_DELAY_SEC"] == str(300 * 86_400)


@pytest.mark.parametrize("with_index", [True, False])
async def test_query_finds_exactly_the_matching_messages(with_index):
    path = DataPath(message_index_enable=with_index)
    now_ms = path.clock.message_time_ms()
    for number in range(1, 5):
        put(path, f"t{number}", "U" if number == 4 else TOPIC, TIMER_DELIVER_MS=str(now_ms + number * 1000))
    put(path, "l2", DELAY="2")
    everything = ask(path)
    assert [message.msg_id for message in everything] == ["t1", "t2", "t3", "t4", "l2"]
    assert ids(path, topic="U") == ["t4"]
    assert ids(path, key="order-t2") == ["t2"]
    assert ids(path, key="all", topic=TOPIC) == ["t1", "t2", "t3", "l2"]
    assert ids(path, msg_id="l2") == ["l2"]
    assert ids(path, msg_id=everything[2].offset_msg_id) == ["t3"]
    assert ids(path, begin_timestamp=now_ms + 2000, end_timestamp=now_ms + 4000) == ["t2", "t3"]
    assert ids(path, msg_id="nobody") == ids(path, key="t2") == ids(path, topic="nowhere") == []
    await advance(path, 2000)
    assert ids(path) == ["t3", "t4", "l2"]
    assert ids(path, msg_id="t1") == []


async def test_pages_continue_where_the_last_one_ended(path, monkeypatch):
    now_ms = path.clock.message_time_ms()
    expected = []
    for number in range(30):  # many in one second, and some levels among them
        put(
            path,
            f"m{number}",
            **({"DELAY": "2"} if number % 5 == 0 else {"TIMER_DELIVER_MS": str(now_ms + 4500 + 50 * number)}),
        )
        expected.append(f"m{number}")
    monkeypatch.setattr(delay_query, "SCANNED_MAX", 7)
    monkeypatch.setattr(delay_query, "COUNTED_MAX", 7)
    for size in (1, 3, 32):
        found = ids(path, max_num=size)
        assert sorted(found) == sorted(expected), f"pages of {size}"
    assert ids(path, topic=TOPIC, begin_timestamp=now_ms + 5900) == ["m28", "m29"]
    assert sum(count(path, topic=TOPIC).values()) == 30
    answer = path.call(RequestCode.QUERY_DELAYED, QueryDelayedRequestHeader(cursor="7"))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "cursor '7' is invalid: use that of the previous answer",
    )


async def test_delayed_messages_are_counted_by_the_hour(path):
    path.clock.set_ms(1_700_000_000_000 // HOUR_MS * HOUR_MS)
    now_ms = path.clock.message_time_ms()
    for minutes in (1, 59, 61, 200):
        put(path, f"t{minutes}", TIMER_DELAY_SEC=str(minutes * 60))
    put(path, "l", DELAY="18")  # 2 h
    put(path, "u", "U", TIMER_DELAY_SEC="60")
    assert count(path) == {now_ms: 3, now_ms + HOUR_MS: 1, now_ms + 2 * HOUR_MS: 1, now_ms + 3 * HOUR_MS: 1}
    assert count(path, topic=TOPIC, end_timestamp=now_ms + 2 * HOUR_MS) == {now_ms: 2, now_ms + HOUR_MS: 1}


@pytest.mark.parametrize("delay", [{"TIMER_DELAY_SEC": "5"}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": str(20 * 86_400)}])
async def test_cancelled_message_is_never_delivered(path, delay):
    put(path, "gone", **delay)
    put(path, "stays", **delay)
    (gone,) = ask(path, msg_id="gone")
    answer = change(path, RequestCode.CANCEL_DELAYED, gone.physical_offset)
    assert (answer.code, answer.ext) == (0, {"msgId": "gone"})
    assert ids(path) == ["stays"]
    again = change(path, RequestCode.CANCEL_DELAYED, gone.physical_offset)
    assert again.code == ResponseCode.QUERY_NOT_FOUND
    assert f"physical offset {gone.physical_offset}" in again.remark
    await advance(path, 30 * 86_400_000)
    assert bodies(path) == ["body of stays"]
    assert ids(path) == []


@pytest.mark.parametrize("delay", [{"TIMER_DELAY_SEC": "5"}, {"DELAY": "2"}])
async def test_message_delivered_early_is_not_delivered_again(path, delay):
    put(path, "now", **delay)
    put(path, "later", **delay)
    (now,) = ask(path, msg_id="now")
    assert change(path, RequestCode.DELIVER_DELAYED_NOW, now.physical_offset).code == 0
    assert bodies(path) == ["body of now"]
    assert ids(path) == ["later"]
    assert change(path, RequestCode.DELIVER_DELAYED_NOW, now.physical_offset).code == ResponseCode.QUERY_NOT_FOUND
    await advance(path, 60_000)
    assert bodies(path) == ["body of now", "body of later"]


OTHER = "OtherTopic"
SAME_KEY = {"TIMER_DELAY_SEC": "5"}


@pytest.mark.parametrize("delay", [SAME_KEY, {"TIMER_DELAY_SEC": str(20 * 86_400)}])
async def test_cancelling_one_message_leaves_others_with_its_unique_key(path, delay):
    put(path, "same", **delay)
    put(path, "same", **delay)
    put(path, "same", topic=OTHER, **delay)
    first, *_ = ask(path, msg_id="same")
    assert change(path, RequestCode.CANCEL_DELAYED, first.physical_offset).code == 0
    assert len(ask(path, msg_id="same")) == 2
    await advance(path, 30 * 86_400_000)
    assert (bodies(path), bodies(path, OTHER)) == (["body of same"], ["body of same"])


async def test_delivering_one_message_now_leaves_others_with_its_unique_key(path):
    for topic in (TOPIC, TOPIC, OTHER):
        put(path, "same", topic=topic, **SAME_KEY)
    first, *_ = ask(path, msg_id="same")
    assert change(path, RequestCode.DELIVER_DELAYED_NOW, first.physical_offset).code == 0
    await advance(path, 60_000)
    assert (bodies(path), bodies(path, OTHER)) == (["body of same"] * 2, ["body of same"])


async def test_client_cannot_cancel_a_message_by_its_place(path):
    put(path, "mine", topic=OTHER, **SAME_KEY)
    (mine,) = ask(path)
    for name in ("mine", f"{OTHER}+mine", f"@{mine.physical_offset}", f"#{mine.physical_offset}", f"{OTHER}/mine"):
        put(path, "theirs", TIMER_DEL_UNIQKEY=name, PMQ_CANCELS=str(mine.physical_offset), **SAME_KEY)
    await advance(path, 60_000)
    assert bodies(path, OTHER) == ["body of mine"]


async def test_cancelled_level_message_that_a_power_cut_lost_does_not_cancel_the_next_one(path):
    put(path, "kept", DELAY="2")
    put(path, "lost", DELAY="2")
    for message in ask(path):
        assert change(path, RequestCode.CANCEL_DELAYED, message.physical_offset).code == 0
    cancelled = path.services.delay_cancelled
    cancelled.passed({2: (0, 1)})
    assert cancelled.encode() == {"cancelled": {2: [0]}}


async def test_message_without_unique_key_is_cancelled_by_its_offset(path):
    for body in (b"a", b"b"):
        path.call(RequestCode.SEND_MESSAGE_V2, send_header("TIMER_DELAY_SEC\x015"), body)
    first, second = ask(path)
    assert first.msg_id == first.offset_msg_id
    assert change(path, RequestCode.CANCEL_DELAYED, first.physical_offset).code == 0
    await advance(path, 60_000)
    assert bodies(path) == ["b"]


async def test_cancelling_anything_but_a_pending_message_is_refused(path):
    put(path, "plain")
    (record,) = path.stored()
    for physical_offset in (record.physical_offset, record.physical_offset + 1, 1 << 60, -1):
        assert change(path, RequestCode.CANCEL_DELAYED, physical_offset).code == ResponseCode.QUERY_NOT_FOUND


async def test_cancelled_level_messages_are_persisted_and_forgotten_when_passed(path):
    put(path, "a", DELAY="1")
    put(path, "b", DELAY="2")
    for message in ask(path):
        assert change(path, RequestCode.CANCEL_DELAYED, message.physical_offset).code == 0
    cancelled = path.services.delay_cancelled
    assert json.loads(path.store.disk.read_file(cancelled.file.path))["cancelled"] == {"1": [0], "2": [0]}
    await advance(path, 1000)
    cancelled.passed(path.services.schedule.progress())
    assert cancelled.encode() == {"cancelled": {2: [0]}}


async def test_early_delivery_of_a_level_message_is_persisted_after_its_copy(path):
    put(path, "now", DELAY="2")
    (now,) = ask(path)
    change(path, RequestCode.DELIVER_DELAYED_NOW, now.physical_offset)
    cancelled = path.services.delay_cancelled
    assert path.store.flushed_offset < path.store.max_physical_offset
    assert cancelled.encode() == {"cancelled": {}}
    path.store.start()
    path.store.request_sync(path.store.max_physical_offset)
    await until(lambda: path.store.flushed_offset == path.store.max_physical_offset)
    assert cancelled.encode() == {"cancelled": {2: [0]}}


# --- the clock --------------------------------------------------------------------------------------------------------


async def advance_by_wire(path, ms):
    path.channel.take()
    path.ask(RequestCode.ADVANCE_CLOCK, AdvanceClockRequestHeader(ms))
    answers = []
    await until(lambda: answers.extend(path.channel.take()) or answers)
    return answers[0]


async def test_advance_clock_is_answered_after_due_messages_are_delivered(path):
    now_ms = path.clock.message_time_ms()
    for number in range(300):
        put(path, f"{number}", **({"DELAY": "1"} if number % 2 else {"TIMER_DELAY_SEC": str(30 * 86_400)}))
    read = path.call(RequestCode.READ_CLOCK)
    assert read.ext == {"now": str(now_ms), "isVirtual": "true"}
    answer = await advance_by_wire(path, 30 * 86_400_000)
    assert answer.ext == {"now": str(now_ms + 30 * 86_400_000), "isVirtual": "true"}
    assert path.store.max_offset(TOPIC, 0) == 300


async def test_clock_cannot_be_advanced_backwards_or_too_far(path):
    for ms in (-1, 1 << 62):
        answer = await advance_by_wire(path, ms)
        assert answer.code == ResponseCode.SYSTEM_ERROR and f"ms={ms}" in answer.remark
