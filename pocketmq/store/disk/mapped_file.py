"""MappedFile: a memory-mapped file of fixed size, named by the offset of its first byte.

It has three positions, relative to its start: bytes before `wrote` contain data, bytes before `flushed` are durable, and
bytes before `reserved` can be written without running out of disk space (which would kill the process, see `Disk`). While a
file is written, `flushed <= wrote <= reserved <= size`; a file found on disk starts with nothing reserved.

A store may have more files than a process may have mappings. A file is mapped when its `view` or `array` is accessed, and
`open_files` unmaps files that have not been used for long. The attributes are then deleted, so that Python calls
`__getattr__` at the next access.

Bytes appended to an unmapped file while no more can be mapped wait in its *tail* in memory, if they can be made again from
the log, and are written with what follows: to open a file for each append would cost more than the rest of a send.
"""

from contextlib import AbstractContextManager, nullcontext, suppress
from ctypes import Array, addressof, c_char, memmove
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import MappedRegion
from pocketmq.store.format.lane_units import FileEnds

if TYPE_CHECKING:
    from pocketmq.store.disk.mapped_file_queue import MappedFileQueue

FILE_NAME_SIZE = 20
_MAPPING: Final = ("view", "array", "region")
# Held while mappings and tails are set, written and dropped: `address` is always that of `array`, of the tail, or 0.
_mapping_lock: Final = Lock()
_TAIL_SIZE: Final = 1_000
_Tail: Final = c_char * _TAIL_SIZE


def file_name(start_offset: int) -> str:
    """Return the name of the file that begins at `start_offset`, 20 digits."""
    return f"{start_offset:0{FILE_NAME_SIZE}d}"


