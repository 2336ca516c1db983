"""Changes of the calendar since a record was stored.

Message time is the calendar (wall clock), which may be set. The steady clock cannot be set. As long as the calendar is not
set, the *difference* between the two stays the same. If a delayed record was stored under one difference and is evaluated
under another, its delay ends, on the present calendar, at

    nominal due time (store time + delay) + difference now - difference then

which is the moment at which the delay has passed on the steady clock, in whichever direction the calendar was set.

The difference under which a record was stored is found by its physical offset: at each change the end of the log is
recorded. A change is noticed a little later; if it was a jump forward, the store time tells whether a record came before or
after it. After a jump back, store times stand still until the calendar has reached them again; during that time the
difference of store time and steady clock decreases continuously, and is recorded in steps. In doubt the smaller difference
is taken: a delay may then end a little late, never early.

After a restart, earlier changes are unknown: records count as stored under the difference at the start. Only if the log's
last store time is ahead of the calendar, the calendar was ahead when the last record was stored, by at least as much as now:
then that difference counts for all records whose store time is in the future, including the next ones stored.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import Clock

# The two clocks are read one after the other, in whole ms.
_STEP_MIN_MS: Final = 2
# A reading is repeated if the process was interrupted between the two clocks.
_READINGS_MAX: Final = 8
# While store times stand still: the error by which the difference may be taken too low; larger after a larger jump back.
_FALL_STEP_MS: Final = 20
_FALL_STEPS: Final = 4096
_FOREVER_MS: Final = 1 << 62
_CALENDARS_MAX: Final = 64
_NOTED_MAX: Final = 1 << 16
# Pops may be handed out between a change and its detection.
_NOTICED_LATE_MS: Final = 1000


class ClockSteps:
    """Record of calendar changes. `difference` is the present message time less steady time, in ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms, steady_ms = self._moment_ms() or (clock.message_time_ms(), clock.steady_ms())
        self.difference = now_ms - steady_ms
        self.ahead_ms = 0
        """The maximum by which the nominal due time of a due message may be ahead of now."""
        # `_differences[i]` applies from physical offset `_starts[i]` on to records with store times above `_after_ms[i]`.
        self._starts = [0]
        self._differences = [self.difference]
        self._after_ms = [0]
        self._noted_end = self._noted_store_ms = 0
        # Rows (steady time, difference from then on, last calendar time shown before). Calendar times up to the third number
        # occurred more than once; for those passed to `note_calendar` the difference at its last call is kept.
        self._calendars: list[tuple[int, int, int]] = [(-_FOREVER_MS, self.difference, -_FOREVER_MS)]
        self._differences_by_calendar: dict[int, int] = {}
        # (time, difference): records with later store times are of an earlier process, whose difference was at least this.
        self._earlier = _FOREVER_MS, 0
        self._has_begun = False
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the calendar was set, since due times of delays change."""
        self._listeners.append(listener)

    def note(self, log_end: int, last_store_timestamp_ms: int) -> int:
        """Check the clocks, and return the message time. To be called regularly, and before newly put records are evaluated.

        `log_end` is the physical offset after the last record, `last_store_timestamp_ms` its store time.
        """
        now_ms, steady_ms = self._clock.message_time_ms(), self._clock.steady_ms()
        jumped = abs(now_ms - steady_ms - self.difference) >= _STEP_MIN_MS
        if jumped:
            # Possibly not a change: the process may have been interrupted between the two readings.
            now_ms, steady_ms = self._moment_ms() or (now_ms, now_ms - self.difference)
            jumped = abs(now_ms - steady_ms - self.difference) >= _STEP_MIN_MS
        if jumped:
            shown_to_ms = max(self._calendars[-1][2], steady_ms + self.difference)
            self.difference = now_ms - steady_ms
            self._calendars = [*self._calendars[-_CALENDARS_MAX:], (steady_ms, self.difference, shown_to_ms)]
        behind_ms = max(last_store_timestamp_ms - now_ms, 0)
        if not self._has_begun:
            self._has_begun = True
            if behind_ms:
                self._earlier = now_ms, self.difference + behind_ms
                self._add(self.difference + behind_ms, now_ms)
        newest, stored = self._differences[-1], self.difference + behind_ms
        if stored < newest:
            fall_step_ms = max(_FALL_STEP_MS, behind_ms // _FALL_STEPS) if behind_ms else 0
            self._add(stored - fall_step_ms, 0)
        elif not behind_ms and stored > newest:
            # Earlier records have no later store time; while store times stood still, they have that of the last record.
            self._add(stored, max(newest + steady_ms + _STEP_MIN_MS, self._noted_store_ms))
        self._noted_end, self._noted_store_ms = log_end, last_store_timestamp_ms
        if jumped:
            self._look_ahead()
            for listener in self._listeners:
                listener()
        return now_ms

    def _moment_ms(self) -> tuple[int, int] | None:
        """Return message time and steady time of the same ms; None if the machine is too busy for that."""
        clock = self._clock
        for _ in range(_READINGS_MAX):
            began_ms, now_ms, steady_ms = clock.steady_ms(), clock.message_time_ms(), clock.steady_ms()
            if steady_ms == began_ms:
                return now_ms, steady_ms
        return None

    def _add(self, difference: int, after_ms: int) -> None:
        self._starts.append(self._noted_end)
        self._differences.append(difference)
        self._after_ms.append(after_ms)
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.ahead_ms = max(max(self._differences) - self.difference, 0)

    def difference_at(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """Return the difference under which a record was stored, or a smaller one."""
        # A damaged record may have any offset and time: it counts as the earliest.
        row = max(bisect_right(self._starts, physical_offset) - 1, 0)
        while row and store_timestamp_ms <= self._after_ms[row]:
            row -= 1
        return self._differences[row]

    def shift_ms(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """Return the correction of the nominal due time of a record's delay."""
        return self.difference - self.difference_at(physical_offset, store_timestamp_ms)

    def note_calendar(self, calendar_ms: int) -> None:
        """Announce that `shift_since_ms` will be called with this time, which the calendar shows now."""
        if calendar_ms <= self._calendars[-1][2]:
            self._differences_by_calendar[calendar_ms] = self.difference
            if len(self._differences_by_calendar) > _NOTED_MAX:
                del self._differences_by_calendar[next(iter(self._differences_by_calendar))]

    def shift_since_ms(self, calendar_ms: int) -> int:
        """Return the correction of a time that was computed when the calendar showed `calendar_ms`."""
        if (found := self._differences_by_calendar.get(calendar_ms)) is not None:
            return self.difference - found
        end_steady_ms = self._clock.steady_ms() + _NOTICED_LATE_MS
        for begin_steady_ms, difference, shown_to_ms in reversed(self._calendars):
            is_in_time = begin_steady_ms - _NOTICED_LATE_MS <= calendar_ms - difference <= end_steady_ms
            if is_in_time and calendar_ms > shown_to_ms:
                return self.difference - difference
            end_steady_ms = begin_steady_ms + _NOTICED_LATE_MS
        begun_ms, difference = self._earlier
        return self.difference - difference if calendar_ms > begun_ms else 0

    def forget(self, min_physical_offset: int) -> None:
        """Forget records before `min_physical_offset`, which are deleted."""
        row = bisect_right(self._starts, min_physical_offset) - 1
        while self._after_ms[row]:
            row -= 1
        del self._starts[:row], self._differences[:row], self._after_ms[:row]
        self._look_ahead()
