"""The checkpoint thread: what is slow about files and need not be done by the loop, and must not hold up a group commit.

* Queues and index are synced: each second those queues with two dirty pages, each minute everything, then the checkpoint.
* Log files that retention took off the row are unmapped and deleted: for 1 GiB the kernel takes its time.
* Pages of mapped files are given back when there are too many of them (store.open_files).

What the checkpoint promises: log, queues and index are on disk up to its times. So the time is read first, of the newest
record that is in queues and index; then those are synced; then it is written. The time of the log is the flush thread's, and
the smaller one counts. Where queues and index end is saved by the same rule (store.clean_stop).
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import SHORTAGE, Disk
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.recovery.clean_stop import CleanStop
from pocketmq.store.upkeep.retention import Retention

log = logging.getLogger("store")

# How often it is looked how much memory is resident: what is touched in between comes on top of the bound.
_ROUND_S: Final = 0.25


class CheckpointService:
    """`dispatched_timestamp_ms`: store time of the newest record that is in its queue, told by whoever dispatches."""

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: Disk,
        clock: Clock,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        retention: Retention,
        open_files: OpenFiles,
        on_error: Callable[[OSError], None],
    ) -> None:
        """`on_error` is told of a sync that failed; there is no other after it."""
        self.dispatched_timestamp_ms = 0
        # Where queues and index end now.
        self.take_ends: Callable[[], CleanStop] | None = None
        # Looks at some more queue files; whether that is to be known at the next start.
        self.check_sums: Callable[[], bool] = lambda: False
        self._config = config
        self._disk = disk
        self._clock = clock
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._retention = retention
        self._open_files = open_files
        self._on_error = on_error
        self._failed = False
        self._shortages = RefusalLog(log, "queues and index are not synced yet", now=clock.monotonic)
        self._is_stopping = False
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        now = clock.monotonic()
        self._due = now + config.flush_interval_consume_queue / 1000
        self._thorough_due = now + config.flush_consume_queue_thorough_interval / 1000

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it is about is finished."""
        self._is_stopping = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def look_at_memory(self) -> None:
        """Much was touched that nobody will look at again soon: do a round at once. Costs the caller 2 us."""
        self._woken.set()

    def _run(self) -> None:
        interval_s = min(self._config.flush_interval_consume_queue / 1000, _ROUND_S)
        try:
            while True:
                self._woken.wait(min(interval_s, self._retention.delete_interval_s))
                self._woken.clear()
                if self._is_stopping:
                    return
                self.run_once()
        except Exception as error:
            self._fail(OSError(f"the checkpoint thread ended: {error!r}"))
            raise

    def run_once(self) -> None:
        """One round of all that is due. Never raises OSError: what failed to sync goes to `on_error`.

        For a shortage of descriptors or memory everything stays due.
        """
        now = self._clock.monotonic()
        try:
            if now >= self._due and not self._failed:
                thorough = now >= self._thorough_due
                self.flush_queues(thorough)
                self._due = now + self._config.flush_interval_consume_queue / 1000
                if thorough:
                    self._thorough_due = now + self._config.flush_consume_queue_thorough_interval / 1000
            if self.check_sums():
                self._thorough_due = self._due = now
            if not self._failed:
                self._retention.delete_removed()
            self._shortages.over("sync")
        except OSError as error:
            if error.errno in SHORTAGE:
                self._shortages.refused("sync", f"{error}; trying again")
            else:
                self._fail(error)
        self._commit_log.refusal_log.write_due()
        self._look_for_deletion()
        with suppress(OSError):
            self._release_memory()

    def _look_for_deletion(self) -> None:
        """Refuse messages once the log file that they would go into was deleted: the next start would not find them."""
        files = self._commit_log.mapped_files.files
        if files and not self._disk.exists(path := files[-1].path) and files is self._commit_log.mapped_files.files:
            reason = f"{path} was deleted under the running broker; nothing is stored until the broker is restarted"
            self._commit_log.refuse("deleted", reason)

    def _release_memory(self) -> None:
        resident_max = self._config.mapped_memory_resident_max
        is_above = self._open_files.release_memory(self._commit_log.mapped_files.files, resident_max)
        if is_above and self._index is not None:
            self._index.release_memory()

    def flush_queues(self, thorough: bool) -> None:
        """Sync the queues and the index files that are full; `thorough` takes every page, then the checkpoint.

        Raises OSError, after which nothing is known about what is on the disk.
        """
        timestamp_ms = self.dispatched_timestamp_ms
        if not thorough:
            self._queues.flush(self._config.flush_consume_queue_least_pages)
            if self._index is not None:
                self._index.flush_full()
            return
        ends = self.take_ends() if self.take_ends is not None else None
        self._queues.flush()
        if self._index is not None:
            self._index.flush_current()
        if ends is not None:
            try:
                # First: a queue that the checkpoint vouches for would not be missed without.
                ends.save(self._disk, self._config.store_path_root_dir)
            except OSError as error:
                # What should have been replaced stays true, and so does the checkpoint; on a full disk this passes.
                log.warning("where queues and index end is not saved: %s; trying again", error)
                return
        if self._index is not None:
            self._checkpoint.index_msg_timestamp_ms = timestamp_ms
        self._checkpoint.logics_msg_timestamp_ms = timestamp_ms
        self._checkpoint.flush()

    def _fail(self, error: OSError) -> None:
        self._failed = True
        self._on_error(error)
