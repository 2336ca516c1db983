"""ConsumeQueueExt: additional data of queue units in `consumequeue_ext/` (enableConsumeQueueExt).

Each queue has a sequence of extension files with units `size, tags code, store time, bitmap size, bitmap`. A queue unit that
has an extension unit stores the *address* of that unit in place of its tags code: the byte position in the file sequence
plus Long.MIN_VALUE, which is less than every tags code that is a hash or a time. The bitmap is for SQL92 filters and is
provided by the filter code (`bitmap_of`).

If the next unit does not fit into a file, the file ends with the mark -1. The extension files are not required to serve
messages: for an invalid address the record itself is read, and units that no queue unit points at are truncated at the next
start.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_EXT_FIXED_SIZE,
    CONSUME_QUEUE_EXT_FIXED_STRUCT,
    CONSUME_QUEUE_EXT_SIZE_MAX,
    CONSUME_QUEUE_UNIT_DTYPE,
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
)
from pocketmq.store.format.message import queue_folder, topic_folder
from pocketmq.store.queue.consume_queue import ConsumeQueue, queues_in

log = logging.getLogger("store")

_END_MARK: Final = b"\xff\xff"
_END_ROOM: Final = 4  # bytes that Apache reserves for the mark
_UNITS_LOOKED_AT: Final = 4096
_RESERVE_STEP: Final = 256 << 10
FILE_SIZE_DEFAULT: Final = 48 << 20


class ExtUnit(NamedTuple):
    """Decoded unit of an extension file."""

    size: int
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


class ConsumeQueueExt:
    """Extension files of one queue. Existing files must be loaded, and settled before the first `put`."""

    def __init__(
        self, disk: Disk, folder: str, file_size: int = FILE_SIZE_DEFAULT, open_files: OpenFiles | None = None
    ) -> None:
        self.files = MappedFileQueue(
            disk, folder, file_size, random_access=True, open_files=open_files, reserve_step=_RESERVE_STEP
        )

        self.is_settled = True
        """Whether the end of the files is known, where the next unit is written."""

    def load(self) -> None:
        """Open the files. Raises StoreError if one has a wrong size, OSError."""
        self.files.load()
        self.is_settled = False

    def settle(self, queue: ConsumeQueue | None) -> None:
        """Truncate the files after the newest unit that `queue` points at, or delete them if none. Raises OSError."""
        self.is_settled = True
        address = None if queue is None else _newest_address(queue)
        unit = None if address is None else self.get(address)
        if address is None:
            self.files.destroy()
        elif unit is not None:
            self.files.truncate(address - EXT_ADDRESS_BASE + unit.size)
        else:
            # The end is damaged or unknown. Existing units stay readable, and new units go into a new file.
            log.warning("%s: the queue points at address %d, but no unit is there", self.files.directory, address)

    def put(self, tags_code: int, store_timestamp_ms: int, bitmap: bytes = b"") -> int | None:
        """Append a unit and return its address, or None if it is too large (over 32,767 bytes). Raises OSError."""
        size = CONSUME_QUEUE_EXT_FIXED_SIZE + len(bitmap)
        if size > min(CONSUME_QUEUE_EXT_SIZE_MAX, self.files.file_size - _END_ROOM):
            return None
        file = self.files.writable()
        if size > file.size - file.wrote - _END_ROOM:
            file.append(_END_MARK[: file.size - file.wrote])
            file.wrote = file.size
            file = self.files.writable()
        data = CONSUME_QUEUE_EXT_FIXED_STRUCT.pack(size, tags_code, store_timestamp_ms, len(bitmap)) + bitmap
        return EXT_ADDRESS_BASE + file.start_offset + file.append(data)

    def get(self, address: int) -> ExtUnit | None:
        """Return the unit at `address`, or None if no valid unit is there."""
        position = address - EXT_ADDRESS_BASE
        head = self.files.view(position, CONSUME_QUEUE_EXT_FIXED_SIZE)
        if head is None:
            return None
        size, tags_code, store_timestamp_ms, bitmap_size = CONSUME_QUEUE_EXT_FIXED_STRUCT.unpack(head)
        if bitmap_size < 0 or size != CONSUME_QUEUE_EXT_FIXED_SIZE + bitmap_size:
            return None
        whole = self.files.view(position, size)
        return None if whole is None else ExtUnit(size, tags_code, store_timestamp_ms, bytes(whole[-bitmap_size or size :]))

    def delete_below(self, address: int) -> int:
        """Delete the files before the one that holds `address`. Return the number of files."""
        deleted = 0
        while len(self.files.files) > 1 and self.files.files[1].start_offset <= address - EXT_ADDRESS_BASE:
            self.files.delete_first()
            deleted += 1
        return deleted


class ConsumeQueueExtStore:
    """Extension files of all queues: `<folder>/<topic>/<queue id>/`."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        file_size: int = FILE_SIZE_DEFAULT,
        *,
        writes: bool = False,
        open_files: OpenFiles | None = None,
    ) -> None:
        """`writes`: whether new queue units get an extension unit (enableConsumeQueueExt). Existing ones are always read."""
        self.rows: dict[tuple[str, int], ConsumeQueueExt] = {}
        self.writes = writes
        self.bitmap_of: Callable[[str, int], bytes] | None = None
        """(topic, physical offset of a record) -> bitmap of its unit"""
        self._disk = disk
        self._folder = folder
        self._file_size = file_size
        self._open_files = open_files
        self._queues: Mapping[tuple[str, int], ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueueExt, None] = {}  # ordered by first unflushed unit

    def load(self, queues: Mapping[tuple[str, int], ConsumeQueue]) -> None:
        """Open the existing files and delete those of queues that do not exist. Raises StoreError, OSError.

        The end of each file sequence is determined at the first `put`, because recovery may truncate the queue before.
        """
        self._queues = queues
        for key in queues_in(self._disk, self._folder):
            row = self._row(key)
            row.load()
            if key not in queues:
                row.settle(None)

    def _row(self, key: tuple[str, int]) -> ConsumeQueueExt:
        row = self.rows.get(key)
        if row is None:
            folder = queue_folder(self._folder, *key)
            row = self.rows[key] = ConsumeQueueExt(self._disk, folder, self._file_size, self._open_files)
        return row

    def put(self, topic: str, queue_id: int, tags_code: int, store_timestamp_ms: int, bitmap: bytes = b"") -> int:
        """Write an extension unit and return its address, which the queue unit stores as tags code. Raises OSError.

        Returns `tags_code` itself if extension units are not written or this one is too large, as in Apache.
        """
        if not self.writes:
            return tags_code
        row = self._row((topic, queue_id))
        if not row.is_settled:
            row.settle(self._queues.get((topic, queue_id)))
        address = row.put(tags_code, store_timestamp_ms, bitmap)
        self._dirty[row] = None
        return tags_code if address is None else address

    def get(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at `address`, or None if it is missing or invalid."""
        row = self.rows.get((topic, queue_id))
        return None if row is None else row.get(address)

    def delete_below(self) -> int:
        """Delete the files that no queue unit points into any more. Return the number of files."""
        deleted = 0
        for key, row in self.rows.items():
            queue = self._queues.get(key)
            unit = None if queue is None else queue.unit_at(queue.min_offset)
            if unit is not None and unit[2] <= EXT_ADDRESS_MAX:
                deleted += row.delete_below(unit[2])
        return deleted

    def drop_topic(self, topic: str) -> None:
        """Delete the extension files of `topic`."""
        for key in [key for key in self.rows if key[0] == topic]:
            row = self.rows.pop(key)
            self._dirty.pop(row, None)
            row.files.destroy()
        path = topic_folder(self._folder, topic)
        if self._disk.is_dir(path):
            self._disk.delete_tree(path)

    def flush(self) -> None:
        """Make the units durable. Must be called before the queues that point at them are flushed. Raises OSError."""
        for row in tuple(self._dirty):
            self._dirty.pop(row, None)
            try:
                row.files.flush()
            except OSError:
                self._dirty[row] = None
                raise

    def close(self) -> None:
        """Flush and unmap everything. Raises OSError."""
        self.flush()
        for row in self.rows.values():
            row.files.close()


def _newest_address(queue: ConsumeQueue) -> int | None:
    """Return the last address in a queue, or None."""
    end, newest = queue.max_offset, None
    while newest is None and end > queue.min_offset:
        start = begin = max(end - _UNITS_LOOKED_AT, queue.min_offset)
        # `units` ends at the end of a file.
        while units := queue.units(start, end - start):
            codes = np.frombuffer(units, CONSUME_QUEUE_UNIT_DTYPE)["tags_code"]
            addresses = codes[codes <= EXT_ADDRESS_MAX]
            if len(addresses):
                newest = int(addresses[-1])
            start += len(codes)
        end = begin
    return newest
