"""How many files are mapped at once, and how much of them may stay in memory.

A mapping costs address space (where the kernel never promises memory, a descriptor too), each page of it that was touched
counts as resident memory. The store of a busy broker has more of both than the process should: hundreds of log files,
thousands of queues, of which few are in use.

Mapped are at most so many files. Which one goes when there is one more is decided by second chance: files stand in a circle
in the order in which they were mapped; the first in it that nobody looked up since it last stood there goes.

The pages of a mapped file belong to the page cache, resident or not: giving them back loses nothing, and touching one again
costs 0.1 us as long as the kernel keeps it.
"""

import resource
import threading
from collections.abc import Sequence
from typing import Final

from pocketmq.store.disk.mapped_file import MappedFile

# Sockets, config files and a moment's syncs need descriptors too.
_DESCRIPTOR_SHARE: Final = 2
# The end of the log is written and read all the time.
LOG_TAIL_KEPT: Final = 32 << 20
_PAGE_SIZE: Final = resource.getpagesize()


class OpenFiles:
    """The circle. Any thread may map a file, any thread may find that its mapping is gone."""

    def __init__(self, count_max: int) -> None:
        """`count_max` is mappedFileOpenMax; the process's own limit of descriptors holds too."""
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft_limit != resource.RLIM_INFINITY:
            count_max = min(count_max, soft_limit // _DESCRIPTOR_SHARE)
        self.count_max = max(count_max, 1)
        self._circle: dict[MappedFile, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._circle)

    def opened(self, file: MappedFile) -> None:
        """`file` has just been mapped."""
        with self._lock:
            self._circle.pop(file, None)
            # Each file is passed twice at most: without its flag it goes. Pinned ones are few.
            for _ in range(2 * len(self._circle)):
                if len(self._circle) < self.count_max:
                    break
                oldest = next(iter(self._circle))
                del self._circle[oldest]
                if oldest.used or oldest.pinned:
                    oldest.used = False
                    self._circle[oldest] = None
                else:
                    oldest.unmap()
            self._circle[file] = None

    def closed(self, file: MappedFile) -> None:
        """`file` is unmapped for good."""
        with self._lock:
            self._circle.pop(file, None)

    def release_memory(self, log_files: Sequence[MappedFile], resident_max: int) -> bool:
        """Above `resident_max` bytes let pages go: of the log but for its end, then if need be of all files.

        Whether that was not enough.
        """
        if resident_memory() <= resident_max:
            return False
        tail_start = log_files[-1].end_offset - LOG_TAIL_KEPT if log_files else 0
        for file in log_files:
            file.release_memory(min(file.flushed, tail_start - file.start_offset))
        if resident_memory() <= resident_max:
            return False
        with self._lock:
            files = set(self._circle) - set(log_files)
        for file in files:
            file.release_memory(file.wrote)
        return resident_memory() > resident_max


def resident_memory() -> int:
    """Bytes of files that are resident in this process, its program and libraries among them; 0 where nobody tells."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[2]) * _PAGE_SIZE
    except FileNotFoundError:
        return 0
