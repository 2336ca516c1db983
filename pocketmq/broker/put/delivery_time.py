"""Delivery times: those requested by senders, and those in stored records.

A sender sets a delivery time by one of five properties. If there are several, the first in this list counts:

    DELAY                a level of messageDelayLevel (broker.put, broker.delay.level_source)
    TIMER_DELAY_SEC      seconds from now
    TIMER_DELAY_MS       ms from now
    TIMER_DELIVER_MS     a time, epoch ms
    __STARTDELIVERTIME   a time, epoch ms: the property of Alibaba Cloud's clients, which Apache's broker does not know

A message with a time in the past is delivered at once. Others wait in the timer topic. TIMER_OUT_MS is the due time rounded
down to the second as in 5.5.0 (HookUtils.transformTimerMessage), so that Apache's broker finds the same slot. The exact time
is not lost: it follows from the property and, for a delay, the record's store time.

A cancellation is another message in the same slot, which refers to messages of its own topic by TIMER_DEL_UNIQKEY and is
never delivered.
"""

import random
import re
from typing import Final, NamedTuple, NoReturn, Protocol

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import Clock
from pocketmq.store.format.message import TRANSACTION_UNQUEUED_FLAG, Message
from pocketmq.store.format.properties import DELAY, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, encode_properties

TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PMQ_DUE_MS: Final = "PMQ_DUE_MS"
"""PocketMQ's own: due time (epoch ms) of a record that was carried forward, whose store time is that of the copy."""
PMQ_COPY_OF: Final = "PMQ_COPY_OF"
"""PocketMQ's own: physical offset of the first record of a message that was carried forward."""
PMQ_CANCELS: Final = "PMQ_CANCELS"
"""PocketMQ's own: physical offset of the first record of the one message that is cancelled."""

ASKED: Final = ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1), (TIMER_DELIVER_MS, 0), (START_DELIVER_TIME, 0))
"""(property with a delivery time, ms per unit of a delay or 0 for an absolute time), in order of precedence."""
TIMER_PROPERTIES: Final = tuple(name for name, _ in ASKED)
DELAYING_PROPERTIES: Final = frozenset((DELAY, *TIMER_PROPERTIES))
RECALL_TAG: Final = "_RECALL_TAG_"

_STALE: Final = (PMQ_DUE_MS, PMQ_COPY_OF, PMQ_CANCELS, TIMER_ROLL_TIMES)  # wrong in a new message from a client
_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PRODUCER_GROUP: Final = "PGROUP"
_RELATIVE_MS: Final = {name: unit_ms for name, unit_ms in ASKED if unit_ms}
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}", re.ASCII)
_DIGITS_PLAIN: Final = 19  # fewer digits always fit 64 bits
_INT64: Final = range(-(1 << 63), 1 << 63)
NO_CONGESTION: Final = (1 << 31) - 1
"""The default of timerCongestNumEachSlot: no limit per slot."""


class TimerRoom(Protocol):
    """Interface to the timer service, used by puts."""

    @property
    def refusal(self) -> str | None: ...

    def count_at(self, out_ms: int) -> int: ...

    def expect(self, out_ms: int) -> None: ...


class DueTime(NamedTuple):
    """`due_ms`: epoch ms. `is_relative`: it is a delay after the store time, not an absolute time."""

    due_ms: int
    is_relative: bool


def slot_time_ms(due_ms: int, precision_ms: int) -> int:
    """Return TIMER_OUT_MS of a due time: the last multiple of the precision before it, never the time itself."""
    return (due_ms - 1) // precision_ms * precision_ms


def asked_property(properties: dict[str, str]) -> str | None:
    """Return the property of TIMER_PROPERTIES that counts, if any."""
    for name in TIMER_PROPERTIES:
        if name in properties:
            return name
    return None


def due_of(properties: dict[str, str], store_timestamp_ms: int, precision_ms: int = 1000) -> DueTime:
    """Return the due time of a record of the timer topic: exact to the ms if known, else the end of its slot.

    `properties` are the record's. Raises ValueError if they contain no due time.
    """
    name = asked_property(properties)
    unit_ms = None if name is None else _RELATIVE_MS.get(name)
    is_relative = unit_ms is not None
    carried = _number(properties.get(PMQ_DUE_MS))
    if carried is not None:
        return DueTime(carried, is_relative)
    asked = None if name is None else _number(properties[name])
    if asked is not None and unit_ms is None:
        return DueTime(asked, False)
    if asked is not None and unit_ms is not None and TIMER_ROLL_TIMES not in properties:
        return DueTime(store_timestamp_ms + asked * unit_ms, True)
    # Apache's broker stored the message again, so the first store time is lost; or the property is not a valid number.
    out_ms = _number(properties.get(TIMER_OUT_MS))
    if out_ms is None:
        raise ValueError(f"{TIMER_OUT_MS} is missing or not a number: {properties.get(TIMER_OUT_MS)!r}")
    return DueTime(out_ms + precision_ms, is_relative)


