"""Checksums of queue files: damage to a unit is noticed before a pull goes by it.

`cleanStop.json` keeps them: of each file the checksum of the units that it had when all of it was on the disk. A start looks
at the newest files; what would take it too long the checkpoint thread looks at afterwards. A damaged queue is made again
from the log, in the one case at once, in the other by the next start.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import file_name
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore, QueueKey

log = logging.getLogger("store")

# Of each: bytes read at most.
_START_MAX: Final = 256 << 20
_ROUND_MAX: Final = 8 << 20
# Of files whose checksum is not known, as an older version wrote none, so much is read by each save.
_UNKNOWN_MAX: Final = 64 << 20


class FileSum(NamedTuple):
    """Of the first `size` bytes of the queue file that begins at byte `start` of its row."""

    start: int
    size: int
    checksum: int


SumsByTopic = dict[str, dict[int, list[FileSum]]]


def take(disk: Disk, queues: Iterable[ConsumeQueue]) -> SumsByTopic:
    """The checksums of what the queues have now; only what is new is read. Any thread may, one at a time."""
    taken: SumsByTopic = {}
    budget = _UNKNOWN_MAX
    for queue in queues:
        for file in queue.opened_files:
            size, checksum = queue.sums.get(file.start_offset, (0, 0))
            wrote = file.wrote
            if wrote < size:
                size = checksum = 0
            if wrote == size or (size == 0 and file.full and budget <= 0):
                continue
            try:
                data = disk.read_range(file.path, size, wrote - size)
            except OSError:
                continue  # deleted by now, or it cannot be read: who needs it will say so
            if size == 0:
                budget -= wrote
            queue.sums[file.start_offset] = wrote, crc32(data, checksum)
        if queue.sums:
            sums = [FileSum(start, *found) for start, found in sorted(queue.sums.items())]
            taken.setdefault(queue.topic, {})[queue.queue_id] = sums
    return taken


class SumCheck:
    """One look at all files whose checksums are known, in portions. `damaged` fills up."""

    def __init__(self, disk: Disk, queues: ConsumeQueueStore, known: SumsByTopic, dropped: Mapping[str, int]) -> None:
        """Queues of the topics in `dropped` are left out: they may have had another life."""
        self.damaged: dict[QueueKey, str] = {}
        self._disk = disk
        self._queues = queues
        by_age: list[tuple[int, QueueKey, FileSum]] = []
        for topic, by_id in known.items():
            for queue_id, sums in by_id.items() if topic not in dropped else ():
                if (queue := queues.get(topic, queue_id)) is not None:
                    queue.sums = {one.start: (one.size, one.checksum) for one in sums}
                    by_age += [(age, (topic, queue_id), one) for age, one in enumerate(reversed(sums))]
        by_age.sort(key=lambda one: one[0])
        self._waiting = deque(by_age)

    def at_start(self, repairs: list[str]) -> set[QueueKey]:
        """The queues that are to be made again; which file of each is damaged goes to `repairs`."""
        self.go_on(_START_MAX)
        found, self.damaged = self.damaged, {}
        repairs += [f"{path} is damaged: its checksum is wrong" for path in found.values()]
        return set(found)

    def go_on(self, bytes_max: int) -> None:
        """Look at files of up to so many bytes, the newest of all queues first."""
        while self._waiting and bytes_max > 0:
            _, key, found = self._waiting.popleft()
            queue = self._queues.get(*key)
            # Truncated or retired since: what is left of it has another checksum, or none.
            if key in self.damaged or queue is None or queue.sums.get(found.start, (0, 0))[0] < found.size:
                continue
            bytes_max -= found.size
            path = f"{queue.folder}/{file_name(found.start)}"
            try:
                data = self._disk.read_range(path, 0, found.size)
            except FileNotFoundError:
                continue  # that it is missing is said elsewhere
            if crc32(data) != found.checksum:
                self.damaged[key] = path
                queue.sums.clear()

    def go_on_in_background(self) -> bool:
        """A portion beside a running broker; whether damage was found, of which the next start is to know."""
        before = len(self.damaged)
        self.go_on(_ROUND_MAX)
        for path in list(self.damaged.values())[before:]:
            log.error("%s is damaged: its checksum is wrong; the next start makes the queue again from the log", path)
        return len(self.damaged) > before
