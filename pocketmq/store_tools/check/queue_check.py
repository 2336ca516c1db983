"""Queues as a whole: what each had when the check began, and the units that no record accounts for."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.record import Record
from pocketmq.store.queue.consume_queue import BLANK_UNIT_SIZE
from pocketmq.store_tools.check.finding import Finding, Findings, Severity
from pocketmq.store_tools.check.range_check import REPAIR_QUEUES, QueueExtent
from pocketmq.store_tools.files.log_walk import Gap
from pocketmq.store_tools.files.queue_files import QueueFiles
from pocketmq.store_tools.files.selection import read_record
from pocketmq.store_tools.files.store_files import QueueKey, StoreFiles

_UNITS_AT_ONCE: Final = 8192


def extents(files: StoreFiles, findings: Findings) -> dict[QueueKey, QueueExtent]:
    """Where each queue that has a unit begins and ends. Files that do not belong become findings. Raises OSError."""
    found = {}
    for key in files.queue_keys():
        queue = QueueFiles(files, key)
        for path, what in queue.row.odd:
            findings.add(Finding(Severity.DERIVED, "queue file", path, -1, what, REPAIR_QUEUES))
        if queue.end == queue.begin:
            continue
        first = queue.first_at(files.log.min_offset)
        units = queue.units(first, 1)
        first_physical_offset = int(units["physical_offset"][0]) if first < queue.end and len(units) else -1
        found[key] = QueueExtent(queue.begin, first, queue.end, first_physical_offset, queue.max_physical_offset)
    return found


class Misnumbered(NamedTuple):
    """A record of queue `key` that says it is number `claimed`, and is number `right`."""

    key: QueueKey
    physical_offset: int
    claimed: int
    right: int


class UnitCheck:
    """Looks at the units of queues one by one, for those queues whose numbers do not add up."""

    def __init__(self, files: StoreFiles, gaps: list[Gap], log_end: int) -> None:
        self._files = files
        self._gaps = gaps
        self._log_end = log_end
        # Units that point into damage of the log: what it cost.
        self.lost = 0
        self.holes = 0
        # Units that point behind the log's end, and the lowest physical offset in them.
        self.ahead = 0
        self.ahead_from = -1
        self.misnumbered: list[Misnumbered] = []

    def run(self, key: QueueKey, extent: QueueExtent, findings: Findings) -> None:
        """Raises OSError."""
        queue = QueueFiles(self._files, key)
        for queue_offset, (physical_offset, size, tags_code) in self._units(queue, extent):
            if physical_offset < self._files.log.min_offset and size > 0 and size != BLANK_UNIT_SIZE:
                continue  # retention has taken the record meanwhile
            if tags_code == HOLE_TAGS_CODE:
                self.holes += 1
                continue
            if any(gap.begin <= physical_offset < gap.end for gap in self._gaps):
                self.lost += 1
                continue
            if physical_offset >= self._log_end and 0 < size < BLANK_UNIT_SIZE:
                self.ahead += 1
                self.ahead_from = physical_offset if self.ahead == 1 else min(self.ahead_from, physical_offset)
                continue
            record = read_record(self._files, physical_offset) if size > 0 and physical_offset >= 0 else None
            if record is not None and self._is_misnumbered(queue, extent, queue_offset, record):
                self.misnumbered.append(Misnumbered(key, physical_offset, record.queue_offset, queue_offset))
            elif what := self._wrong(key, queue_offset, physical_offset, size, record):
                path, position = queue.place(queue_offset)
                what = f"unit {queue_offset} of {key[0]}/{key[1]} {what}"
                findings.add(Finding(Severity.DERIVED, "queue unit", path, position, what, REPAIR_QUEUES))

    def _units(self, queue: QueueFiles, extent: QueueExtent) -> Iterator[tuple[int, tuple[int, int, int]]]:
        for queue_offset in range(extent.first, extent.end, _UNITS_AT_ONCE):
            units = queue.units(queue_offset, min(_UNITS_AT_ONCE, extent.end - queue_offset)).tolist()
            yield from enumerate(units, queue_offset)

    def _is_misnumbered(self, queue: QueueFiles, extent: QueueExtent, queue_offset: int, record: Record) -> bool:
        """Whether not the unit but the record is wrong about its number, a field that no checksum covers.

        Then the unit before is right, and the number that the record claims is another record's or nobody's.
        """
        if record.queue_offset == queue_offset or (str(record.topic, "utf-8", "replace"), record.queue_id) != queue.key:
            return False
        before = self._number(queue, queue_offset - 1) if queue_offset > extent.first else queue_offset - 1
        claimed = record.queue_offset
        is_taken = not extent.first <= claimed < extent.end or self._number(queue, claimed) == claimed
        return before == queue_offset - 1 and is_taken

    def _number(self, queue: QueueFiles, queue_offset: int) -> int:
        """The queue offset that the record of a unit says it has, -1 when there is no such record."""
        units = queue.units(queue_offset, 1)
        record = read_record(self._files, int(units["physical_offset"][0])) if len(units) else None
        return -1 if record is None else record.queue_offset

    def _wrong(self, key: QueueKey, queue_offset: int, physical_offset: int, size: int, record: Record | None) -> str:
        if size == 0 and physical_offset == 0:
            return "is zero, units behind it are not"
        if size == BLANK_UNIT_SIZE:
            return "is a blank one, which stand only in front of a queue's first record"
        if size <= 0 or physical_offset < 0:
            return f"is none: physical offset {physical_offset}, size {size}"
        if record is None:
            return f"points at physical offset {physical_offset}, where no record begins"
        topic = str(record.topic, "utf-8", "replace")
        if (topic, record.queue_id) == key and record.queue_offset != queue_offset:
            return f"points at physical offset {physical_offset}, which is number {record.queue_offset} of this queue"
        if (topic, record.queue_id) != key and b"INNER_MULTI_DISPATCH" not in record.properties:
            return f"points at physical offset {physical_offset}, a record of {topic}/{record.queue_id}"
        return ""
