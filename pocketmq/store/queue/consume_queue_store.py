"""ConsumeQueueStore: all ConsumeQueues of a store, in `<folder>/<topic>/<queue id>/`.

Topics of 5.x with queue.type=BatchCQ have their queues in `batchconsumequeue/` instead, where a unit stands for a batch that
clients unpack. Those are neither read nor written, and their files are kept. No ConsumeQueue is created for such a topic,
because 5.x would then fail to start.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pocketmq.store.disk.disk import Disk, FileSystem, StoreError
from pocketmq.store.disk.mapped_file_queue import OS_PAGE_SIZE, JointFlush
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.format.message import QueueKey, folder_problem, queue_folder, topic_folder
from pocketmq.store.queue.consume_queue import BrokenQueueError, ConsumeQueue, queues_in
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore

log = logging.getLogger("store")

# 300,000 units, the default of mappedFileSizeConsumeQueue in Apache.
FILE_SIZE_DEFAULT: Final = 300_000 * CONSUME_QUEUE_UNIT_SIZE


class ConsumeQueueStore:
    """Collection of all ConsumeQueues. Treat `queues` as read-only. Only `flush` may be called by another thread."""

    together_from = 500
    """Number of queues from which they are synced by one sync of the file system, which also writes the files of others."""

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
        """Queues in `batchconsumequeue/` (5.x topics with queue.type=BatchCQ)."""
        self.batch_topics: frozenset[str] = frozenset()
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        # Queues with units that may not be synced, added by the dispatcher; `flush` checks only these. A dict rather than a
        # set, so that the order of syncs is deterministic in fault tests.
        self.dirty: dict[ConsumeQueue, None] = {}
        # Folders from which a queue or topic was deleted. They must be synced, or a power cut could restore it.
        self._thinned: set[str] = set()
        # Queues whose files are incomplete. Nothing may be appended to them before `drop_queue`.
        self.broken: set[QueueKey] = set()
        # Open from `load` on, so that a sync of it reports each error since then.
        self._file_system: FileSystem | None = None

    def load(self, *, clean: bool) -> None:
        """Open the queues on disk and find the end of each. Queues that must be rebuilt are added to `broken`.

        Raises StoreError if all files have a different size than configured; OSError.
        """
        self._file_system = self.disk.file_system(self._folder)
        other_size: StoreError | None = None
        for key in queues_in(self.disk, self._folder):
            queue = self._create(*key)
            try:
                queue.recover(clean=clean)
            except StoreError as error:
                self.broken.add(key)
                if not isinstance(error, BrokenQueueError):
                    other_size = other_size or error
        # Damage may give the files of one queue a plausible size, but hardly those of all queues.
        if other_size is not None and not any(queue.max_offset for queue in self):
            raise other_size
        self.ext.load(self.queues)
        batch_folder = f"{self._folder.rpartition('/')[0]}/batchconsumequeue"
        self.batch_queues = frozenset(queues_in(self.disk, batch_folder))
        self.batch_topics = frozenset(topic for topic, _ in self.batch_queues)

    def _create(self, topic: str, queue_id: int) -> ConsumeQueue:
        folder = queue_folder(self._folder, topic, queue_id)
        queue = ConsumeQueue(self.disk, folder, self._file_size, topic, queue_id, self._open_files)
        self.queues[topic, queue_id] = queue
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None if it has never had a unit."""
        return self.queues.get((topic, queue_id))

    def can_have(self, topic: str, queue_id: int) -> bool:
        """Whether a queue can exist for a record of this topic and queue id. Records of others stay in the log only."""
        return queue_id >= 0 and ((topic, queue_id) in self.queues or folder_problem(topic) is None)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, creating it if necessary. A new one has no files until its first unit.

        Raises OSError, and ValueError for a topic or queue id that no queue can have (see `can_have`).
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            # Left over from a deleted topic whose files could not be deleted.
            if self.disk.is_dir(folder := queue_folder(self._folder, topic, queue_id)):
                self.disk.delete_tree(folder)
            queue = self._create(topic, queue_id)
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(tuple(self.queues.values()))

    @property
    def max_physical_offset(self) -> int:
        """End offset of the newest record that is in any queue; 0 if there is none."""
        return max((queue.max_physical_offset for queue in self.queues.values()), default=0)

    def truncate(self, physical_offset: int) -> None:
        """Drop all units of records at or beyond `physical_offset`."""
        for queue in self:
            if queue.max_physical_offset > physical_offset:
                queue.truncate(physical_offset)
                self.dirty[queue] = None

    def truncate_units(self, ends: Mapping[QueueKey, int]) -> None:
        """Drop the units from the given queue offsets on, and all units of the queues that are not in `ends`.

        Unlike `truncate` this does not search by the physical offsets in the units, which may be damaged.
        """
        for key, queue in tuple(self.queues.items()):
            end = ends.get(key, queue.min_offset)
            if queue.min_offset <= end < queue.max_offset:
                queue.truncate_units(end)
                self.dirty[queue] = None

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Set the min offset of each queue to its first unit whose record is still in the log."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    def deleting_below(self, min_physical_offset: int) -> Iterator[None]:
        """Delete files whose records are all gone from the log and correct the min offsets, one queue a step."""
        for key, queue in tuple(self.queues.items()):
            if self.queues.get(key) is queue:
                queue.delete_below(min_physical_offset)
                queue.correct_min_offset(min_physical_offset)
                yield
        self.ext.delete_below()

    def drop_queue(self, topic: str, queue_id: int) -> None:
        """Delete a queue and its files, if it exists."""
        queue = self.queues.pop((topic, queue_id), None)
        if queue is not None:
            self.dirty.pop(queue, None)
            self.broken.discard((topic, queue_id))
            self._thinned.add(topic_folder(self._folder, topic))
            queue.destroy()

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of `topic` and their files. Raises OSError, and ValueError for a name that is no topic's."""
        for key in [key for key in self.queues if key[0] == topic]:
            self.drop_queue(*key)
        path = topic_folder(self._folder, topic)
        if self.disk.is_dir(path):
            self._thinned.add(self._folder)
            self.disk.delete_tree(path)
        self.ext.drop_topic(topic)

    def flush(self, least_pages: int = 0) -> None:
        """Make deletions of queues and the units of dirty queues durable; skip queues with fewer dirty pages than given.

        Called by the checkpoint thread. Raises OSError.
        """
        self.ext.flush()
        while self._thinned:
            self.disk.sync_dir(self._thinned.pop())
        dirty = tuple(self.dirty)
        if not least_pages and len(dirty) >= self.together_from and self._flush_together(dirty):
            return
        # Queues with fewer new units need not be asked.
        units_min = min(max(least_pages - 1, 0) * OS_PAGE_SIZE, self._file_size) // CONSUME_QUEUE_UNIT_SIZE
        for queue in dirty:
            if least_pages and (queue.max_offset - queue.flush_offset < units_min or not queue.has_due(least_pages)):
                continue
            # Removed before the sync: a unit appended during the sync adds the queue again.
            self.dirty.pop(queue, None)
            queue.is_dirty = 0
            try:
                queue.flush()
            except OSError:
                self.dirty[queue] = None
                raise

    def _flush_together(self, queues: Sequence[ConsumeQueue]) -> bool:
        """Make the units of many queues durable by one sync of their file system. Return False if it has no such sync, or
        reports an error, which may be that of another file: the sync of each file will tell."""
        if self._file_system is None:
            return False
        flush = JointFlush()
        try:
            for queue in queues:
                self.dirty.pop(queue, None)
                queue.is_dirty = 0
                queue.begin_flush(flush)
            self._file_system.sync()
        except OSError as error:
            log.warning("queues are synced one by one: %s", error)
            self.dirty.update(dict.fromkeys(queues))
            return False
        flush.end()
        return True

    def close(self) -> None:
        """Flush and unmap everything. Raises OSError."""
        self.flush()
        self.ext.close()
        for queue in self.queues.values():
            queue.close()

    def destroy(self) -> None:
        """Delete all queues, because the log that they point into is gone."""
        for topic in {topic for topic, _ in self.queues}:
            self.drop_topic(topic)
