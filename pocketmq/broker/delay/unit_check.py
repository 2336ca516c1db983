"""Check of timer-log units written by another broker against the records that they refer to.

Such units have no checksum. One that refers to another record, or lies in another slot than its record requires, would
deliver a message late or never. If there is one, all units are discarded and all messages are entered again from the
CommitLog.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import TIMER_MAGIC_ROLL
from pocketmq.store.timer.timer_log import Numbers, Units, unit_times

Mask = npt.NDArray[np.bool_]

_ENTERED_EARLY_MS: Final = 60_000
"""Tolerance: write times are cut to the precision of the slots, so a unit may seem older than its record."""


class UnitCheck:
    """Compares units with records. `problem` describes the first mismatch, or is empty."""

    def __init__(
        self, units: Units, read_time_ms: int, written_ms: int, entered_to: int, roll_delays_ms: tuple[int, ...]
    ) -> None:
        """Prepare the check of `units`.

        Slots before `read_time_ms` are finished, and no unit is newer than `written_ms`. Each record up to physical offset
        `entered_to` should have a unit. A rolled unit waits one of `roll_delays_ms` in each slot.
        """
        order = np.argsort(units["physical_offset"], kind="stable")
        self._units = units[order]
        self._places = self._units["physical_offset"].astype(np.int64)
        self._read_time_ms = read_time_ms
        self._written_ms = written_ms
        self._roll_delays_ms = roll_delays_ms
        self._entered_to = entered_to
        self._is_named = np.zeros(len(units), np.bool_)
        self.problem = ""

    def take(self, places: Numbers, sizes: Numbers, outs_ms: Numbers, stores_ms: Numbers, found: Mask) -> None:
        """Check the records at ascending physical offsets `places`, with their TIMER_OUT_MS and store times."""
        if not len(places) or self.problem:
            return
        begin, end = np.searchsorted(self._places, (places[0], places[-1] + 1)).tolist()
        units, unit_places = self._units[begin:end], self._places[begin:end]
        rows = np.searchsorted(places, unit_places)
        named = places[rows] == unit_places
        self._is_named[begin:end] |= named
        times, writes = unit_times(units), units["write_time_ms"].astype(np.int64)
        outs = outs_ms[rows]
        rolled = units["magic"] & TIMER_MAGIC_ROLL != 0
        # A rolled unit in a past slot has been rolled on, unless its slot is wrong.
        was_rolled = (writes >= stores_ms[rows] - _ENTERED_EARLY_MS) & np.isin(units["delay_ms"], self._roll_delays_ms)
        rolled_dues = units["rolled_due_ms"].astype(np.int64)
        is_rolled = (
            (times <= outs) & ((rolled_dues == 0) | (rolled_dues == outs)) & ((times >= self._read_time_ms) | was_rolled)
        )
        is_late = (times > outs) & (writes >= outs) & (writes <= self._written_ms)
        in_place = (units["record_size"] == sizes[rows]) & (np.where(rolled, is_rolled, times == outs) | is_late)
        # A unit in a past slot that belongs to no message: it marks the last entered record for another broker.
        is_pointer = (units["delay_ms"] == 0) & (times < self._read_time_ms)
        counts = (times >= self._read_time_ms) | ((outs >= self._read_time_ms) & ~is_pointer)
        wrong = named & found[rows] & counts & ~in_place
        has_unit = np.zeros(len(places), np.bool_)
        has_unit[rows[named & ~is_pointer]] = True
        missing = found & (places <= self._entered_to) & (outs_ms >= self._read_time_ms) & ~has_unit
        if wrong.any():
            place = int(unit_places[wrong][0])
            self.problem = f"the timer-log unit of the message at physical offset {place} does not match its record"
        elif missing.any():
            self.problem = f"the timer log has no unit of the message at physical offset {int(places[missing][0])}"

    def finish(self, min_physical_offset: int) -> str:
        """Return the problem, or "", after `take` got all records. The log begins at `min_physical_offset`."""
        to_come = (unit_times(self._units) >= self._read_time_ms) & (self._places >= min_physical_offset)
        stray = to_come & ~self._is_named
        if not self.problem and stray.any():
            place = int(self._places[stray][0])
            self.problem = f"a unit of the timer log refers to physical offset {place}, where there is no record"
        return self.problem
