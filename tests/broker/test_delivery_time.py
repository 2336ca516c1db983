"""Due times of messages: parsing of the properties, refusals, and the due time in stored records."""

import pytest

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.delivery_time import PMQ_DUE_MS, DeliveryTimes, DueTime, due_of, slot_time_ms
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
)
from pocketmq.store.format.properties import decode_properties

NOW_MS = 1_700_000_000_250
HOST = bytes(8)


class Room:
    refusal: str | None = None

    def __init__(self, count=0):
        self.count = count

    def count_at(self, out_ms):
        return self.count

    def expect(self, out_ms):
        pass


def times(room=None, **settings):
    return DeliveryTimes(VirtualClock(NOW_MS), room or Room(), cluster=("CLUSTER", "c"), **settings)


def message(sys_flag=0, **properties):
    return Message("T", 3, b"x", HOST, HOST, sys_flag=sys_flag, properties=properties)


def due(**properties):
    put = message(**properties)
    assert times().redirect_if_delayed(put)
    return due_of(put.properties, NOW_MS)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "7"}, DueTime(NOW_MS + 7000, True)),
        ({"TIMER_DELAY_MS": "7"}, DueTime(NOW_MS + 7, True)),
        ({"TIMER_DELIVER_MS": f"{NOW_MS + 1}"}, DueTime(NOW_MS + 1, False)),
        ({"__STARTDELIVERTIME": f"+{NOW_MS + 1}"}, DueTime(NOW_MS + 1, False)),
        ({"TIMER_DELAY_MS": f"{400 * 86_400_000}"}, DueTime(NOW_MS + 400 * 86_400_000, True)),
    ],
)
def test_a_message_is_due_to_the_millisecond(properties, expected):
    assert due(**properties) == expected


def test_first_of_several_delay_properties_is_used():
    asked = {"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "2", "TIMER_DELIVER_MS": f"{NOW_MS + 3}"}
    asked["__STARTDELIVERTIME"] = f"{NOW_MS + 4}"
    found = []
    while asked:
        found.append(due(**asked).due_ms - NOW_MS)
        del asked[next(iter(asked))]
    assert found == [1000, 2, 3, 4]


def test_stored_timer_message_has_apache_s_form():
    put = message(TIMER_DELIVER_MS="1700000005250", WAIT="true", KEYS="k")
    assert times().redirect_if_delayed(put)
    assert (put.topic, put.queue_id) == (TIMER_TOPIC, 0)
    assert decode_properties(put.properties_bytes) == put.properties == {
        "TIMER_DELIVER_MS": "1700000005250", "WAIT": "true", "KEYS": "k", "CLUSTER": "c", "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


@pytest.mark.parametrize(("due_ms", "expected"), [(10_000, 9000), (10_001, 10_000), (10_999, 10_000), (11_000, 10_000)])
def test_due_time_on_an_exact_second_is_in_the_slot_before(due_ms, expected):
    assert slot_time_ms(due_ms, 1000) == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": f"{NOW_MS}"},
        {"TIMER_DELIVER_MS": "-9223372036854775808"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-1"},
        {"__STARTDELIVERTIME": "1700000100"},  # in seconds, which read as ms is long past
        {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"},  # a copy of a delivered message
        {"KEYS": "k"},
    ],
)
def test_message_due_in_the_past_is_delivered_at_once(properties):
    put = message(**properties)
    assert not times().redirect_if_delayed(put)
    assert (put.topic, put.queue_id, put.properties) == ("T", 3, properties)


@pytest.mark.parametrize(("sys_flag", "waits"), [
    (TRANSACTION_PREPARED_TYPE, False), (TRANSACTION_ROLLBACK_TYPE, False), (TRANSACTION_COMMIT_TYPE, True),
])  # fmt: skip
def test_half_message_is_not_delayed(sys_flag, waits):
    assert times().redirect_if_delayed(message(sys_flag, TIMER_DELAY_SEC="5")) is waits


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"TIMER_DELAY_SEC": "34560001"}, ("TIMER_DELAY_SEC=34560001", "34560001000 ms", "timerMaxDelaySec=34560000")),
        ({"TIMER_DELAY_SEC": "9223372036854775807"}, ("TIMER_DELAY_SEC=9223372036854775807", "34560000000ms")),
        ({"TIMER_DELAY_MS": "9223372036854775808"}, ("TIMER_DELAY_MS='9223372036854775808'", "64 bits")),
        ({"TIMER_DELIVER_MS": "1_800"}, ("TIMER_DELIVER_MS='1_800'", "whole number")),
        ({"TIMER_DELIVER_MS": " 5"}, ("TIMER_DELIVER_MS=' 5'", "whole number")),
        ({"__STARTDELIVERTIME": "tomorrow"}, ("__STARTDELIVERTIME='tomorrow'", "whole number")),
        ({"TIMER_DELIVER_MS": f"{NOW_MS}", "TIMER_DEL_UNIQKEY": "k"}, ("TIMER_DEL_UNIQKEY", "past", f"{NOW_MS}")),
    ],
)  # fmt: skip
def test_invalid_due_time_is_refused_naming_property_limit_and_value(properties, words):
    with pytest.raises(RemotingError) as refused:
        times().redirect_if_delayed(message(**properties))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.value.remark.startswith(
        "timer message illegal, the delay time should not be bigger than the max delay 34560000000ms"
    )
    for word in words:
        assert word in refused.value.remark