class DeliveryTimes:
    """Converts messages with delivery times into their form in the timer topic."""

    def __init__(
        self,
        clock: Clock,
        timers: TimerRoom,
        *,
        cluster: tuple[str, str],
        is_enabled: bool = True,
        precision_ms: int = 1000,
        delay_max_s: int = 400 * 86_400,
        congestion_max: int = NO_CONGESTION,
    ) -> None:
        """`cluster`: name and value of a property of each stored message. Others: timerWheelEnable and related settings."""
        self._clock = clock
        self._timers = timers
        self._cluster = cluster
        self.is_enabled = is_enabled
        self.precision_ms = precision_ms
        self.delay_max_ms = delay_max_s * 1000
        self.congestion_max = congestion_max

    def redirect_if_delayed(self, message: Message) -> bool:
        """Turn a message that is due later into its form in the timer topic; return False if it is to be delivered at once.

        Raises RemotingError with 5.5.0's codes if the delivery time is refused.
        """
        properties = message.properties
        name = asked_property(properties)
        if name is None or TIMER_OUT_MS in properties or message.sys_flag & TRANSACTION_UNQUEUED_FLAG:
            return False
        now_ms = self._clock.message_time_ms()
        due_ms = self._asked_due_ms(name, properties[name], now_ms)
        if not self.is_enabled and (name != START_DELIVER_TIME or due_ms > now_ms):
            remark = f"accurate timer message is not enabled, timerWheelEnable is false: {name}={properties[name]}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        if due_ms <= now_ms:
            if TIMER_DEL_UNIQKEY in properties:
                self._refuse(f"{TIMER_DEL_UNIQKEY} has no effect at a time in the past, {name}={properties[name]}")
            return False
        if due_ms - now_ms > self.delay_max_ms:
            self._refuse(f"{name}={properties[name]} is {due_ms - now_ms} ms from now")
        out_ms = slot_time_ms(due_ms, self.precision_ms)
        self.check_room(out_ms)
        properties.setdefault(*self._cluster)
        for name in _STALE:
            properties.pop(name, None)
        self._as_timer(message, out_ms)
        return True

    def check_room(self, out_ms: int) -> None:
        """Raise RemotingError if the slot of this TIMER_OUT_MS, or the timer service as a whole, takes no more messages."""
        if self._timers.refusal is not None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"timer message is refused: {self._timers.refusal}")
        congestion_max = self.congestion_max
        if congestion_max < NO_CONGESTION:
            excess = self._timers.count_at(out_ms) - congestion_max
            # Above twice the limit all are refused; in between a share that grows with the excess.
            if excess > 0 and random.random() * congestion_max < excess:
                remark = (
                    f"timer message is under flow control, the slot of {TIMER_OUT_MS}={out_ms} holds "
                    f"{congestion_max + excess} messages (timerCongestNumEachSlot={congestion_max})"
                )
                raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)

    def cancelling(
        self,
        topic: str,
        key: str,
        unique_key: str | None,
        out_ms: int,
        producer_group: str | None,
        host: bytes,
        store_host: bytes,
        only: int | None = None,
    ) -> Message:
        """Return the message that cancels the messages of `topic` with `key` in the slot of `out_ms`; it is to be put
        unchanged. With `only`, it cancels just the one whose first record has that physical offset.

        As made by 5.5.0's RecallMessageProcessor, which does not know `only`. `host` is the requesting client's address,
        packed as in records.
        """
        now_ms = self._clock.message_time_ms()
        properties = {
            TAGS: RECALL_TAG,
            TIMER_DEL_UNIQKEY: key,
            TIMER_DELIVER_MS: str(out_ms + 1),
            _BORN_TIMESTAMP: str(now_ms),
        }
        if unique_key:
            properties[UNIQ_KEY] = unique_key
        if only is not None:
            properties[PMQ_CANCELS] = str(only)
        if producer_group:
            properties[PRODUCER_GROUP] = producer_group
        message = Message(topic, 0, b"0", host, store_host, born_timestamp_ms=now_ms, properties=properties)
        self._as_timer(message, out_ms)
        return message

    def _as_timer(self, message: Message, out_ms: int) -> None:
        self._timers.expect(out_ms)
        properties = message.properties
        properties[TIMER_OUT_MS] = str(out_ms)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.topic, message.queue_id = TIMER_TOPIC, 0
        message.properties_bytes = encode_properties(properties).encode()

    def _asked_due_ms(self, name: str, text: str, now_ms: int) -> int:
        asked = _number(text)
        if asked is None:
            self._refuse(f"{name}={text!r} is not a whole number of 64 bits")
        unit_ms = _RELATIVE_MS.get(name)
        return asked if unit_ms is None else now_ms + asked * unit_ms

    def _refuse(self, why: str) -> NoReturn:
        remark = (
            f"timer message illegal, the delay time should not be bigger than the max delay {self.delay_max_ms}ms "
            f"(timerMaxDelaySec={self.delay_max_ms // 1000}): {why}"
        )
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)


def _number(text: str | None) -> int | None:
    """Parse a number as Java's Long.parseLong does; None if it is not a number."""
    if text is None:
        return None
    if len(text) < _DIGITS_PLAIN and text.isascii() and text.isdecimal():
        return int(text)
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number in _INT64 else None
