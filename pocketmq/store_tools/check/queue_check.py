"""Check of whole queues: their extents at the start of the check, and units without a matching record."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pocketmq.store.format.layout import BLANK_UNIT_SIZE, HOLE_TAGS_CODE
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record import Record
from pocketmq.store.offline.log_walk import Gap, read_record
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store_tools.check.finding import Findings
from pocketmq.store_tools.check.range_check import REPAIR_QUEUES, QueueExtent
from pocketmq.store_tools.files.store_files import StoreFiles

_UNITS_AT_ONCE: Final = 8192


def extents(files: StoreFiles, findings: Findings) -> dict[QueueKey, QueueExtent]:
    """Return the extent of each queue that has units; unexpected files become findings. Raises OSError."""
    found = {}
    for key in files.queue_keys():
        queue = QueueFiles(files, key)
        for path, what in queue.row.odd:
            findings.differs("queue file", path, -1, what, REPAIR_QUEUES)
        if queue.end == queue.begin:
            continue
        first = queue.first_at(files.log.min_offset)
        units = queue.units(first, 1)
        first_physical_offset = int(units["physical_offset"][0]) if first < queue.end and len(units) else -1
        found[key] = QueueExtent(first, queue.end, first_physical_offset, queue.max_physical_offset)
    return found


class Misnumbered(NamedTuple):
    """A record of queue `key` with the wrong queue offset `claimed`, where `right` is the correct one."""

    key: QueueKey
    physical_offset: int
    claimed: int
    right: int


class UnitCheck:
    """Check of the units of a queue one by one, for queues with more units than matching records."""

    def __init__(self, files: StoreFiles, gaps: list[Gap], log_end: int) -> None:
        self._files = files
        self._gaps = gaps
        self._log_end = log_end
        # Number of units that point into damaged parts of the log; their messages are lost.
        self.lost = 0
        self.holes = 0
        # Number of units that point after the end of the log, and the lowest physical offset in them.
        self.ahead = 0
        self.ahead_from = -1
        self.misnumbered: list[Misnumbered] = []

    def run(self, key: QueueKey, extent: QueueExtent, findings: Findings) -> None:
        """Check the units of one queue. Raises OSError."""
        queue = QueueFiles(self._files, key)
        for queue_offset, (physical_offset, size, tags_code) in self._units(queue, extent):
            if physical_offset < self._files.log.min_offset and size > 0 and size != BLANK_UNIT_SIZE:
                continue  # retention has deleted the record since
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
            record = read_record(self._files.log, physical_offset) if size > 0 and physical_offset >= 0 else None
            if record is not None and self._is_misnumbered(queue, extent, queue_offset, record):
                self.misnumbered.append(Misnumbered(key, physical_offset, record.queue_offset, queue_offset))
            elif what := self._wrong(key, queue_offset, physical_offset, size, record):
                path, position = queue.place(queue_offset)
                what = f"unit {queue_offset} of {key[0]}/{key[1]} {what}"
                findings.differs("queue unit", path, position, what, REPAIR_QUEUES)

    def _units(self, queue: QueueFiles, extent: QueueExtent) -> Iterator[tuple[int, tuple[int, int, int]]]:
        for queue_offset in range(extent.first, extent.end, _UNITS_AT_ONCE):
            units = queue.units(queue_offset, min(_UNITS_AT_ONCE, extent.end - queue_offset)).tolist()
            yield from enumerate(units, queue_offset)

    def _is_misnumbered(self, queue: QueueFiles, extent: QueueExtent, queue_offset: int, record: Record) -> bool:
        """Return whether the unit is right and the queue offset in its record, a field without checksum, is wrong.

        That is the case if the previous unit matches its record, and the queue offset in this record is that of another
        record or outside the queue.
        """
        if record.queue_offset == queue_offset or (str(record.topic, "utf-8", "replace"), record.queue_id) != queue.key:
            return False
        before = self._number(queue, queue_offset - 1) if queue_offset > extent.first else queue_offset - 1
        claimed = record.queue_offset
        is_taken = not extent.first <= claimed < extent.end or self._number(queue, claimed) == claimed
        return before == queue_offset - 1 and is_taken

    def _number(self, queue: QueueFiles, queue_offset: int) -> int:
        """Return the queue offset stored in the record of a unit, -1 without a valid record."""
        units = queue.units(queue_offset, 1)
        record = read_record(self._files.log, int(units["physical_offset"][0])) if len(units) else None
        return -1 if record is None else record.queue_offset

    def _wrong(self, key: QueueKey, queue_offset: int, physical_offset: int, size: int, record: Record | None) -> str:
        if size == 0 and physical_offset == 0:
            return "is zero, but later units are not"
        if size == BLANK_UNIT_SIZE:
            return "is a blank unit, which is allowed only before the queue's first record"
        if size <= 0 or physical_offset < 0:
            return f"is invalid: physical offset {physical_offset}, size {size}"
        if record is None:
            return f"points at physical offset {physical_offset}, where no record begins"
        topic = str(record.topic, "utf-8", "replace")
        if (topic, record.queue_id) == key and record.queue_offset != queue_offset:
            return f"points at physical offset {physical_offset}, which has queue offset {record.queue_offset} of this queue"
        if (topic, record.queue_id) != key and b"INNER_MULTI_DISPATCH" not in record.properties:
            return f"points at physical offset {physical_offset}, a record of {topic}/{record.queue_id}"
        return ""
