"""One file of fixed size in memory, named by the offset of its first byte.

Two positions, both relative to the file: up to `wrote` there are bytes of ours, up to `flushed` they are durable;
`flushed <= wrote <= size`. The loop's thread moves `wrote`, the flush thread `flushed`.
"""

from store.disk import Disk, MappedRegion

FILE_NAME_SIZE = 20


def file_name(start_offset: int) -> str:
    """Name of the file that begins at `start_offset`: 20 digits."""
    return f"{start_offset:0{FILE_NAME_SIZE}d}"


class MappedFile:
    """`start_offset` is what RocketMQ calls fileFromOffset. `view` and `array` are the mapping itself."""

    __slots__ = ("array", "disk", "flushed", "path", "region", "size", "start_offset", "view", "wrote")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        start_offset: int,
        size: int,
        *,
        create: bool = False,
        random_access: bool = False,
    ) -> None:
        self.disk = disk
        self.path = f"{directory}/{file_name(start_offset)}"
        self.start_offset = start_offset
        self.size = size
        self.region: MappedRegion = disk.map(self.path, size, create=create, random_access=random_access)
        self.view = self.region.view
        self.array = self.region.array
        self.wrote = 0
        self.flushed = 0

    @property
    def end_offset(self) -> int:
        """Offset behind the last written byte."""
        return self.start_offset + self.wrote

    @property
    def full(self) -> bool:
        return self.wrote == self.size

    def append(self, data: bytes) -> int:
        """Write `data` behind what is there; the position it got. The caller has made sure that it fits."""
        position = self.wrote
        end = position + len(data)
        assert end <= self.size, f"{self.path}: {len(data)} bytes at {position} of {self.size}"
        self.view[position:end] = data
        self.wrote = end
        return position

    def flush(self) -> None:
        """Make durable what is written. Raises OSError, after which `flushed` is where it was."""
        wrote = self.wrote
        if self.flushed < wrote:
            self.region.sync(self.flushed, wrote)
            # `wrote` may have been set back meanwhile (a truncated queue).
            self.flushed = min(wrote, self.wrote)

    def truncate(self, position: int) -> None:
        """Forget everything from `position` on. It is zeroed: stale bytes there could pass for valid ones later."""
        if self.region.clear(position):
            self.region.sync(position, self.size)
        self.wrote = position
        self.flushed = min(self.flushed, position)

    def close(self) -> None:
        self.view.release()
        del self.array
        self.region.close()

    def delete(self) -> None:
        """Unmap and delete the file; views that pulls still hold stay readable."""
        self.close()
        self.disk.delete(self.path)
