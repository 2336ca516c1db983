"""One file of fixed size in memory, named by the offset of its first byte.

Three positions, all relative to the file: up to `wrote` there are bytes of ours, up to `flushed` they are durable, and up to
`reserved` more may be written without the device running out of room (Disk: a hole that cannot be filled is no error but
the end of the process). `flushed <= wrote <= reserved <= size` while a file is written; one that was found on the disk
begins with nothing reserved. The log gives away room before it writes: up to `taken`, where nobody else looks.

A store may have more files than a process may have mappings. A file is mapped when somebody looks at its `view` or `array`,
and `open_files` takes mappings away from files that nobody has looked at for long: the two attributes are empty until
then, and Python asks `__getattr__` for an attribute that is empty.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import Disk, MappedRegion

if TYPE_CHECKING:
    from pocketmq.store.disk.open_files import OpenFiles

FILE_NAME_SIZE = 20
_MAPPING: Final = ("view", "array", "region")


def file_name(start_offset: int) -> str:
    """Name of the file that begins at `start_offset`: 20 digits."""
    return f"{start_offset:0{FILE_NAME_SIZE}d}"


class MappedFile:
    """`start_offset` is what RocketMQ calls fileFromOffset. `view` and `array` are the mapping itself; never keep them.

    `used` is set by whoever looks the file up, `pinned` keeps it mapped.
    """

    __slots__ = (
        "_random_access",
        "array",
        "disk",
        "flushed",
        "open_files",
        "path",
        "pinned",
        "region",
        "reserve_step",
        "reserved",
        "size",
        "start_offset",
        "taken",
        "used",
        "view",
        "wrote",
    )
    view: memoryview
    array: npt.NDArray[np.uint8]
    region: MappedRegion

    def __init__(
        self,
        disk: Disk,
        directory: str,
        start_offset: int,
        size: int,
        *,
        create: bool = False,
        random_access: bool = False,
        open_files: "OpenFiles | None" = None,
        reserve_step: int = 0,
    ) -> None:
        """`create` makes the file now. Room is taken `reserve_step` bytes at a time, 0: all at once. Raises OSError."""
        self.disk = disk
        self.path = f"{directory}/{file_name(start_offset)}"
        self.start_offset = start_offset
        self.size = size
        self.open_files = open_files
        self.reserve_step = reserve_step or size
        self.wrote = 0
        self.taken = 0
        self.flushed = 0
        self.reserved = 0
        self.used = False
        self.pinned = False
        self._random_access = random_access
        if create:
            self._map(create=True)

    # --- the mapping -----------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name not in _MAPPING:
            raise AttributeError(f"a MappedFile has no {name}")
        return self._map()[name]

    def _map(self, create: bool = False) -> dict[str, Any]:
        region = self.disk.map(self.path, self.size, create=create, random_access=self._random_access)
        # Held here: by the end another thread may have needed the room.
        mapping = {"view": region.view, "array": region.array, "region": region}
        self.region, self.array, self.view = region, region.array, region.view
        if self.open_files is not None:
            self.open_files.opened(self)
        return mapping

    def unmap(self) -> None:
        """Let go of the mapping; views that others hold stay. Bytes that wait for a flush are still carried to the disk."""
        # Not `region`: it is what syncs, mapped or not.
        for name in ("view", "array"):
            try:
                delattr(self, name)
            except AttributeError:
                return  # was not mapped
        self.region.close()

    def release_memory(self, end: int, start: int = 0) -> None:
        """Let pages of [start, end) leave our resident set, if they are mapped at all."""
        try:
            region: MappedRegion = object.__getattribute__(self, "region")
        except AttributeError:
            return
        region.release_memory(start, end)

    def next_data(self, start: int) -> int:
        """The first byte from `start` on that is in no hole of the file, else its end: zeros that cost something to read."""
        return self.region.next_data(start, self.size)

    # --- writing ---------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """Offset behind the last written byte."""
        return self.start_offset + self.wrote

    @property
    def full(self) -> bool:
        return self.wrote == self.size

    def reserve(self, end: int) -> None:
        """Have room on the device for all bytes before `end`, and some more at once. Raises OSError."""
        if end > self.reserved:
            end = min(-(-end // self.reserve_step) * self.reserve_step, self.size)
            self.region.reserve(max(self.reserved, self.wrote), end)
            self.reserved = end

    def append(self, data: bytes) -> int:
        """Write `data` behind what is there; the position it got. The caller has made sure that it fits.

        Raises OSError when there is no room on the device; nothing is written then.
        """
        position = self.wrote
        end = position + len(data)
        assert end <= self.size, f"{self.path}: {len(data)} bytes at {position} of {self.size}"
        if end > self.reserved:
            self.reserve(end)
        self.view[position:end] = data
        self.wrote = end
        return position

    def write(self, data: bytes) -> None:
        """Write much behind what is there, into room that is reserved."""
        self.region.write(self.wrote, data)
        self.wrote += len(data)

    def flush(self) -> None:
        """Make durable what is written. Raises OSError, after which `flushed` is where it was."""
        wrote = self.wrote
        if self.flushed < wrote:
            self.region.sync(self.flushed, wrote)
            # `wrote` may have been set back meanwhile (a truncated queue).
            self.flushed = min(wrote, self.wrote)

    def truncate(self, position: int) -> None:
        """Forget everything from `position` on. It is zeroed: stale bytes there could pass for valid ones later."""
        _ = self.view  # mapped from here on
        if self.region.clear(position):
            self.region.sync(position, self.size)
        self.wrote = position
        self.flushed = min(self.flushed, position)

    # --- its end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmap the file; it stays on the disk."""
        self.unmap()
        if self.open_files is not None:
            self.open_files.closed(self)

    def delete(self) -> None:
        """Unmap and delete the file; views that pulls still hold stay readable."""
        self.close()
        self.disk.delete(self.path)
