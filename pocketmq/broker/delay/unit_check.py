"""Check of timer-log units written by another broker against the records that they refer to.

Such units have no checksum. One that refers to another record, or lies in another slot than its record requires, would
deliver a message late or never. If there is one, all units are discarded and all messages are entered again from the
CommitLog.

Records come in the order of the CommitLog, and so do most units, as messages are entered in that order. So the units are
read in parts, and only the parts that may refer to the present records are held.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import TIMER_MAGIC_ROLL
from pocketmq.store.timer.timer_log import Numbers, UnitPart, Units, unit_times

Mask = npt.NDArray[np.bool_]

_END: Final = 1 << 62
_ENTERED_EARLY_MS: Final = 60_000
"""Tolerance: write times are cut to the precision of the slots, so a unit may seem older than its record."""


class _SortedUnits:
    """A part of the units by physical offset. `named` marks those to which a record was found."""

    def __init__(self, units: Units) -> None:
        self.units = units[np.argsort(units["physical_offset"], kind="stable")]
        self.places = self.units["physical_offset"].astype(np.int64)
        self.named = np.zeros(len(units), np.bool_)


class UnitCheck:
    """Compares units with records. `problem` describes the first mismatch, or is empty."""

    def __init__(
        self, parts: Iterable[UnitPart], read_time_ms: int, written_ms: int, entered_to: int,
        roll_delays_ms: tuple[int, ...], min_physical_offset: int,
    ) -> None:  # fmt: skip
        """Prepare the check of the units in `parts`.

        Slots before `read_time_ms` are finished, and no unit is newer than `written_ms`. Each record up to physical offset
        `entered_to` should have a unit. A rolled unit waits one of `roll_delays_ms` in each slot. The log begins at
        `min_physical_offset`.
        """
        self._coming = sorted(parts, key=lambda part: part.lowest, reverse=True)
        self._held: list[_SortedUnits] = []
        self._read_time_ms = read_time_ms
        self._written_ms = written_ms
        self._roll_delays_ms = roll_delays_ms
        self._entered_to = entered_to
        self._min_physical_offset = min_physical_offset
        self.problem = ""

    def take(self, places: Numbers, sizes: Numbers, outs_ms: Numbers, stores_ms: Numbers, found: Mask) -> None:
        """Check the records at ascending physical offsets `places`, with their TIMER_OUT_MS and store times."""
        if not len(places) or self.problem:
            return
        has_unit = np.zeros(len(places), np.bool_)
        self._hold_to(int(places[-1]))
        for part in self._held:
            self._compare(part, has_unit, places, sizes, outs_ms, stores_ms, found)
        missing = found & (places <= self._entered_to) & (outs_ms >= self._read_time_ms) & ~has_unit
        if not self.problem and missing.any():
            self.problem = f"the timer log has no unit of the message at physical offset {int(places[missing][0])}"
        self._drop_to(int(places[-1]))

    def finish(self) -> str:
        """Return the problem, or "", after `take` got all records."""
        self._drop_to(_END)
        while self._coming and not self.problem:
            self._hold_to(self._coming[-1].lowest)
            self._drop_to(_END)
        return self.problem

    def _hold_to(self, place: int) -> None:
        """Read the parts with units up to this physical offset."""
        while self._coming and self._coming[-1].lowest <= place:
            self._held.append(_SortedUnits(self._coming.pop().read()))

    def _drop_to(self, place: int) -> None:
        """Drop the parts whose units are all up to this physical offset, after a look for units without a record."""
        for part in [part for part in self._held if part.places[-1] <= place]:
            self._held.remove(part)
            to_come = (unit_times(part.units) >= self._read_time_ms) & (part.places >= self._min_physical_offset)
            stray = part.places[to_come & ~part.named]
            if not self.problem and len(stray):
                self.problem = f"a unit of the timer log refers to physical offset {stray[0]}, where there is no record"

    def _compare(
        self, part: _SortedUnits, has_unit: Mask, places: Numbers, sizes: Numbers, outs_ms: Numbers, stores_ms: Numbers,
        found: Mask,
    ) -> None:  # fmt: skip
        """Compare the units with records at `places`, and note which of these have one."""
        begin, end = np.searchsorted(part.places, (places[0], places[-1] + 1)).tolist()
        units, unit_places = part.units[begin:end], part.places[begin:end]
        rows = np.searchsorted(places, unit_places)
        named = places[rows] == unit_places
        part.named[begin:end] |= named
        times, writes = unit_times(units), units["write_time_ms"].astype(np.int64)
        outs = outs_ms[rows]
        rolled = units["magic"] & TIMER_MAGIC_ROLL != 0
        # A rolled unit in a past slot has been rolled on, unless its slot is wrong.
        was_rolled = (writes >= stores_ms[rows] - _ENTERED_EARLY_MS) & np.isin(units["delay_ms"], self._roll_delays_ms)
        rolled_dues = units["rolled_due_ms"].astype(np.int64)
        is_rolled = (
            (times <= outs) & ((rolled_dues == 0) | (rolled_dues == outs)) & ((times >= self._read_time_ms) | was_rolled)
        )
        # The slot that is read first also has the units of the slots that the wheel no longer reaches, after a long stop.
        is_first = times == self._read_time_ms
        is_late = (times > outs) & (((writes >= outs) & (writes <= self._written_ms)) | is_first)
        in_place = (units["record_size"] == sizes[rows]) & (np.where(rolled, is_rolled, times == outs) | is_late)
        # A unit in a past slot that belongs to no message: it marks the last entered record for another broker.
        is_pointer = (units["delay_ms"] == 0) & (times < self._read_time_ms)
        counts = (times >= self._read_time_ms) | ((outs >= self._read_time_ms) & ~is_pointer)
        wrong = named & found[rows] & counts & ~in_place
        has_unit[rows[named & ~is_pointer]] = True
        if not self.problem and wrong.any():
            place = int(unit_places[wrong][0])
            self.problem = f"the timer-log unit of the message at physical offset {place} does not match its record"
