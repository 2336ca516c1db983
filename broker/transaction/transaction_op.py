"""Op messages, and how far the half messages are done with.

An op message names, by their queue offsets, half messages that were committed or rolled back. 4.9.4 writes one number into
its body, 5.x many with a comma behind each; one number is what both of them read, and what is written here.

*Done with* are half messages that an op message names, that were stored again, or given up. How far that goes without a gap
is the consumer offset of CID_RMQ_SYS_TRANS in the half queue. An op message that names nothing behind it is needed no more:
up to there goes the group's offset in the op queue. From the two a broker that starts, ours or Apache's, sees what is open.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pocketmq.broker.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.transaction.transaction_half import HalfMessage
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, HOLE_TAGS_CODE
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import TAGS, encode_properties
from pocketmq.store.format.record import BadRecordError, decode_record
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

ADVANCE_MAX: Final = 1000
"""Limit of the steps of one `advance`: behind an old half message very many may be done with."""
_OP_PROPERTIES: Final = {TAGS: "d"}
_OP_PROPERTIES_BYTES: Final = encode_properties(_OP_PROPERTIES).encode()
_UNITS_READ: Final = 1000


def op_message(now_ms: int, store_host: bytes) -> Message:
    """An op message but for its body, which is `op_body`'s."""
    return Message(
        TRANS_OP_HALF_TOPIC,
        0,
        b"",
        store_host,
        store_host,
        born_timestamp_ms=now_ms,
        properties=_OP_PROPERTIES,
        properties_bytes=_OP_PROPERTIES_BYTES,
    )


def op_body(queue_offset: int) -> bytes:
    """The body of the op message that names one half message."""
    return b"%d" % queue_offset


def named_offsets(body: bytes) -> list[int]:
    """The queue offsets in the body of an op message: `17` of 4.9.4, `17,18,` of 5.x."""
    return [int(number) for number in body.split(b",") if number.isdigit()]


class HalfPlace(NamedTuple):
    """Where a half message stands."""

    queue_offset: int
    physical_offset: int


class TransactionProgress:
    """What is known of the half queue; all of it can be read again from the store."""

    def __init__(self) -> None:
        self.half_offset = 0
        """Everything before is done with."""
        self.op_offset = 0
        """The op messages before are needed no more."""
        self.copies: dict[int, HalfPlace] = {}
        """Of open half messages that were stored again: queue offset of the first -> the newest copy."""
        self._done: set[int] = set()  # behind half_offset
        self._ops: deque[int] = deque()  # from op_offset on: the highest queue offset that each names

    def done(self, queue_offset: int) -> None:
        """A half message is committed, rolled back, stored again or given up."""
        if queue_offset >= self.half_offset:
            self._done.add(queue_offset)
            self.advance()

    def ended(self, queue_offset: int) -> None:
        """A half message is committed or rolled back; the turn tells it (`ops_stored`)."""
        if queue_offset >= self.half_offset:
            self._done.add(queue_offset)

    def ops_stored(self, queue_offsets: Iterable[int]) -> None:
        """The next op messages of the queue name these half messages, one each."""
        self._ops.extend(queue_offsets)
        self.advance()

    def skip_to(self, half_offset: int) -> None:
        """The half messages before are gone."""
        self._done = {queue_offset for queue_offset in self._done if queue_offset >= half_offset}
        self.half_offset = max(self.half_offset, half_offset)

    def advance(self) -> bool:
        """Go on over what is done with; False: there may be more of it."""
        done, half_offset = self._done, self.half_offset
        end = half_offset + ADVANCE_MAX
        while half_offset in done and half_offset < end:
            done.discard(half_offset)
            half_offset += 1
        self.half_offset = half_offset
        ops = self._ops
        while ops and ops[0] < half_offset:
            ops.popleft()
            self.op_offset += 1
        return half_offset not in done

    # --- at start ---------------------------------------------------------------------------------------------------

    def read(self, store: MessageStore, half_offset: int, op_offset: int) -> None:
        """Find what is open behind two consumer offsets, -1 for one that is not known."""
        self.half_offset = _corrected(store, TRANS_HALF_TOPIC, half_offset)
        self.op_offset = _corrected(store, TRANS_OP_HALF_TOPIC, op_offset)
        half_end = store.max_offset(TRANS_HALF_TOPIC, 0)
        named: set[int] = set()
        for _, view in _records(store, TRANS_OP_HALF_TOPIC, self.op_offset):
            try:
                offsets = [] if view is None else named_offsets(decode_record(view).body)
            except BadRecordError as error:
                log.error("an op message is lost: %s", error)
                offsets = []
            offsets = [offset for offset in offsets if offset < half_end]
            named.update(offsets)
            self._ops.append(max(offsets, default=-1))
        ended: set[int] = set()
        for queue_offset, view in _records(store, TRANS_HALF_TOPIC, self.half_offset):
            try:
                self._found(HalfMessage.read(view), named, ended)
            except ValueError as error:
                log.error("the half message %d is lost: %s", queue_offset, error)
                self.done(queue_offset)
        while not self.advance():
            pass

    def _found(self, half: HalfMessage, named: set[int], ended: set[int]) -> None:
        """A half message from the queue. Of one that was stored again only the newest copy counts, and what is said of one
        copy is said of all: a process may have ended between any two of these records."""
        queue_offset, first = half.queue_offset, half.first_offset
        earlier = self.copies.pop(first, None)
        if earlier is not None:
            self.done(earlier.queue_offset)
        elif first != queue_offset:
            self.done(first)
        if queue_offset in named or first in named or first in ended:
            ended.add(first)
            self.done(queue_offset)
        elif first != queue_offset:
            self.copies[first] = HalfPlace(queue_offset, half.physical_offset)


def _corrected(store: MessageStore, topic: str, queue_offset: int) -> int:
    queue = store.queue(topic, 0)
    low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
    if queue_offset > high:
        log.warning("transactions: consumer offset %d of %s is behind its end %d; corrected", queue_offset, topic, high)
    return min(max(queue_offset, low), high)


def _records(store: MessageStore, topic: str, queue_offset: int) -> Iterator[tuple[int, memoryview | None]]:
    """(queue offset, record) from a queue offset on; None where there is none any more."""
    queue = store.queue(topic, 0)
    while queue is not None and (units := queue.units(queue_offset, _UNITS_READ)):
        for physical_offset, _, tags_code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            yield queue_offset, None if tags_code == HOLE_TAGS_CODE else store.message_at(physical_offset)
            queue_offset += 1
