"""Op messages, and the progress in the half queue.

An op message contains the queue offsets of half messages that were committed or rolled back. 4.9.4 writes one number into
the body, 5.x several with a comma after each. One number is understood by both, so that is written here.

A half message is *finished* if an op message contains it, or if it was stored again or given up. All half messages before
the consumer offset of CID_RMQ_SYS_TRANS in the half queue are finished. An op message that refers only to messages before
that offset is no longer needed; the group's offset in the op queue is the end of these. From both offsets a starting broker,
this one or Apache's, finds the open transactions.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from pocketmq.broker.delay.records import records_from
from pocketmq.broker.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.transaction.transaction_half import HalfMessage
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import TAGS, encode_properties
from pocketmq.store.format.record import BadRecordError, decode_record
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

ADVANCE_MAX: Final = 1000
"""Limit of steps of one `advance`: very many messages behind an old one may be finished."""
_OP_PROPERTIES: Final = {TAGS: "d"}
_OP_PROPERTIES_BYTES: Final = encode_properties(_OP_PROPERTIES).encode()


def op_message(queue_offset: int, now_ms: int, store_host: bytes) -> Message:
    """Return the op message for one half message."""
    return Message(
        TRANS_OP_HALF_TOPIC,
        0,
        b"%d" % queue_offset,
        store_host,
        store_host,
        born_timestamp_ms=now_ms,
        properties=_OP_PROPERTIES,
        properties_bytes=_OP_PROPERTIES_BYTES,
    )


def named_offsets(body: bytes) -> list[int]:
    """Return the queue offsets in the body of an op message: `17` in 4.9.4, `17,18,` in 5.x."""
    return [int(number) for number in body.split(b",") if number.isdigit()]


class HalfPlace(NamedTuple):
    """Place of a half message."""

    queue_offset: int
    physical_offset: int


class TransactionProgress:
    """State of the half queue, which can be read again from the store."""

    def __init__(self) -> None:
        self.half_offset = 0
        """All half messages before it are finished."""
        self.op_offset = 0
        """The op messages before it are no longer needed."""
        self.copies: dict[int, HalfPlace] = {}
        """For open half messages that were stored again: queue offset of the first -> the newest copy."""
        self._done: set[int] = set()  # queue offsets of finished half messages from half_offset on
        self._ops: deque[int] = deque()  # from op_offset on: the highest queue offset in each

    def done(self, queue_offset: int) -> None:
        """Mark a half message as finished."""
        if queue_offset >= self.half_offset:
            self._done.add(queue_offset)
            self.advance()

    def ended(self, queue_offset: int) -> None:
        """Mark a half message as finished; its op message is stored at the end of the turn (`ops_stored`)."""
        if queue_offset >= self.half_offset:
            self._done.add(queue_offset)

    def ops_stored(self, queue_offsets: Iterable[int]) -> None:
        """Note the next op messages of the queue, one for each of these half messages."""
        self._ops.extend(queue_offsets)
        self.advance()

    def skip_to(self, half_offset: int) -> None:
        """Note that half messages before `half_offset` are deleted."""
        self._done = {queue_offset for queue_offset in self._done if queue_offset >= half_offset}
        self.half_offset = max(self.half_offset, half_offset)

    def open_count(self, half_end: int) -> int:
        """Return the number of unfinished half messages if the half queue ends at `half_end`."""
        return max(half_end - self.half_offset - len(self._done), 0)

    def advance(self) -> bool:
        """Move the offsets over finished messages; return False if the limit of steps was reached."""
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
        """Read the open transactions from two consumer offsets on; -1 for an unknown offset."""
        self.half_offset = _corrected(store, TRANS_HALF_TOPIC, half_offset)
        self.op_offset = _corrected(store, TRANS_OP_HALF_TOPIC, op_offset)
        half_end = store.max_offset(TRANS_HALF_TOPIC, 0)
        named: set[int] = set()
        for _, _, view in _records(store, TRANS_OP_HALF_TOPIC, self.op_offset):
            try:
                offsets = [] if view is None else named_offsets(decode_record(view).body)
            except BadRecordError as error:
                log.error("an op message is lost: %s", error)
                offsets = []
            offsets = [offset for offset in offsets if offset < half_end]
            named.update(offsets)
            self._ops.append(max(offsets, default=-1))
        ended: set[int] = set()
        for queue_offset, _, view in _records(store, TRANS_HALF_TOPIC, self.half_offset):
            try:
                self._found(HalfMessage.read(view), named, ended)
            except ValueError as error:
                log.error("the half message %d is lost: %s", queue_offset, error)
                self.done(queue_offset)
        while not self.advance():
            pass

    def _found(self, half: HalfMessage, named: set[int], ended: set[int]) -> None:
        """Note a half message read from the queue.

        Of several copies only the newest counts, and an op message for one copy applies to all: a process may have ended
        between any two of these records.
        """
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
        log.warning(
            "transactions: consumer offset %d of %s is beyond the queue's end %d; corrected", queue_offset, topic, high
        )
    return min(max(queue_offset, low), high)


def _records(store: MessageStore, topic: str, queue_offset: int) -> Iterable[tuple[int, int, memoryview | None]]:
    queue = store.queue(topic, 0)
    return () if queue is None else records_from(store, queue, queue_offset)
