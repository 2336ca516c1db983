"""Earliest and latest store time of the stretches of a log that this process has read.

A log has no index by time, and its store times ascend only as far as the broker's clock did. So a query by time reads the
whole log once, and this is noted for each stretch: later queries of the same process pass over the stretches in which no
record was stored in their time. Notes of a file are dropped when its inode, size or modification time have changed.
"""

import os
from typing import Final, NamedTuple

import numpy as np

from pocketmq.spark_analytics.decoding.columns import TIMESTAMP_MS_MAX
from pocketmq.spark_analytics.reading.pruning import Bounds
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.offline.file_bytes import is_remote
from pocketmq.store.offline.places import LogFile


class Noted(NamedTuple):
    """The end of a stretch, and the earliest and latest store time of the records in it."""

    end: int
    first_ms: int
    last_ms: int


# By position of the stretch's first record.
Notes = dict[int, Noted]
_Identity = tuple[int, int, int]
_notes: Final[dict[str, tuple[_Identity, Notes]]] = {}


class StoreTimes:
    """The notes of one file, for a query of the records stored in the time `wanted_us`."""

    def __init__(self, file: LogFile, wanted_us: Bounds) -> None:
        self._wanted_us = wanted_us
        self._notes = _notes_of(file.path)

    def passed(self, position: int, stop: int) -> int:
        """Return the end of the noted stretches that follow each other from a position on without a wanted record.

        Only stretches that end before `stop` are considered: what follows them is read by the same task.
        """
        noted = self._notes.get(position)
        while noted is not None and noted.end <= stop and not self._may_want(noted):
            position = noted.end
            noted = self._notes.get(position)
        return position

    def _may_want(self, noted: Noted) -> bool:
        return noted.first_ms * 1000 <= self._wanted_us.high and noted.last_ms * 1000 >= self._wanted_us.low

    def note(self, window: RecordWindow, begin: int) -> None:
        """Note the store times of consecutive records, of which the first begins at a position, unless one is invalid."""
        if window.lengths_add_up.all():
            times = np.clip(window.fixed("store_timestamp_ms"), -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
            end = begin + int(window.starts[-1] + window.sizes[-1] - window.starts[0])
            self._notes[begin] = Noted(end, int(times.min()), int(times.max()))


def _notes_of(path: str) -> Notes:
    """Return what is noted of a file. Changes of remote files cannot be told, so that nothing is noted of these."""
    if is_remote(path):
        return {}
    try:
        status = os.stat(path)
    except OSError:  # deleted by retention: the reader reports it
        return {}
    identity = (status.st_ino, status.st_size, status.st_mtime_ns)
    known, notes = _notes.get(path, (identity, {}))
    if known != identity:
        notes = {}
    _notes[path] = (identity, notes)
    return notes
