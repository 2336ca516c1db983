"""Before a CommitLog file goes, what is pending in it is copied forward.

A copy is a new record in the timer topic, with the exact due time in a property, since its store time does not tell it any
more, and the place of the message's first record, by which the earlier ones are known to be superseded. It is entered as any
other. The file may go once the copies are on the disk. As long as there is no room for them the file stays, and no timer
messages are taken.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np

from pocketmq.broker.context import Context
from pocketmq.broker.timer.due_queue import DueQueue
from pocketmq.broker.timer.timer_record import carried_copy, read_timer_record
from pocketmq.broker.timer.wheel_loader import WheelLoader
from pocketmq.store.format.message import PutStatus
from pocketmq.store.format.record import decode_record
from pocketmq.store.timer.timer_store import TimerStore

log = logging.getLogger("broker")

COPIED_AT_ONCE: Final = 32
"""Limit of records copied in one turn of the loop."""


class CopyForward:
    """`refusal` says why no timer message can be taken now, or is None. What is before `carried_to` has its copy."""

    def __init__(
        self, context: Context, timer_store: TimerStore, near: DueQueue, loader: WheelLoader, expect: Callable[[int], None]
    ) -> None:
        """`expect` is told of TIMER_OUT_MS of each copy before it is put."""
        self.refusal: str | None = None
        self._store = context.store
        self._timer_store = timer_store
        self._near = near
        self._loader = loader
        self._steps = context.steps
        self._timers = context.timers
        self._turn = context.turn
        self._precision_ms = context.store.config.timer_precision_ms
        self._expect = expect
        # Everything that was pending before that physical offset is copied, up to the end of the last copy.
        self.carried_to = self._copies_end = 0
        self._target = 0
        self._waiting: list[int] = []
        self._is_copying = False
        # An earlier process may have copied something, and left the file. Of such records, their messages' first ones.
        self._strange_to = context.store.max_physical_offset
        self._copied: set[int] = set()

    def may_remove(self, end_offset: int) -> bool:
        """Whether nothing that is pending lies before `end_offset` only. What does is copied from now on, in later turns."""
        if self._is_copying:
            return False
        if self._waiting:
            self._copy_some()
            return False
        if end_offset > self.carried_to:
            self._begin(end_offset)
            return False
        # What is due so soon is not copied.
        is_near = any(timer.physical_offset < end_offset for timer in self._near)
        return not is_near and self._copies_end <= self._store.flushed_offset

    def _begin(self, end_offset: int) -> None:
        self._loader.finish(self._timers.clock.message_time_ms())
        parts = [part["physical_offset"] for part in self._timer_store.pending(end_offset, self._loader.loaded_to_ms)]
        found = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        # Those before were copied for an earlier file.
        self._waiting = found[found >= self.carried_to][::-1].tolist()
        self._target = end_offset
        if self._waiting:
            log.info("%d pending timer messages before %d are copied forward", len(self._waiting), end_offset)
        self._copy_some()

    def _copy_some(self) -> None:
        self._is_copying = True
        for physical_offset in self._waiting[: -COPIED_AT_ONCE - 1 : -1]:
            if not self._copy(physical_offset):
                self._is_copying = False
                break
            self._waiting.pop()
        self._turn.arm()
        if self._is_copying and self._waiting:
            self._timers.after(0, self._copy_some)
        elif self._is_copying:
            self._is_copying, self.carried_to = False, self._target
            if self.carried_to >= self._strange_to:
                self._copied.clear()

    def _copy(self, physical_offset: int) -> bool:
        view = self._store.message_at(physical_offset)
        if view is None:
            return True
        try:
            timer = read_timer_record(view, self._precision_ms)
            if timer.out_ms < self._loader.loaded_to_ms:
                return True  # its time has come meanwhile
            first = physical_offset if timer.copy_of is None else timer.copy_of
            if physical_offset < self._strange_to and first in self._copied:
                return True
            shift_ms = self._steps.shift_ms(physical_offset, timer.store_timestamp_ms) if timer.is_relative else 0
            message = carried_copy(decode_record(view), timer.due_ms + shift_ms)
        except ValueError as error:
            log.error("the timer message at %d is lost: %s", physical_offset, error)
            return True
        self._expect(timer.out_ms)
        result = self._store.commit_log.put(message)
        if result.status is PutStatus.PUT_OK:
            self.refusal = None
            self._copies_end = result.end_offset
            if physical_offset < self._strange_to:
                self._copied.add(first)
            return True
        reason = result.reason or result.status.name
        log.error("the timer message at %d cannot be copied forward: %s", physical_offset, reason)
        if result.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            return True
        self.refusal = f"pending timer messages cannot be copied out of a file that is to be deleted: {reason}"
        return False
