"""OpenFiles: limits the number of mapped files and their resident memory.

The kernel limits the mappings of a process (vm.max_map_count), and each accessed page counts as resident memory. The store
of a busy broker can have hundreds of log files and tens of thousands of queues. To map a queue's file again for each append
would cost several times as much as a send.

The file to unmap when the limit is reached is chosen by the second-chance algorithm: files form a circle in the order in
which they were mapped, and the first file that was not used since it was last inspected is unmapped.

The pages of a mapped file belong to the page cache whether they are resident or not. Releasing them loses nothing, and
accessing them again is cheap as long as the kernel keeps them.
"""

import resource
import sys
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from pocketmq.store.disk.mapped_file import MappedFile

# A file may take two of the kernel's mappings, and other parts of the process need some.
_MAPPING_SHARE: Final = 3
# Sockets, config files and syncs need descriptors, too.
_DESCRIPTOR_SHARE: Final = 2
_COUNT_DEFAULT: Final = 512
_NO_OVERCOMMIT: Final = 2
# Bytes at the end of the log that stay resident, as they are used all the time.
LOG_TAIL_KEPT: Final = 32 << 20
_PAGE_SIZE: Final = resource.getpagesize()
# Share of the time that may be spent on releasing the pages of other files than the log's.
_RELEASE_SHARE: Final = 0.002


class OpenFiles:
    """The set of mapped files. Thread-safe: any thread may map a file and thereby unmap another one."""

    def __init__(self, count_max: int) -> None:
        """`count_max` is mappedFileOpenMax; at most as many are mapped as the kernel's limits allow, with 0 just as many."""
        self.count_max = max(min(count_max or sys.maxsize, _count_allowed()), 1)
        self._circle: dict[MappedFile, None] = {}
        self._lock = threading.Lock()
        self._release_again_s = 0.0

    @property
    def is_full(self) -> bool:
        """Whether a file must be unmapped before another one can be mapped."""
        return len(self._circle) >= self.count_max

    def __len__(self) -> int:
        return len(self._circle)

    def opened(self, file: MappedFile) -> None:
        """Add a newly mapped file, and unmap others above the limit."""
        with self._lock:
            self._circle.pop(file, None)
            # Each file is inspected at most twice, the second time without its flag. Few files are pinned.
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
        """Remove a file that was closed."""
        with self._lock:
            self._circle.pop(file, None)

    def release_memory(
        self, log_files: Sequence[MappedFile], resident_max: int, release_others: Callable[[], None] = lambda: None
    ) -> bool:
        """Above `resident_max` bytes release pages: of the log except its end, then by `release_others`, then of all files.

        Each step follows only if necessary, those after the first not in each call: their pages are used again at once if
        thousands of queues are, and each then costs a page fault. Returns whether resident memory is still above the limit.
        """
        if resident_memory() <= resident_max:
            return False
        tail_start = log_files[-1].end_offset - LOG_TAIL_KEPT if log_files else 0
        for file in log_files:
            file.release_memory(min(file.flushed, tail_start - file.start_offset))
        if resident_memory() <= resident_max:
            return False
        began_s = monotonic()
        if began_s < self._release_again_s:
            return True
        release_others()
        if is_above := resident_memory() > resident_max:
            with self._lock:
                files = set(self._circle) - set(log_files)
            for file in files:
                file.release_memory(file.wrote)
            is_above = resident_memory() > resident_max
        now_s = monotonic()
        self._release_again_s = now_s + (now_s - began_s) / _RELEASE_SHARE
        return is_above


def _count_allowed() -> int:
    """Return the number of files that may be mapped by the limits of the kernel and, if it forbids overcommitting memory so
    that each mapping keeps a descriptor, of the process."""
    count = _kernel_setting("max_map_count") // _MAPPING_SHARE or _COUNT_DEFAULT
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if _kernel_setting("overcommit_memory") == _NO_OVERCOMMIT and soft_limit != resource.RLIM_INFINITY:
        count = min(count, soft_limit // _DESCRIPTOR_SHARE)
    return count


def _kernel_setting(name: str) -> int:
    """Return a setting of the kernel's virtual memory; 0 if it is unknown."""
    try:
        with open(f"/proc/sys/vm/{name}") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def resident_memory() -> int:
    """Return the resident bytes of files in this process, including program and libraries; 0 if /proc is missing."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[2]) * _PAGE_SIZE
    except FileNotFoundError:
        return 0
