"""TransactionalMessageService: messages that are stored first, and delivered when their producer commits them.

    prepare    the message is stored in the half queue, which consumers do not read   (`transaction_half`)
    end        commit: the message is put into its topic, then an op message marks the half message as finished;
               rollback: only the op message                                          (`transaction_op`)
    check      the broker asks a producer of the group about open transactions        (`transaction_check`)

If a process ends between commit and op message, the transaction is still open after the restart: the producer is asked, and
the message is delivered a second time, as in Apache. A transaction that was checked may be ended twice, by its sender and by
the producer that was asked. The second commit is recognized and not delivered again while this process lives. (Apache
delivers both.)
"""

import logging
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.put.put import MessagePutter
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_half import HalfMessage, as_half
from pocketmq.broker.transaction.transaction_op import TransactionProgress, op_message
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.turn import Phase
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import Message, PutResult

log = logging.getLogger("broker")

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets are the progress in the half queue and the op queue."""
COMMITTED_MAX: Final = 10_000
"""Limit of remembered commits of checked transactions; second commits arrive within about a minute."""
PREPARED_MAX: Final = 1024
"""Limit of half messages kept as they were put: most are ended soon, and then need not be read from the log."""
PREPARED_BODY_SIZE_MAX: Final = 4096


class TransactionalMessageService:
    """Serves transactions. Runs on the event loop only."""

    def __init__(
        self, context: Context, putter: MessagePutter, offsets: ConsumerOffsetManager, topics: TopicConfigManager,
        progress: TransactionProgress, check: TransactionCheck,
    ) -> None:  # fmt: skip
        self._store = context.store
        self._putter = putter
        self._offsets = offsets
        self._topics = topics
        self._progress = progress
        self.check = check
        self._context = context
        self._committed: dict[int, None] = {}  # first offsets, oldest first
        self._prepared: dict[int, tuple[Message, PutResult]] = {}  # by physical offset, oldest first
        self._ending = context.turn.add(Phase.DISPATCH, self.end_turn, is_always_due=False)  # before the turn's dispatch
        self._ended: list[int] = []  # queue offsets of the half messages that this turn ended
        self._written = (-1, -1)
        self._unwritten: tuple[int, tuple[int, int]] | None = None  # (end of the log to be synced first, offsets)

    # --- start ----------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Read the open transactions from the store."""
        self._written = (
            self._offsets.query(GROUP, TRANS_HALF_TOPIC, 0),
            self._offsets.query(GROUP, TRANS_OP_HALF_TOPIC, 0),
        )
        self._progress.read(self._store, *self._written)

    @property
    def open_count(self) -> int:
        """Number of transactions that are neither committed nor rolled back."""
        return self._progress.open_count(self._store.max_offset(TRANS_HALF_TOPIC, 0))

    # --- requests of producers and tools ----------------------------------------------------------------------------

    def prepare(self, message: Message, text: str) -> PutResult:
        """Store the half message of a message; `text` is its properties as a string.

        Raises RemotingError when the store refuses it.
        """
        is_plain = as_half(message, text, self._putter.stored_properties)
        result = self._putter.put_at_once(message)
        self.check.half_stored(result.queue_offset)
        if is_plain and len(message.body) <= PREPARED_BODY_SIZE_MAX:
            prepared = self._prepared
            prepared[result.physical_offset] = message, result
            if len(prepared) > PREPARED_MAX:
                del prepared[next(iter(prepared))]
        return result

    def find(self, physical_offset: int) -> HalfMessage:
        """Return the half message at a physical offset. Raises ValueError if there is none."""
        prepared = self._prepared.pop(physical_offset, None)
        if prepared is not None:
            return HalfMessage.prepared(*prepared)
        return self._read(physical_offset, TRANS_HALF_TOPIC)

    def _read(self, physical_offset: int, topic: str) -> HalfMessage:
        """Read the half message, or with `topic` one that was given up. Raises ValueError if there is none.

        The queue must refer to it too: a body may contain bytes that look like a record.
        """
        half = HalfMessage.read(self._store.message_at(physical_offset), topic)
        unit = self._store.unit_at(topic, 0, half.queue_offset)
        if unit is None or unit[0] != physical_offset:
            raise ValueError("no queue refers to it")
        return half

    def resume(self, physical_offset: int) -> None:
        """Restart the checks of a transaction that was given up. Raises ValueError if none is there, and RemotingError."""
        given_up = self._read(physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)
        result = self._putter.put_at_once(given_up.resumed(self._context.store_host))
        self.check.half_stored(result.queue_offset)

    def commit(self, half: HalfMessage) -> int:
        """Deliver the message, now or when it is due; return its end offset in the log, 0 if it was committed before.

        Raises RemotingError if the store refuses it; the transaction stays open.
        """
        first, queue_offset, physical_offset = half.first_offset, half.queue_offset, half.physical_offset
        newest = self._progress.copies.get(first)
        if first in self._committed:
            log.info("the transaction of %s was committed twice; the second commit is ignored", half.unique_key)
            return 0
        if newest is not None:
            queue_offset, physical_offset = newest
        message = half.committed(self._context.store_host, physical_offset)
        message.queue_id = self._topics.readable_queue(message.topic, message.queue_id)
        end_offset = self._putter.put(message).end_offset
        if newest is not None:
            self._committed[first] = None
            if len(self._committed) > COMMITTED_MAX:
                del self._committed[next(iter(self._committed))]
        self._end(first, queue_offset)
        return end_offset

    def roll_back(self, half: HalfMessage) -> None:
        """Mark the half message as finished without delivering the message."""
        newest = self._progress.copies.get(half.first_offset)
        self._end(half.first_offset, half.queue_offset if newest is None else newest.queue_offset)

    def _end(self, first_offset: int, queue_offset: int) -> None:
        """Mark the newest copy of the half message as finished, in this process now, in the log at the end of the turn."""
        self._progress.copies.pop(first_offset, None)
        self._progress.ended(queue_offset)
        self._ended.append(queue_offset)
        self._ending.is_due = True

    def end_turn(self) -> None:
        """Store the op messages of the transactions ended in this turn."""
        ended, self._ended = self._ended, []
        try:
            now_ms, host = self._context.clock.message_time_ms(), self._context.store_host
            self._putter.put_batch([op_message(queue_offset, now_ms, host) for queue_offset in ended])
            self._progress.ops_stored(ended)
        except (OSError, RemotingError) as error:
            reason = error.remark if isinstance(error, RemotingError) else error
            log.error(
                "the transactions of half messages %s ended, but their op messages cannot be stored: %s", ended, reason
            )
            self._progress.advance()
        self.check.half_done()

    # --- progress ---------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Commit the progress in half queue and op queue as it was at the last call.

        By now all copies and commits before it are synced; otherwise a power cut could lose a message that counts as
        finished.
        """
        unwritten = self._unwritten
        if unwritten is not None and unwritten[0] <= self._store.flushed_offset:
            self._written, self._unwritten = unwritten[1], None
            for topic, queue_offset in zip((TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC), self._written, strict=True):
                self._offsets.commit(GROUP, topic, 0, queue_offset)
        self._note()
        self.check.look()

    def _note(self) -> None:
        places = (self._progress.half_offset, self._progress.op_offset)
        if self._unwritten is None and places != self._written and any(places):
            self._unwritten = (self._store.max_physical_offset, places)

    def close(self) -> None:
        """Commit the present progress after the store has synced its log."""
        self._unwritten = None
        self._note()
        self.persist()

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no open half message lies in the CommitLog before `end_offset`."""
        unit = self._store.unit_at(TRANS_HALF_TOPIC, 0, self._progress.half_offset)
        return unit is None or unit[2] == HOLE_TAGS_CODE or unit[0] >= end_offset
