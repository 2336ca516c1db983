"""Checksums of queue files, to detect damaged units before a pull uses them.

`cleanStop.json` has for each file the checksum of the units that were synced when it was written. A start verifies the
newest files, up to a size limit; the checkpoint thread verifies the others later. A damaged queue is rebuilt from the log:
at once if the start finds it, otherwise by the next start.
"""

import logging
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import MappedFile, file_name
from pocketmq.store.format.message import QueueKey
from pocketmq.store.queue.consume_queue import ConsumeQueue, FileSum
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger("store")

# Maximum number of bytes verified by a start, and by one round of the checkpoint thread.
_START_MAX: Final = 256 << 20
_ROUND_MAX: Final = 8 << 20
# Maximum number of bytes read per save of full files without a checksum (written by an older version).
_UNKNOWN_MAX: Final = 64 << 20
RENEWED_MAX: Final = 5_000
"""Number of queues whose checksums are renewed by one save while the broker runs. With more queues, those of some of them
are older, and cover fewer units, until a later save or a clean stop."""
_NO_SUM: Final = FileSum(0, 0, 0)

SumsByTopic = dict[str, dict[int, tuple[FileSum, ...]]]


def take(queues: Sequence[ConsumeQueue], first: int = 0, renewed_max: int = sys.maxsize) -> tuple[SumsByTopic, int]:
    """Return the checksums of the queues' current units, reading only the new ones, and where to begin the next time.

    Those of at most `renewed_max` queues with new units are renewed, from index `first` on; the others cover fewer units.
    May be called from any thread, but not concurrently.
    """
    taken: SumsByTopic = {}
    budget, renewed, following = _UNKNOWN_MAX, 0, 0
    for number in range(len(queues)):
        queue = queues[index := (first + number) % len(queues)]
        if renewed < renewed_max and not _is_current(before := queue.sums, queue.opened_files):
            budget = _renew(queue, budget)
            if queue.sums is not before:
                renewed, following = renewed + 1, index + 1
        if queue.sums:
            taken.setdefault(queue.topic, {})[queue.queue_id] = queue.sums
    return taken, following if renewed == renewed_max else 0


def _is_current(sums: tuple[FileSum, ...], files: tuple[MappedFile, ...]) -> bool:
    """Return whether each of a queue's files has a checksum, the last file one of all its units."""
    if len(sums) < len(files):
        return False
    return not files or (sums[-1].start == files[-1].start_offset and sums[-1].size == files[-1].wrote)


def _renew(queue: ConsumeQueue, budget: int) -> int:
    """Renew the checksums of a queue. `budget` is the bytes of full files without one that may be read; return the rest."""
    known, has_new = {one.start: one for one in queue.sums}, False
    for file in queue.opened_files:
        _, size, checksum = known.get(start := file.start_offset, _NO_SUM)
        wrote = file.wrote
        if wrote < size:
            size = checksum = 0
        if wrote == size or (size == 0 and file.full and budget <= 0):
            continue
        try:
            data = file.read_written(size, wrote)
        except OSError:
            continue  # deleted, or unreadable, which the next access reports
        if size == 0:
            budget -= wrote
        known[start], has_new = FileSum(start, wrote, crc32(data, checksum)), True
    if has_new:
        queue.sums = tuple(sorted(known.values()))
    return budget


def _covers(sums: tuple[FileSum, ...], found: FileSum) -> bool:
    return any(one.start == found.start and one.size >= found.size for one in sums)


class SumCheck:
    """One verification pass over all files with known checksums, in portions. `damaged` collects the results."""

    def __init__(self, disk: Disk, queues: ConsumeQueueStore, known: SumsByTopic, dropped: Mapping[str, int]) -> None:
        """Queues of the topics in `dropped` are skipped: the topic may have been deleted and created again."""
        self.damaged: dict[QueueKey, str] = {}
        self._disk = disk
        self._queues = queues
        by_age: list[tuple[int, QueueKey, FileSum]] = []
        for topic, by_id in known.items():
            for queue_id, sums in by_id.items() if topic not in dropped else ():
                if (queue := queues.get(topic, queue_id)) is not None:
                    queue.sums = sums
                    by_age += [(age, (topic, queue_id), one) for age, one in enumerate(reversed(sums))]
        by_age.sort(key=lambda one: one[0])
        self._waiting = deque(by_age)

    def at_start(self, repairs: list[str]) -> set[QueueKey]:
        """Verify the newest files. Return the queues to rebuild, and append a text about each damaged file to `repairs`."""
        self.go_on(_START_MAX)
        found, self.damaged = self.damaged, {}
        repairs += [f"{path} is damaged: its checksum is wrong" for path in found.values()]
        return set(found)

    def go_on(self, bytes_max: int) -> None:
        """Verify files of up to `bytes_max` in total, the newest file of each queue first."""
        while self._waiting and bytes_max > 0:
            _, key, found = self._waiting.popleft()
            queue = self._queues.get(*key)
            # Truncated or deleted since then: its checksum is no longer known.
            if key in self.damaged or queue is None or not _covers(queue.sums, found):
                continue
            bytes_max -= found.size
            path = f"{queue.folder}/{file_name(found.start)}"
            try:
                data = self._disk.read_range(path, 0, found.size)
            except FileNotFoundError:
                continue  # a missing file is reported elsewhere
            if crc32(data) != found.checksum:
                self.damaged[key] = path
                queue.sums = ()

    def go_on_in_background(self) -> bool:
        """Verify one portion while the broker runs. Return whether damage was found, which the next start must repair."""
        before = len(self.damaged)
        self.go_on(_ROUND_MAX)
        for path in list(self.damaged.values())[before:]:
            log.error("%s is damaged: its checksum is wrong; the next start rebuilds the queue from the log", path)
        return len(self.damaged) > before
