"""Deduplicates the timer-log units of one wheel slot by physical offset.

Offsets mostly ascend, because messages arrived in that order; then one comparison suffices. If units of several times were
rolled into one slot, offsets are not sorted and are searched for in a few sorted runs.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.timer.timer_log import Numbers

_RUNS_MAX: Final = 8


class OffsetDedup:
    """Set of physical offsets, 8 bytes each, until `clear`."""

    def __init__(self) -> None:
        # Each run is sorted and not empty; no offset occurs twice.
        self._runs: list[Numbers] = []

    def add(self, physical_offsets: Numbers) -> npt.NDArray[np.bool_]:
        """Add offsets; return for each whether it had not been added before."""
        is_new = np.ones(len(physical_offsets), np.bool_)
        if not len(physical_offsets):
            return is_new
        order = None
        run = physical_offsets
        if (np.diff(run) <= 0).any():
            order = np.argsort(run, kind="stable")
            run = run[order]
            is_new[order[1:]] = np.diff(run) > 0
        first, last = run[0], run[-1]
        for seen in self._runs:
            if first <= seen[-1] and last >= seen[0]:
                places = np.minimum(np.searchsorted(seen, physical_offsets), len(seen) - 1)
                is_new &= seen[places] != physical_offsets
        run = run[is_new if order is None else is_new[order]]
        if len(run):
            self._runs.append(run)
        if len(self._runs) > _RUNS_MAX:
            self._runs = [np.sort(np.concatenate(self._runs), kind="stable")]
        return is_new

    def clear(self) -> None:
        """Remove all offsets."""
        self._runs.clear()
