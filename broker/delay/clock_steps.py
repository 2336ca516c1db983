"""How far the calendar was set since a record was stored.

Message time is the calendar, and somebody may set it. The steady clock only runs. As long as nobody sets the calendar, the
*difference* between the two stays the same; so a delay of a record that was stored under one difference, and is looked at
under another, ends on today's calendar at

    nominal due time (store time + delay) + difference now - difference then

which is the moment at which the delay has passed on the steady clock, whichever way the calendar jumped.

Which difference a record was stored under, its physical offset tells: what is noted is the log's end at each change. It is
noticed a little after it happened; whether a record in between came before or after a jump forward, its store time tells. A
jump back the log does not follow: its store times stand still until the calendar has come up to them, and in that time the
difference of store time and steady clock falls as the steady clock runs. It is noted in steps. Where there is a doubt,
the lesser difference is taken: a delay may then end a little late, never early.

After a restart nothing is known of what was before: it counts as stored under the difference of the start. Only if the
log's last store time is ahead of the calendar, that one was ahead when the last record was stored, by at least as much as it
is now: then this difference counts for all records whose store time is still to come, among them those that follow.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import Clock

# The two clocks are read one after the other, in whole ms.
_STEP_MIN_MS: Final = 2
# Another reading is made of a moment in which others had the processor.
_READINGS_MAX: Final = 8
# While store times stand still: by how much the difference may be taken too low; a larger jump back is noted more coarsely.
_FALL_STEP_MS: Final = 20
_FALL_STEPS: Final = 4096
_FOREVER_MS: Final = 1 << 62
_CALENDARS_MAX: Final = 64
_RECKONED_MAX: Final = 1 << 16
# Between a step and its notice pops may have been handed out.
_NOTICED_LATE_MS: Final = 1000


class ClockSteps:
    """`difference` is the present one, in ms: message time less steady time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms, steady_ms = self._moment_ms() or (clock.message_time_ms(), clock.steady_ms())
        self.difference = now_ms - steady_ms
        # From physical offset `_starts[i]` on, and of what has a store time beyond `_after_ms[i]`, `_differences[i]` holds.
        self._starts = [0]
        self._differences = [self.difference]
        self._after_ms = [0]
        self._noted_end = self._noted_store_ms = 0
        # From each steady time on the calendar was ahead of the steady clock by the difference beside it. What it shows up
        # to the third number it had shown before; of these times those from which something was reckoned again are kept.
        self._calendars: list[tuple[int, int, int]] = [(-_FOREVER_MS, self.difference, -_FOREVER_MS)]
        self._reckoned_again: dict[int, int] = {}
        # Times beyond the first are of an earlier process, whose calendar had the other as its difference, or a greater.
        self._earlier = _FOREVER_MS, 0
        self._has_begun = False
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the calendar was set: due times of delays have changed."""
        self._listeners.append(listener)

    def note(self, log_end: int, last_store_timestamp_ms: int) -> None:
        """Look at the clocks. To be called now and then, and before what was put is looked at.

        `log_end` is the physical offset behind the last record, whose store time is the other number.
        """
        now_ms, steady_ms = self._clock.message_time_ms(), self._clock.steady_ms()
        jumped = abs(now_ms - steady_ms - self.difference) >= _STEP_MIN_MS
        if jumped:
            # Nobody need have set the calendar: between the two readings others may have had the processor.
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
            # What was stored before has no later store time; while those stood still, that of the last record.
            self._add(stored, max(newest + steady_ms + _STEP_MIN_MS, self._noted_store_ms))
        self._noted_end, self._noted_store_ms = log_end, last_store_timestamp_ms
        if jumped:
            for listener in self._listeners:
                listener()

    def _moment_ms(self) -> tuple[int, int] | None:
        """Message time and steady time of one and the same ms; None when the machine is too busy for that."""
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

    def difference_at(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """The difference under which a record was stored, or a lesser one."""
        # A damaged record may have any place and time: it counts as the earliest.
        row = max(bisect_right(self._starts, physical_offset) - 1, 0)
        while row and store_timestamp_ms <= self._after_ms[row]:
            row -= 1
        return self._differences[row]

    def shift_ms(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """What is to be added to the nominal due time of a record's delay."""
        return self.difference - self.difference_at(physical_offset, store_timestamp_ms)

    def reckon_from(self, calendar_ms: int) -> None:
        """Something will be asked of `shift_since_ms` with this time, which the calendar shows now."""
        if calendar_ms <= self._calendars[-1][2]:
            self._reckoned_again[calendar_ms] = self.difference
            if len(self._reckoned_again) > _RECKONED_MAX:
                del self._reckoned_again[next(iter(self._reckoned_again))]

    def shift_since_ms(self, calendar_ms: int) -> int:
        """What is to be added to a time that was reckoned when the calendar showed `calendar_ms`."""
        if (found := self._reckoned_again.get(calendar_ms)) is not None:
            return self.difference - found
        end_steady_ms = self._clock.steady_ms() + _NOTICED_LATE_MS
        for begin_steady_ms, difference, shown_to_ms in reversed(self._calendars):
            is_in_time = begin_steady_ms - _NOTICED_LATE_MS <= calendar_ms - difference <= end_steady_ms
            if is_in_time and calendar_ms > shown_to_ms:
                return self.difference - difference
            end_steady_ms = begin_steady_ms + _NOTICED_LATE_MS
        begun_ms, difference = self._earlier
        return self.difference - difference if calendar_ms > begun_ms else 0

    @property
    def ahead_ms(self) -> int:
        """How far ahead of now a nominal due time may be that has come."""
        return max(max(self._differences) - self.difference, 0)

    def forget(self, min_physical_offset: int) -> None:
        """Records before `min_physical_offset` are gone."""
        row = bisect_right(self._starts, min_physical_offset) - 1
        while self._after_ms[row]:
            row -= 1
        del self._starts[:row], self._differences[:row], self._after_ms[:row]
