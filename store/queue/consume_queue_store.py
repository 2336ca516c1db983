"""All ConsumeQueues of a store, by topic and queue id: `<folder>/<topic>/<queue id>/`.

Topics of 5.x with queue.type=BatchCQ have their queues in `batchconsumequeue/` instead, where a unit stands for a batch that
clients unpack. They are neither served nor written here, and keep their files: a ConsumeQueue beside one of those would keep
5.x from starting at all.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.queue.consume_queue import BrokenQueueError, ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore

QueueKey = tuple[str, int]

# Files of 300,000 units, as Apache's mappedFileSizeConsumeQueue.
FILE_SIZE_DEFAULT: Final = 300_000 * CONSUME_QUEUE_UNIT_SIZE


class ConsumeQueueStore:
    """`queues` is there to be read; all but `flush` belongs to the thread that dispatches."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        file_size: int = FILE_SIZE_DEFAULT,
        ext: ConsumeQueueExtStore | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """`file_size` in bytes is rounded up to whole units, as in Apache. `ext` is flushed and deleted with the queues."""
        self.disk = disk
        self._folder = folder
        self._open_files = open_files
        self._file_size = -(-file_size // CONSUME_QUEUE_UNIT_SIZE) * CONSUME_QUEUE_UNIT_SIZE
        self.ext = ext or ConsumeQueueExtStore(disk, folder + "_ext")
        self.batch_queues: frozenset[QueueKey] = frozenset()
        """Queues of 5.x topics with queue.type=BatchCQ, which are in a folder of their own."""
        self.batch_topics: frozenset[str] = frozenset()
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        # Queues with units that may not be synced; filled by the dispatcher, so that a flush looks at these alone.
        # A dict for its order, by which a test can tell which sync fails.
        self.dirty: dict[ConsumeQueue, None] = {}
        # Folders out of which a queue or a topic was deleted: a power cut could bring it back.
        self._thinned: set[str] = set()
        # Queues with files that are no whole row: nothing may be put into them before `drop_queue`.
        self.broken: set[QueueKey] = set()

    def load(self, *, clean: bool) -> None:
        """Find the queues on the disk and the end of each; those that must be made again are noted as `broken`.

        Raises StoreError when all files have another size than configured, OSError.
        """
        other_size: StoreError | None = None
        for topic in self.disk.listdir(self._folder):
            for name in self.disk.listdir(f"{self._folder}/{topic}"):
                if name.isascii() and name.isdecimal():
                    queue = self._create(topic, int(name))
                    try:
                        queue.recover(clean=clean)
                    except StoreError as error:
                        self.broken.add((topic, int(name)))
                        if not isinstance(error, BrokenQueueError):
                            other_size = other_size or error
        # Damage may leave a queue with a size that could have been configured, but not all queues.
        if other_size is not None and not any(queue.max_offset for queue in self):
            raise other_size
        self.ext.load(self.queues)
        batch_folder = f"{self._folder.rpartition('/')[0]}/batchconsumequeue"
        self.batch_queues = frozenset(
            (topic, int(name))
            for topic in self.disk.listdir(batch_folder)
            for name in self.disk.listdir(f"{batch_folder}/{topic}")
            if name.isascii() and name.isdecimal()
        )
        self.batch_topics = frozenset(topic for topic, _ in self.batch_queues)

    def _create(self, topic: str, queue_id: int) -> ConsumeQueue:
        folder = f"{self._folder}/{topic}/{queue_id}"
        queue = ConsumeQueue(self.disk, folder, self._file_size, topic, queue_id, self._open_files)
        self.queues[topic, queue_id] = queue
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nothing was ever put into it."""
        return self.queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no files until its first unit comes. Raises OSError."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            # What could not be deleted when the topic was.
            if self.disk.is_dir(folder := f"{self._folder}/{topic}/{queue_id}"):
                self.disk.delete_tree(folder)
            queue = self._create(topic, queue_id)
        return queue

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
                self.dirty[queue] = None

    def truncate_units(self, ends: Mapping[QueueKey, int]) -> None:
        """Drop the units from these queue offsets on, and all of the queues that have none.

        By what units say of physical offsets, as `truncate` goes, a damaged one could be passed over.
        """
        for key, queue in tuple(self.queues.items()):
            end = ends.get(key, queue.min_offset)
            if queue.min_offset <= end < queue.max_offset:
                queue.truncate_units(end)
                self.dirty[queue] = None

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Let each queue begin at its first unit whose record is still in the log."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    def delete_below(self, min_physical_offset: int) -> int:
        """Delete the files of which all records are gone from the log; how many. Corrects the min offsets."""
        deleted = sum(queue.delete_below(min_physical_offset) for queue in self)
        self.correct_min_offsets(min_physical_offset)
        return deleted + self.ext.delete_below()

    def drop_topics(self, keep: Set[str]) -> list[str]:
        """Delete the queues of all topics but those in `keep`; the topics that went."""
        dropped = sorted({topic for topic, _ in self.queues} - keep)
        for topic in dropped:
            self.drop_topic(topic)
        return dropped

    def drop_queue(self, topic: str, queue_id: int) -> None:
        """Delete a queue with its files, if there is one."""
        queue = self.queues.pop((topic, queue_id), None)
        if queue is not None:
            self.dirty.pop(queue, None)
            self.broken.discard((topic, queue_id))
            self._thinned.add(f"{self._folder}/{topic}")
            queue.destroy()

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of `topic` with their files."""
        for key in [key for key in self.queues if key[0] == topic]:
            self.drop_queue(*key)
        path = f"{self._folder}/{topic}"
        if self.disk.is_dir(path):
            self._thinned.add(self._folder)
            self.disk.delete_tree(path)
        self.ext.drop_topic(topic)

    def flush(self, least_pages: int = 0) -> None:
        """Make durable which queues are gone, and units: of every dirty queue, or of those with so many dirty pages.

        For the checkpoint thread. Raises OSError.
        """
        self.ext.flush()
        while self._thinned:
            self.disk.sync_dir(self._thinned.pop())
        for queue in tuple(self.dirty):
            # Taken out first: a unit that comes while the sync runs puts the queue back.
            self.dirty.pop(queue, None)
            try:
                if not queue.flush(least_pages) and least_pages and queue.unflushed:
                    self.dirty[queue] = None
            except OSError:
                self.dirty[queue] = None
                raise

    def close(self) -> None:
        """Flush and unmap everything. Raises OSError."""
        self.flush()
        self.ext.close()
        for queue in self.queues.values():
            queue.close()

    def destroy(self) -> None:
        """Delete all queues: there is no log any more that they could point into."""
        for topic in {topic for topic, _ in self.queues}:
            self.drop_topic(topic)