def test_delayed_message_is_refused_without_the_timer_wheel():
    off = times(is_enabled=False)
    for properties in ({"TIMER_DELAY_SEC": "0"}, {"__STARTDELIVERTIME": f"{NOW_MS + 1}"}):
        with pytest.raises(RemotingError, match="timerWheelEnable is false") as refused:
            off.redirect_if_delayed(message(**properties))
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert not off.redirect_if_delayed(message(__STARTDELIVERTIME="1"))  # Apache's broker does not know the property


def test_a_full_slot_and_a_full_disk_are_refused():
    with pytest.raises(RemotingError, match=r"flow control.*20 messages \(timerCongestNumEachSlot=10\)") as refused:
        times(Room(20), congestion_max=10).redirect_if_delayed(message(TIMER_DELAY_SEC="5"))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert times(Room(10), congestion_max=10).redirect_if_delayed(message(TIMER_DELAY_SEC="5"))
    room = Room()
    room.refusal = "the disk is full"
    with pytest.raises(RemotingError, match="refused: the disk is full"):
        times(room).redirect_if_delayed(message(TIMER_DELAY_SEC="5"))
    assert not times(room).redirect_if_delayed(message(TIMER_DELAY_SEC="0"))


def test_internal_copy_properties_from_a_client_are_ignored():
    put = message(TIMER_DELAY_SEC="5", PMQ_DUE_MS="1", PMQ_COPY_OF="first", TIMER_ROLL_TIMES="1")
    assert times().redirect_if_delayed(put)
    assert due_of(put.properties, NOW_MS) == (NOW_MS + 5000, True)
    assert b"PMQ_" not in put.properties_bytes


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        # A copy that a PocketMQ broker made: the due time is exact, and a delay stays a delay.
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "7000", "TIMER_ROLL_TIMES": "1", PMQ_DUE_MS: "7123"}, (7123, True)),
        ({"TIMER_DELIVER_MS": "7123", "TIMER_OUT_MS": "7000", "TIMER_ROLL_TIMES": "1"}, (7123, False)),
        # Apache's copy of a delay lacks the first store time: it is due at the end of the slot.
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "7000", "TIMER_ROLL_TIMES": "2"}, (8000, True)),
        ({"TIMER_DELAY_SEC": "soon", "TIMER_OUT_MS": "7000"}, (8000, True)),
        ({"TIMER_OUT_MS": "7000"}, (8000, False)),
    ],
)
def test_records_of_other_brokers_are_never_delivered_early(properties, expected):
    assert due_of(properties, NOW_MS) == expected


def test_record_without_due_time_raises_value_error():
    with pytest.raises(ValueError, match="TIMER_OUT_MS is missing or not a number: 'x'"):
        due_of({"TIMER_OUT_MS": "x"}, NOW_MS)


def test_cancelling_message_is_in_the_same_slot():
    t = times()
    put = message(TIMER_DELIVER_MS="1700000005000", UNIQ_KEY="u")
    assert t.redirect_if_delayed(put)
    out_ms = int(put.properties["TIMER_OUT_MS"])
    mark = t.cancelling("T", "u", "u", out_ms, "pg", HOST, HOST)
    assert (mark.topic, mark.queue_id, mark.body) == (TIMER_TOPIC, 0, b"0")
    assert decode_properties(mark.properties_bytes) == {
        "TAGS": "_RECALL_TAG_", "TIMER_DEL_UNIQKEY": "u", "TIMER_DELIVER_MS": f"{out_ms + 1}", "UNIQ_KEY": "u",
        "PGROUP": "pg", "BORN_TIMESTAMP": f"{NOW_MS}", "TIMER_OUT_MS": f"{out_ms}", "REAL_TOPIC": "T", "REAL_QID": "0",
    }  # fmt: skip
    assert slot_time_ms(int(mark.properties["TIMER_DELIVER_MS"]), 1000) == out_ms