class MappedFile(FileEnds):
    """Memory-mapped file; `start_offset` is RocketMQ's fileFromOffset.

    `view` and `array` are the mapping; do not keep references. Look-ups set `used`; `pinned` keeps the file mapped.
    """

    __slots__ = (
        "_can_wait",
        "_random_access",
        "_tail",
        "_waits_from",
        "array",
        "disk",
        "flushed",
        "open_files",
        "path",
        "pinned",
        "region",
        "reserve_step",
        "size",
        "start_offset",
        "used",
        "view",
    )
    view: memoryview
    array: npt.NDArray[np.uint8]
    region: MappedRegion

    def __init__(self, files: "MappedFileQueue", directory: str, start_offset: int, *, create: bool) -> None:
        """`files` is the sequence with the properties of its files; with `create` the file is created. Raises OSError."""
        self.disk = files.disk
        self.path = f"{directory}/{file_name(start_offset)}"
        self.start_offset = start_offset
        self.size = files.file_size
        self.open_files = files.open_files
        self.reserve_step = files.reserve_step
        self.wrote = 0
        self.flushed = 0
        self.reserved = 0
        self.used = False
        self.pinned = False
        self._random_access = files.random_access
        self._can_wait = files.can_wait
        self._tail: Array[c_char] | None = None
        self._waits_from = 0  # bytes of the tail from this position on are not in the file
        if create:
            self._map(create=True)

    # --- the mapping -----------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name not in _MAPPING:
            raise AttributeError(f"MappedFile has no attribute {name}")
        return self._map()[name]

    def _map(self, create: bool = False) -> dict[str, Any]:
        region = self.disk.map(self.path, self.size, create=create, random_access=self._random_access)
        # Referenced here, as another thread may unmap the file before this method returns.
        mapping = {"view": region.view, "array": region.array, "region": region}
        with _mapping_lock:
            self._end_tail()
            self.region = region
            if self.reserved > self.wrote:
                region.show_reserved(self.wrote, self.reserved)
            self.array, self.view, self.address_start = region.array, region.view, 0
            self.address, self.address_end = region.array.ctypes.data, self.size
        if self.open_files is not None:
            self.open_files.opened(self)
        return mapping

    def unmap(self) -> None:
        """Drop the mapping. Existing views stay valid, and unflushed bytes can still be synced."""
        # `region` is kept, because it is still needed to sync.
        with _mapping_lock:
            self._end_tail()
            for name in ("view", "array"):
                try:
                    delattr(self, name)
                except AttributeError:
                    return  # was not mapped
            self.region.close()

    def release_memory(self, end: int, start: int = 0) -> None:
        """Remove the pages of [start, end) from the resident set, if the file is mapped."""
        try:
            region: MappedRegion = object.__getattribute__(self, "region")
        except AttributeError:
            return
        region.release_memory(start, end)

    def open(self) -> "AbstractContextManager[MappedFile]":
        """Return the file for several reads (`store.offline.file_bytes`)."""
        return nullcontext(self)

    def read(self, position: int, size: int, buffer: object = None) -> npt.NDArray[np.uint8]:
        """Return up to `size` bytes of the mapping; do not keep them."""
        return self.array[position : position + size]

    def next_data(self, position: int) -> int:
        """Return the first byte from `position` on outside the file's holes, or the file size. Holes are slow to read."""
        return self.region.next_data(position, self.size)

    # --- writing ---------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """End offset of the written bytes."""
        return self.start_offset + self.wrote

    @property
    def full(self) -> bool:
        return self.wrote == self.size

    def reserve(self, end: int) -> None:
        """Reserve disk space for all bytes before `end`, rounded up to the step. Raises OSError."""
        if end > self.reserved:
            start, end = max(self.reserved, self.wrote), min(-(-end // self.reserve_step) * self.reserve_step, self.size)
            region = self.region
            region.reserve(start, end)
            self.reserved = end
            if self.region is not region:  # another thread has mapped the file
                self.region.show_reserved(start, end)

    def append(self, data: bytes) -> int:
        """Write `data` at the end and return its position. The caller must make sure that it fits into the file.

        A file that is not mapped and can wait stays so if as many files are mapped as may be. Raises OSError if the disk is
        full; nothing is written then.
        """
        position = self.wrote
        end = position + len(data)
        assert end <= self.size, f"{self.path}: {len(data)} bytes at {position} of {self.size}"
        if end > self.reserved:
            self.reserve(end)
        try:
            view = None if self._tail is not None else object.__getattribute__(self, "view")
        except AttributeError:
            view = None
        if view is None:
            if self._can_wait and self.open_files is not None and self.open_files.is_full and len(data) <= _TAIL_SIZE:
                # To map it would unmap another file that is used as much, for several times the cost.
                self._append_to_tail(data)
                return position
            view = self.view
        view[position:end] = data
        self.wrote = end
        return position

    def _append_to_tail(self, data: bytes) -> None:
        end = self.wrote + len(data)
        with _mapping_lock:
            if end > self.address_end:
                self._renew_tail()
            memmove(self.address + self.wrote, data, len(data))  # the mapping, if another thread has mapped the file
            self.wrote = end

    def _renew_tail(self) -> None:
        """Write what waits in the tail to the file, and let all of its bytes be used again.

        Raises OSError; nothing is changed then.
        """
        self._empty_tail()
        self._tail, self._waits_from = self._tail or _Tail(), self.wrote
        self.address_start, self.address_end = self.wrote, self.wrote + _TAIL_SIZE
        self.address = addressof(self._tail) - self.wrote

    def _end_tail(self) -> None:
        """Write the tail to the file and drop it, and forget the address. Raises OSError; nothing is changed then."""
        self._empty_tail()
        self.address_end, self._tail = 0, None

    def _empty_tail(self) -> None:
        """Write the tail to the file and forget the address. Raises OSError; nothing is changed then."""
        address, self.address = self.address, 0  # the lane adds nothing meanwhile
        try:
            self._write_tail()
        except OSError:
            self.address = address
            raise

    def _write_tail(self) -> None:
        wrote = self.wrote
        if self._tail is not None and self._waits_from < wrote:
            self.disk.write_range(self.path, self._waits_from, self._in_tail(self._tail, self._waits_from, wrote))
            self._waits_from = wrote

    def _in_tail(self, tail: Array[c_char], start: int, end: int) -> bytes:
        tail_start = self.address_end - _TAIL_SIZE
        return memoryview(tail)[start - tail_start : end - tail_start].tobytes()

    def write(self, data: bytes | memoryview) -> None:
        """Write large `data` at the end, in reserved space."""
        self.region.write(self.wrote, data)
        self.wrote += len(data)

    def read_written(self, start: int, end: int) -> bytes | memoryview:
        """Return written bytes without mapping the file. Raises OSError."""
        if start >= self.flushed:  # as they are not synced, their pages are in memory
            with suppress(AttributeError):
                view: memoryview = object.__getattribute__(self, "view")
                return view[start:end]
        with _mapping_lock:
            if self._tail is not None and self.address_end - _TAIL_SIZE <= start:
                return self._in_tail(self._tail, start, end)
            self._write_tail()
        return self.disk.read_range(self.path, start, end - start)

    def flush(self) -> None:
        """Make the written bytes durable. Raises OSError, and `flushed` is then unchanged."""
        if self.flushed < self.wrote:
            wrote = self.begin_flush()
            self.region.sync(self.flushed, wrote)
            self.end_flush(wrote)

    def begin_flush(self) -> int:
        """Write what waits in memory, and return the end of the bytes that a sync from now on makes durable."""
        wrote = self.wrote
        if self._tail is not None:  # a sync of the log waits for no other file
            with _mapping_lock:
                if self._tail is not None:
                    self._renew_tail()
        return wrote

    def end_flush(self, wrote: int) -> None:
        """Note that the bytes before `wrote` were made durable."""
        self.flushed = min(wrote, self.wrote)  # a queue may have been truncated during the sync

    def truncate(self, position: int) -> None:
        """Cut the contents at `position`. The rest is zeroed, because stale bytes could look valid later."""
        _ = self.view  # maps the file
        if self.region.clear(position):
            self.region.sync(position, self.size)
        self.wrote = position
        self.flushed = min(self.flushed, position)

    # --- closing ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmap the file without deleting it."""
        self.unmap()
        if self.open_files is not None:
            self.open_files.closed(self)

    def delete(self) -> None:
        """Unmap and delete the file. Views that pulls still use stay readable."""
        self.close()
        self.disk.delete(self.path)
