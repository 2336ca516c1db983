"""All ConsumeQueues of a store, by topic and queue id: `<folder>/<topic>/<queue id>/`."""

from collections.abc import Callable, Iterator, Set
from typing import Final

from store.consume_queue import ConsumeQueue
from store.disk import Disk
from store.layout import CONSUME_QUEUE_UNIT_SIZE

QueueKey = tuple[str, int]

# Files of 300,000 units, as Apache's mappedFileSizeConsumeQueue.
FILE_SIZE_DEFAULT: Final = 300_000 * CONSUME_QUEUE_UNIT_SIZE


class ConsumeQueueStore:
    """`queues` is there to be read; all but `flush` belongs to the thread that dispatches."""

    def __init__(self, disk: Disk, folder: str, file_size: int = FILE_SIZE_DEFAULT) -> None:
        """`file_size` in bytes is rounded up to whole units, as in Apache."""
        self._disk = disk
        self._folder = folder
        self._file_size = -(-file_size // CONSUME_QUEUE_UNIT_SIZE) * CONSUME_QUEUE_UNIT_SIZE
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        # Queues with units that may not be synced; filled by the dispatcher, so that a flush looks at these alone.
        self.dirty: set[ConsumeQueue] = set()

    def load(self, *, clean: bool) -> None:
        """Find the queues on the disk and the end of each. Raises StoreError for a file of a wrong size, OSError."""
        for topic in self._disk.listdir(self._folder):
            for name in self._disk.listdir(f"{self._folder}/{topic}"):
                if name.isascii() and name.isdecimal():
                    queue = self._create(topic, int(name))
                    queue.recover(clean=clean)

    def _create(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(self._disk, f"{self._folder}/{topic}/{queue_id}", self._file_size, topic, queue_id)
        self.queues[topic, queue_id] = queue
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nothing was ever put into it."""
        return self.queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no files until its first unit comes."""
        queue = self.queues.get((topic, queue_id))
        return queue if queue is not None else self._create(topic, queue_id)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(tuple(self.queues.values()))

    @property
    def max_physical_offset(self) -> int:
        """Behind the newest record that is in any queue; 0 without one."""
        return max((queue.max_physical_offset for queue in self.queues.values()), default=0)

    def truncate(self, physical_offset: int) -> None:
        """Drop all units of records at or beyond `physical_offset`."""
        for queue in self:
            if queue.max_physical_offset > physical_offset:
                queue.truncate(physical_offset)
                self.dirty.add(queue)

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Let each queue begin at its first unit whose record is still in the log."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    def delete_below(self, min_physical_offset: int) -> int:
        """Delete the files of which all records are gone from the log; how many. Corrects the min offsets."""
        deleted = sum(queue.delete_below(min_physical_offset) for queue in self)
        self.correct_min_offsets(min_physical_offset)
        return deleted

    def drop_topics(self, keep: Set[str]) -> list[str]:
        """Delete the queues of all topics but those in `keep`; the topics that went."""
        dropped = sorted({topic for topic, _ in self.queues} - keep)
        for topic in dropped:
            self.drop_topic(topic)
        return dropped

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of `topic` with their files."""
        for key in [key for key in self.queues if key[0] == topic]:
            queue = self.queues.pop(key)
            self.dirty.discard(queue)
            queue.destroy()
        path = f"{self._folder}/{topic}"
        if self._disk.is_dir(path):
            self._disk.delete_tree(path)

    def flush(self, least_pages: int = 0, between: Callable[[], None] = lambda: None) -> None:
        """Make units durable: of every dirty queue, or of those with so many dirty pages. For the flush thread.

        `between` is called after each queue: thousands of syncs take seconds, and a group commit must not wait for them all.
        Raises OSError; what failed is tried again next time.
        """
        for queue in tuple(self.dirty):
            # Taken out first: a unit that comes while the sync runs puts the queue back.
            self.dirty.discard(queue)
            try:
                if not queue.flush(least_pages) and least_pages and queue.unflushed:
                    self.dirty.add(queue)
            except OSError:
                self.dirty.add(queue)
                raise
            between()

    def close(self) -> None:
        """Flush and unmap everything. Raises OSError."""
        self.flush()
        for queue in self.queues.values():
            queue.close()

    def destroy(self) -> None:
        """Delete all queues: there is no log any more that they could point into."""
        for topic in {topic for topic, _ in self.queues}:
            self.drop_topic(topic)
