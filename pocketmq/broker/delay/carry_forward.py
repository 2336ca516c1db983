"""Carrying pending timer messages forward before their CommitLog file is deleted: they are copied to the end of the log.

A copy is a new record in the timer topic. Two properties are added: the exact due time, because it does not follow from the
store time of the copy, and the physical offset of the message's first record, by which earlier records are recognized as
superseded. The copy is entered like any other message. The file may be deleted once the copies are on disk. While there is
no space for the copies, the file stays and timer messages are refused.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np

from pocketmq.broker.context import Context
from pocketmq.broker.delay.due_queue import DueQueue
from pocketmq.broker.delay.records import carried_copy, read_timer_record
from pocketmq.broker.delay.wheel_loader import WheelLoader
from pocketmq.store.format.message import PutStatus
from pocketmq.store.format.record import decode_record
from pocketmq.store.timer.timer_store import TimerStore

log = logging.getLogger("broker")

CARRIED_AT_ONCE: Final = 32
"""Limit of records copied in one turn of the loop."""


class CarryForward:
    """Carries records forward, and decides when retention may delete a file.

    `refusal` is the reason for refusing timer messages at present, or None. Pending records before `carried_to` are carried
    forward.
    """

    def __init__(
        self, context: Context, timer_store: TimerStore, near: DueQueue, loader: WheelLoader, expect: Callable[[int], None]
    ) -> None:
        """`expect` is called with TIMER_OUT_MS of each copy before the copy is put."""
        self.refusal: str | None = None
        self._context = context
        self._timer_store = timer_store
        self._near = near
        self._loader = loader
        self._precision_ms = context.store.config.timer_precision_ms
        self._expect = expect
        # Every record that was pending before physical offset `carried_to` is copied; the last copy ends at `_copies_end`.
        self.carried_to = self._copies_end = 0
        self._target = 0
        self._waiting: list[int] = []
        self._is_carrying = False
        # Before this offset, the log's end at the start, a message may have several records: an earlier process may have
        # copied it and not deleted the file. `_carried` has the first offsets of those messages that were copied since.
        self._end_at_start = context.store.max_physical_offset
        self._carried: set[int] = set()

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no pending record lies before `end_offset`; if one does, start copying in later turns."""
        if self._is_carrying:
            return False
        if self._waiting:
            self._carry_some()
            return False
        if end_offset > self.carried_to:
            self._begin(end_offset)
            return False
        # Records that are due so soon are not copied.
        is_near = any(timer.physical_offset < end_offset for timer in self._near)
        return not is_near and self._copies_end <= self._context.store.flushed_offset

    def _begin(self, end_offset: int) -> None:
        self._loader.finish(self._context.timers.clock.message_time_ms())
        parts = [part["physical_offset"] for part in self._timer_store.pending(end_offset, self._loader.loaded_to_ms)]
        found = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        # Records before `carried_to` were copied for an earlier file.
        self._waiting = found[found >= self.carried_to][::-1].tolist()
        self._target = end_offset
        if self._waiting:
            log.info(
                "%d pending timer messages before physical offset %d are copied to the log's end",
                len(self._waiting),
                end_offset,
            )
        self._carry_some()

    def _carry_some(self) -> None:
        self._is_carrying = True
        for physical_offset in self._waiting[: -CARRIED_AT_ONCE - 1 : -1]:
            if not self._carry(physical_offset):
                self._is_carrying = False
                break
            self._waiting.pop()
        self._context.turn.arm()
        if self._is_carrying and self._waiting:
            self._context.timers.after(0, self._carry_some)
        elif self._is_carrying:
            self._is_carrying, self.carried_to = False, self._target
            if self.carried_to >= self._end_at_start:
                self._carried.clear()

    def _carry(self, physical_offset: int) -> bool:
        view = self._context.store.message_at(physical_offset)
        if view is None:
            return True
        try:
            timer = read_timer_record(view, self._precision_ms)
            if timer.out_ms < self._loader.loaded_to_ms:
                return True  # its slot has been loaded in the meantime
            first = physical_offset if timer.copy_of is None else timer.copy_of
            if physical_offset < self._end_at_start and first in self._carried:
                return True
            shift_ms = self._context.steps.shift_ms(physical_offset, timer.store_timestamp_ms) if timer.is_relative else 0
            message = carried_copy(decode_record(view), timer.due_ms + shift_ms)
        except ValueError as error:
            log.error("the timer message at physical offset %d is lost: %s", physical_offset, error)
            return True
        self._expect(timer.out_ms)
        result = self._context.store.commit_log.put(message)
        if result.status is PutStatus.PUT_OK:
            self.refusal = None
            self._copies_end = result.end_offset
            if physical_offset < self._end_at_start:
                self._carried.add(first)
            return True
        reason = result.reason or result.status.name
        log.error("the timer message at physical offset %d cannot be copied to the log's end: %s", physical_offset, reason)
        if result.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            return True
        self.refusal = f"pending timer messages cannot be copied out of a file that is to be deleted: {reason}"
        return False
