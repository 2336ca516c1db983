"""Answers that wait until the log has reached a state up to their end offset: synced, and later replicated."""

from collections import deque
from typing import NamedTuple

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.timers import Timer, Timers


class _Waiting(NamedTuple):
    end_offset: int
    deadline_s: float
    deferred: Deferred
    response: Response


class OffsetWait:
    """Waiting answers in the order of their end offsets, with one timer for the oldest."""

    def __init__(self, timers: Timers, timeout_s: float, timeout_code: ResponseCode) -> None:
        """An answer that waited for `timeout_s` is sent with `timeout_code`: its message is stored, with its ids."""
        self._timers = timers
        self._timeout_s = timeout_s
        self._timeout_code = timeout_code
        self._waiting: deque[_Waiting] = deque()
        self._timer: Timer | None = None

    def add(self, end_offset: int, response: Response) -> Deferred:
        """Return an answer that is completed with `response` once the log has reached the state up to `end_offset`."""
        deadline_s = self._timers.clock.monotonic() + self._timeout_s
        deferred = Deferred()
        self._waiting.append(_Waiting(end_offset, deadline_s, deferred, response))
        if self._timer is None:
            self._timer = self._timers.after(self._timeout_s, self._time_out)
        return deferred

    def reached(self, offset: int, refusal: Response | None = None) -> None:
        """Complete the answers up to `offset`, with `refusal` if their records will never reach the state."""
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            row = waiting.popleft()
            row.deferred.complete(row.response if refusal is None else refusal)

    def close(self) -> None:
        """Drop the waiting answers."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    def _time_out(self) -> None:
        waiting, now_s = self._waiting, self._timers.clock.monotonic()
        while waiting and waiting[0].deadline_s <= now_s:
            row = waiting.popleft()
            row.response.code = self._timeout_code
            row.deferred.complete(row.response)
        self._timer = None
        if waiting:
            self._timer = self._timers.after(waiting[0].deadline_s - now_s, self._time_out)
