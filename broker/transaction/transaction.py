"""TransactionalMessageService: messages that are stored first, and delivered when their sender says so.

    prepare    the message goes into the half queue, where no consumer reads it   (`transaction_half`)
    end        commit: the message goes to its topic, then an op message names the half message as done with; roll back:
               only the op message                                                (`transaction_op`)
    check      the broker asks a producer of the group about what stays open      (`transaction_check`)

A process that ends between commit and op message finds the transaction open: the producer is asked, and the message comes a
second time, as with Apache. A transaction that was asked about meanwhile may be ended twice, by its sender and by who was
asked: there the second commit is known and not delivered again, as long as this process lives. (Apache delivers both.)
"""

import logging
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.put.put import MessagePutter
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_half import HalfMessage, as_half
from pocketmq.broker.transaction.transaction_op import TransactionProgress, op_body, op_message
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import Message, PutResult

log = logging.getLogger("broker")

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets tell how far half and op messages are done with."""
COMMITTED_MAX: Final = 10_000
"""So many commits of transactions that were asked about are known; their second ones come within a minute or so."""
PREPARED_MAX: Final = 1024
"""So many half messages are kept as they were put: most are ended within milliseconds, and need not be read for that."""
PREPARED_BODY_SIZE_MAX: Final = 4096


class TransactionalMessageService:
    """All of it belongs to the loop."""

    def __init__(
        self, context: Context, putter: MessagePutter, offsets: ConsumerOffsetManager, progress: TransactionProgress,
        check: TransactionCheck,
    ) -> None:  # fmt: skip
        self._store = context.store
        self._putter = putter
        self._offsets = offsets
        self._progress = progress
        self._check = check
        self._store_host = context.store_host
        self._clock = context.clock
        self._committed: dict[int, None] = {}  # first offsets, oldest first
        self._prepared: dict[int, tuple[Message, PutResult]] = {}  # by physical offset, oldest first
        self._ended: list[int] = []  # queue offsets of the half messages that this turn ended
        self._written = (-1, -1)
        self._unwritten: tuple[int, tuple[int, int]] | None = None  # waits for the log to be synced up to there

    # --- life -------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Find what is open."""
        self._written = (
            self._offsets.query(GROUP, TRANS_HALF_TOPIC, 0),
            self._offsets.query(GROUP, TRANS_OP_HALF_TOPIC, 0),
        )
        self._progress.read(self._store, *self._written)

    def start(self) -> None:
        """Look after what is open."""
        self._check.start()

    def stop(self) -> None:
        """Ask nobody any more."""
        self._check.stop()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done before a time comes."""
        return self._check.is_idle

    # --- what producers ask -----------------------------------------------------------------------------------------

    def prepare(self, message: Message, text: str) -> PutResult:
        """Store the half message of a message; `text` is the string of its properties.

        Raises RemotingError when the store refuses it.
        """
        is_plain = as_half(message, text, self._putter.stored_properties)
        result = self._putter.put_at_once(message)
        self._check.half_stored(result.queue_offset)
        if is_plain and len(message.body) <= PREPARED_BODY_SIZE_MAX:
            prepared = self._prepared
            prepared[result.physical_offset] = message, result
            if len(prepared) > PREPARED_MAX:
                del prepared[next(iter(prepared))]
        return result

    def find(self, physical_offset: int) -> HalfMessage:
        """The half message at a physical offset. Raises ValueError when none is there."""
        prepared = self._prepared.pop(physical_offset, None)
        if prepared is not None:
            return HalfMessage.prepared(*prepared)
        return self._read(physical_offset, TRANS_HALF_TOPIC)

    def _read(self, physical_offset: int, topic: str) -> HalfMessage:
        """The half message, or one that was given up, by `topic`. Raises ValueError when none is there.

        The queue must know it too: a body may hold bytes that look like a record.
        """
        half = HalfMessage.read(self._store.message_at(physical_offset), topic)
        queue = self._store.queue(topic, 0)
        unit = None if queue is None else queue.unit_at(half.queue_offset)
        if unit is None or unit[0] != physical_offset:
            raise ValueError("it stands in no queue")
        return half

    def resume(self, physical_offset: int) -> None:
        """Ask again about what was given up, and lies there. Raises ValueError when it does not, and RemotingError."""
        given_up = self._read(physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)
        result = self._putter.put_at_once(given_up.resumed(self._store_host))
        self._check.half_stored(result.queue_offset)

    def commit(self, half: HalfMessage) -> int:
        """Deliver the message, now or when it is due; the physical offset behind it, 0 if that was done before.

        Raises RemotingError when the store refuses it: it stays open.
        """
        first, queue_offset, physical_offset = half.first_offset, half.queue_offset, half.physical_offset
        newest = self._progress.copies.get(first)
        if first in self._committed:
            log.info("the transaction of %s is committed twice, and delivered once", half.unique_key)
            return 0
        if newest is not None:
            queue_offset, physical_offset = newest
        end_offset = self._putter.put(half.committed(self._store_host, physical_offset)).end_offset
        if newest is not None:
            self._committed[first] = None
            if len(self._committed) > COMMITTED_MAX:
                del self._committed[next(iter(self._committed))]
        self._end(first, queue_offset)
        return end_offset

    def roll_back(self, half: HalfMessage) -> None:
        """Never deliver the message."""
        newest = self._progress.copies.get(half.first_offset)
        self._end(half.first_offset, half.queue_offset if newest is None else newest.queue_offset)

    def _end(self, first_offset: int, queue_offset: int) -> None:
        """Half message, of copies the newest, is done with: this process knows it now, the log by the turn's end."""
        self._progress.copies.pop(first_offset, None)
        self._progress.ended(queue_offset)
        self._ended.append(queue_offset)

    def end_turn(self) -> None:
        """Store the op messages of what was ended. To be run before the turn's dispatch."""
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        try:
            message = op_message(self._clock.message_time_ms(), self._store_host)
            self._putter.put_alike(message, [*map(op_body, ended)])
            self._progress.ops_stored(ended)
        except (OSError, RemotingError) as error:
            reason = error.remark if isinstance(error, RemotingError) else error
            log.error("the half messages %s are ended, but no op message can tell: %s", ended, reason)
            self._progress.advance()
        self._check.half_done()

    # --- how far ----------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Tell the consumer offsets how far half and op queue are done with, as of the last call: by now all copies and
        commits before are synced, without which a power cut could lose a message in both places."""
        unwritten = self._unwritten
        if unwritten is not None and unwritten[0] <= self._store.flushed_offset:
            self._written, self._unwritten = unwritten[1], None
            for topic, queue_offset in zip((TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC), self._written, strict=True):
                self._offsets.commit(GROUP, topic, 0, queue_offset)
        self._note()
        self._check.look()

    def _note(self) -> None:
        places = (self._progress.half_offset, self._progress.op_offset)
        if self._unwritten is None and places != self._written and any(places):
            self._unwritten = (self._store.max_physical_offset, places)

    def close(self) -> None:
        """Tell how far it is now, once the store has synced its log."""
        self._unwritten = None
        self._note()
        self.persist()

    def may_remove(self, end_offset: int) -> bool:
        """Whether no half message that is open lies in the CommitLog before `end_offset`."""
        queue = self._store.queue(TRANS_HALF_TOPIC, 0)
        unit = None if queue is None else queue.unit_at(self._progress.half_offset)
        return unit is None or unit[2] == HOLE_TAGS_CODE or unit[0] >= end_offset
