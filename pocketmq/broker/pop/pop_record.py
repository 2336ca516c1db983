"""Records of pop consumption (Apache: PopCheckPoint, AckMsg). Handles are those of `remoting.handles`.

A consumer that pops messages of a queue has them for the *invisible time*. A *check point* lists the messages handed out, an
*ack* those consumed. Both are messages of the revive topic. The timer delivers the check point one second before the
invisible time is over, and the acks when it is over; `pop_revive` reads them together there. Therefore a starting broker,
this one or Apache's, finds all that it needs in the log.
"""

from typing import Final

import msgspec

from pocketmq.broker.put.delivery_time import TIMER_DELAY_MS, TIMER_DELIVER_MS
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import TAGS, UNIQ_KEY

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
ORDER_REVIVE_QUEUE: Final = 999
"""The revive queue in handles of messages popped in order: neither check point nor ack is stored for these."""
FIRST_POP_TIME: Final = "1ST_POP_TIME"
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
AHEAD_MS: Final = 1000
"""Time by which a check point is delivered before the invisible time is over."""
ACK_AHEAD_MS: Final = 500
"""Time by which acks are delivered before the invisible time is over, if they wait longer than this and AHEAD_MS: an ack is
stored some ms later than the pop, and its delay counts from then."""
MESSAGES_MAX: Final = 32
"""Limit of messages in one check point: its bit map has 32 bits."""


class CheckPoint(msgspec.Struct, omit_defaults=False):
    """Messages that a group popped from one queue. Field names are those of the record.

    `so` start offset, `pt` pop time, `it` invisible time, `bm` bit map of acknowledged messages, `n` number of messages,
    `d` their queue offsets relative to `so`, `rp` number of times it was put again because it could not be revived.
    `pmqLast`, a field of PocketMQ's, is the physical offset of the last message: later records of the queue belong to a
    topic that was deleted and created again.
    """

    so: int
    pt: int
    it: int
    q: int
    t: str
    c: str
    bn: str | None = None
    n: int = 0
    bm: int = 0
    ro: int = 0
    d: list[int] | None = None
    rp: str | None = None
    last: int | None = msgspec.field(name="pmqLast", default=None)

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """The key by which acks refer to it."""
        return self.t, self.c, self.q, self.so, self.pt

    @property
    def revive_ms(self) -> int:
        """The time at which the messages become visible again."""
        return self.pt + self.it

    def queue_offsets(self) -> list[int]:
        """Return the queue offsets of the messages."""
        return [self.so + difference for difference in (self.d or range(self.n))]


class Ack(msgspec.Struct, omit_defaults=True):
    """Ack of one message, `ao`, or of those in the list `aol`; other fields as in `CheckPoint`."""

    ao: int
    so: int
    c: str
    t: str
    q: int
    pt: int
    bn: str | None = None
    aol: list[int] | None = None

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """The key of its check point."""
        return self.t, self.c, self.q, self.so, self.pt

    def queue_offsets(self) -> list[int]:
        """Return the queue offsets of the messages."""
        return [self.ao] if self.aol is None else self.aol


def revive_message(
    entry: CheckPoint | Ack, topic: str, queue_id: int, due_ms: int, host: bytes, now_ms: int, *, is_delay: bool
) -> Message:
    """Return the message of a check point or an ack to be put, without its stored properties.

    The popped messages become visible at `due_ms`; `is_delay` keeps that independent of the calendar.
    """
    if isinstance(entry, CheckPoint):
        tag, queue_offset, end = CHECK_POINT_TAG, entry.so, CHECK_POINT_TAG
        due_ms -= AHEAD_MS
    else:
        tag, queue_offset, end = ACK_TAG if entry.aol is None else BATCH_ACK_TAG, entry.ao, ACK_TAG
        if due_ms - now_ms > AHEAD_MS + ACK_AHEAD_MS:
            due_ms -= ACK_AHEAD_MS
        else:
            is_delay = False
    key = f"{entry.t}@{entry.q}@{queue_offset}@{entry.c}@{entry.pt}@{entry.bn}@{end}"
    properties = {TAGS: tag, UNIQ_KEY: key, TIMER_DELIVER_MS: str(due_ms)}
    if is_delay:
        properties[TIMER_DELAY_MS] = str(due_ms - now_ms)  # precedes the absolute time, which Apache's broker uses
    return Message(topic, queue_id, _encode(entry), host, host, born_timestamp_ms=now_ms, properties=properties)


_encode = msgspec.json.Encoder().encode
_check_point = msgspec.json.Decoder(CheckPoint, strict=False)
_ack = msgspec.json.Decoder(Ack, strict=False)


def read_revive_record(tag: str | None, body: bytes) -> CheckPoint | Ack:
    """Decode a record of the revive topic. Raises ValueError if it is invalid."""
    if tag == CHECK_POINT_TAG:
        return _check_point.decode(body)
    if tag in (ACK_TAG, BATCH_ACK_TAG):
        return _ack.decode(body)
    raise ValueError(f"tag {tag!r} is not one of {CHECK_POINT_TAG}, {ACK_TAG}, {BATCH_ACK_TAG}")
