"""Check of one range of the log against the files derived from it; several processes do this in parallel.

Records contain their queue and queue offset, so only the units at these offsets are read and compared, queue by queue.
Units *without* a record are found by counting: two records never match the same unit, so a queue with as many units as
matching records has no surplus unit. Only if the numbers differ, its units are checked one by one (`queue_check`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.layout import BLANK_UNIT_SIZE, CONSUME_QUEUE_UNIT_DTYPE, EXT_ADDRESS_MAX
from pocketmq.store.format.message import QueueKey
from pocketmq.store.offline.log_walk import Gap, LogWalk, first_valid
from pocketmq.store.offline.queue_files import QueueFiles, ext_row, ext_units
from pocketmq.store_tools.check.expected import Expected
from pocketmq.store_tools.check.finding import Findings
from pocketmq.store_tools.check.index_check import MISSING_KEPT_MAX, IndexFileCheck, Missing, compare_keys
from pocketmq.store_tools.files.store_files import StoreFiles

REPAIR_QUEUES: Final = "`pocketmq store repair --queues` rebuilds the queues"
_SECOND_MS: Final = 1000
_NO_UNITS: Final = np.empty(0, CONSUME_QUEUE_UNIT_DTYPE)
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QueueExtent:
    """Extent of a queue at the start of the check: units [first, end).

    `first` is the first unit whose record is still in the log, at `first_physical_offset`; `max_physical_offset` is the end
    of the queue's last record.
    """

    first: int
    end: int
    first_physical_offset: int
    max_physical_offset: int


@dataclass
class CheckPlan:
    """Inputs shared by the checks of all ranges. `index` is None if the index is not checked."""

    root: str
    commit_log_folder: str
    check_crc: bool
    queues: dict[QueueKey, QueueExtent]
    index: list[IndexFileCheck] | None
    # None: the broker's table is not known, so every due time a whole number of seconds after the store time is accepted.
    delay_levels: DelayLevels | None
    known_topics: frozenset[str] | None
    # End of the newest record in queues or index; 0 without one.
    known_end: int
    # Topic -> physical offset: earlier records were stored before the topic was deleted and created again.
    dropped: dict[str, int]


@dataclass
class RangeResult:
    """Result of one range: `first` is the physical offset of the first valid record or -1, `end` the end of the last."""

    first: int = -1
    end: int = -1
    records: int = 0
    last_store_timestamp_ms: int = 0
    gaps: list[Gap] = field(default_factory=list)
    # Number of units of each queue that match their records.
    matched: Counter[QueueKey] = field(default_factory=Counter)
    # (queue, queue offset, physical offset) of records without unit; a running broker may still write it.
    missing_units: Missing = field(default_factory=Missing)
    missing_keys: Missing = field(default_factory=Missing)
    # Number of records of topics that were deleted, or deleted and created again.
    outlived: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)

    def merge(self, other: "RangeResult") -> None:
        """Add the result of the next range, except for its gaps."""
        self.end = max(self.end, other.end)
        self.records += other.records
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, other.last_store_timestamp_ms)
        self.matched.update(other.matched)
        self.missing_units.merge(other.missing_units)
        self.missing_keys.merge(other.missing_keys)
        self.outlived.update(other.outlived)
        self.findings.merge(other.findings)


class RangeCheck:
    """Check of ranges of one store."""

    def __init__(self, plan: CheckPlan, files: StoreFiles | None = None) -> None:
        self._plan = plan
        self._files = files or StoreFiles(plan.root, plan.commit_log_folder)
        self._queue_files: dict[QueueKey, QueueFiles] = {}

    def run(self, begin: int, stop: int, is_record: bool) -> RangeResult:
        """Check the records that begin in [begin, stop). `is_record`: one begins at `begin`; else the first is searched.

        Raises OSError.
        """
        files, result, expected = self._files, RangeResult(), Expected()
        if files.log.file_at(begin) is None or files.log.end_offset < stop:
            files.refresh_log()
        first = begin if is_record else first_valid(files.log, begin, stop)
        if first is None:
            return result
        plan = self._plan
        walk = LogWalk(files.log, first, stop, check_crc=plan.check_crc, complete_to=plan.known_end, over_gaps=True)
        for window in walk:
            if result.first < 0:
                result.first = int(window.physical_offsets[0])
            expected.add(window)
            result.last_store_timestamp_ms = int(window.fixed("store_timestamp_ms")[-1])
        result.end, result.records = walk.position, expected.records
        # A gap at the beginning is judged by the caller, who knows the end of the previous range.
        result.gaps = [gap for gap in walk.gaps if gap.begin >= result.first]
        if result.first < 0:
            return result
        self._compare_units(result, expected)
        if self._plan.index is not None:
            compare_keys(
                self._plan.index, expected, result.first, result.end, result.gaps, result.missing_keys, result.findings
            )
        return result

    # --- queues ----------------------------------------------------------------------------------------------------

    def _compare_units(self, result: RangeResult, expected: Expected) -> None:
        columns = expected.units()
        if not len(columns[0]):
            return
        order = np.argsort(columns[0], kind="stable")
        columns = tuple(column[order] for column in columns)
        cuts = np.flatnonzero(np.diff(columns[0])) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(order)], strict=True):
            key = expected.queues[int(columns[0][begin])]
            self._compare_queue(result, key, tuple(column[begin:end] for column in columns[1:]))

    def _compare_queue(self, result: RangeResult, key: QueueKey, columns: tuple[Any, ...]) -> None:
        queue_offsets, physical_offsets = columns[0], columns[1]
        past = physical_offsets < self._plan.dropped.get(key[0], 0)
        if past.any():
            result.outlived[key[0]] += int(np.count_nonzero(past))
            columns = tuple(column[~past] for column in columns)
            queue_offsets, physical_offsets = columns[0], columns[1]
            if not len(queue_offsets):
                return
        extent = self._plan.queues.get(key)
        queue = self._queue(key)
        if extent is None and queue.end == queue.begin:
            if self._plan.known_topics is not None and key[0] not in self._plan.known_topics:
                result.outlived[key[0]] += len(queue_offsets)
            else:
                self._missing(result, key, queue_offsets, physical_offsets)
            return
        right = np.zeros(len(queue_offsets), np.bool_)
        found = np.full(len(queue_offsets), -1)  # physical offsets in the units, -1 without a unit
        breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(queue_offsets)], strict=True):
            units = queue.units(int(queue_offsets[begin]), end - begin) if queue_offsets[begin] >= 0 else _NO_UNITS
            run = slice(begin, begin + len(units))
            is_unit = (units["size"] > 0) & (units["size"] != BLANK_UNIT_SIZE)
            found[run] = np.where(is_unit, units["physical_offset"], -1)
            right[run] = self._right(result, key, queue, [column[run] for column in columns], units)
        if extent is not None:
            within = (queue_offsets >= extent.first) & (queue_offsets < extent.end)
            result.matched[key] += int(np.count_nonzero(right & within))
        wrong = ~right & (found != physical_offsets)
        if extent is not None:
            # The queue offsets of a topic that was created again begin at 0: earlier records belong to the deleted topic.
            older = wrong & (physical_offsets < extent.first_physical_offset) & (queue_offsets >= extent.first)
            if older.any():
                result.outlived[key[0]] += int(np.count_nonzero(older))
                wrong &= ~older
        missing = wrong & (found < 0)
        self._missing(result, key, queue_offsets[missing], physical_offsets[missing])
        for row in np.flatnonzero(wrong & ~missing).tolist():
            path, position = queue.place(int(queue_offsets[row]))
            what = (
                f"unit {int(queue_offsets[row])} of {key[0]}/{key[1]} points at physical offset {int(found[row])}, "
                f"but its record is at {int(physical_offsets[row])}"
            )
            result.findings.differs("queue unit", path, position, what, REPAIR_QUEUES, int(physical_offsets[row]))

    def _queue(self, key: QueueKey) -> QueueFiles:
        queue = self._queue_files.get(key)
        if queue is None:
            self._files.forget_queue_row(key)
            queue = self._queue_files[key] = QueueFiles(self._files, key)
        return queue

    def _missing(self, result: RangeResult, key: QueueKey, queue_offsets: Rows, physical_offsets: Rows) -> None:
        kept = slice(MISSING_KEPT_MAX)
        pairs = zip(queue_offsets[kept].tolist(), physical_offsets[kept].tolist(), strict=True)
        result.missing_units.add([(key, queue_offset, offset) for queue_offset, offset in pairs], len(queue_offsets))

    def _right(
        self, result: RangeResult, key: QueueKey, queue: QueueFiles, columns: list[Any], units: Any
    ) -> npt.NDArray[np.bool_]:
        """Return which units point at their records; those with another wrong field become findings."""
        queue_offsets, physical_offsets, sizes, codes, timed, store_times = columns
        own = units["physical_offset"] == physical_offsets
        found = units["tags_code"].astype(np.int64)
        same = (found == codes) & ~timed
        if timed.any():
            same |= timed & self._due_times(key, found, store_times)
        rows = np.flatnonzero(own & ~same & (found <= EXT_ADDRESS_MAX))
        if len(rows):
            ext_codes, ext_times, is_there = ext_units(ext_row(self._files, key), found[rows])
            due = self._due_times(key, ext_codes, store_times[rows])
            is_right = np.where(timed[rows], due, ext_codes == codes[rows])
            same[rows] = is_there & (ext_times == store_times[rows]) & is_right
        same_size = units["size"] == sizes
        for row in np.flatnonzero(own & ~(same & same_size)).tolist():
            path, position = queue.place(int(queue_offsets[row]))
            if not same_size[row]:
                what = f"size {int(units['size'][row])}, but its record has {int(sizes[row])}"
            elif timed[row]:
                what = f"delivery time {int(found[row])}, but its record was stored at {int(store_times[row])}"
            else:
                what = f"tags code {int(found[row])}, but the tags of its record have {int(codes[row])}"
            what = f"unit {int(queue_offsets[row])} of {key[0]}/{key[1]} has {what}"
            result.findings.differs("queue unit", path, position, what, REPAIR_QUEUES, int(physical_offsets[row]))
        # A unit that points at its record counts as matching even if another field is wrong, which is already reported.
        return np.asarray(own)

    def _due_times(self, key: QueueKey, due_ms: Rows, store_times: Rows) -> npt.NDArray[np.bool_]:
        waits = due_ms - store_times
        levels = self._plan.delay_levels
        if levels is None:
            return np.asarray((waits > 0) & (waits % _SECOND_MS == 0))
        # Level n is queue n - 1; levels above the maximum are in the last queue.
        return np.asarray(waits == levels.delay_ms(key[1] + 1))
