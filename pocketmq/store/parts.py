"""StoreParts: the parts of an open store, on which its recovery and its services work together."""

from dataclasses import dataclass

from pocketmq.runtime.clock import Clock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.bulk_dispatch import BulkDispatcher
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The settings, the files and the clock of a store; `index` is None with messageIndexEnable=false."""

    config: MessageStoreConfig
    disk: Disk
    clock: Clock
    delay_levels: DelayLevels
    commit_log: CommitLog
    queues: ConsumeQueueStore
    index: IndexService | None
    checkpoint: StoreCheckpoint

    @property
    def root(self) -> str:
        """The folder of the store."""
        return self.config.store_path_root_dir

    def bulk_dispatcher(self) -> BulkDispatcher:
        """Return a new dispatcher of windows of the log to queues and index."""
        return BulkDispatcher(self.queues, self.index, self.delay_levels, self.commit_log.multi_dispatch)
