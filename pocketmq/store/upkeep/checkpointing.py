"""CheckpointService: the thread for slow file operations that must delay neither the event loop nor a group commit.

* It syncs queues and index: every second queues with two dirty pages, less often if there are very many; every minute
  everything, then the checkpoint.
* It unmaps and deletes log files that retention removed, which takes long for 1 GiB.
* It releases pages of mapped files above the limit (`open_files`).

The checkpoint states that log, queues and index are on disk up to its times. Therefore, the time of the newest record in
queues and index is read first, then they are synced, and then it is written. The log's time is set by the flush thread; the
smaller one counts. The ends of queues and index are saved by the same rule (`clean_stop`).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.disk.disk import SHORTAGE
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.log.service_thread import ServiceThread
from pocketmq.store.parts import StoreParts
from pocketmq.store.recovery.clean_stop import CleanStop
from pocketmq.store.upkeep.retention import Retention

log = logging.getLogger("store")

# Interval between checks of resident memory, which may exceed the limit in between.
_ROUND_S: Final = 0.25
# Share of the time that may be spent on looking for queues with dirty pages, of which a broker can have tens of thousands.
_SEARCH_SHARE: Final = 0.005


class CheckpointService(ServiceThread):
    """Checkpoint thread. `dispatched_timestamp_ms`, set by the dispatcher, is the store time of the newest queued record."""

    def __init__(
        self, store: StoreParts, retention: Retention, open_files: OpenFiles, on_error: Callable[[OSError], None]
    ) -> None:
        """`on_error` is called with the error of a failed sync, after which nothing is synced any more."""
        super().__init__("checkpoint")
        self.dispatched_timestamp_ms = 0
        # Returns the present ends of queues and index.
        self.take_ends: Callable[[], CleanStop] | None = None
        # Verifies further queue files; returns whether the result must be saved for the next start.
        self.check_sums: Callable[[], bool] = lambda: False
        self._store = store
        self._retention = retention
        self._open_files = open_files
        self._on_error = on_error
        self._failed = False
        self._shortages = RefusalLog(log, "queues and index are not synced yet", now=store.clock.monotonic)
        now = store.clock.monotonic()
        self._due = now + store.config.flush_interval_consume_queue / 1000
        self._thorough_due = now + store.config.flush_consume_queue_thorough_interval / 1000

    def look_at_memory(self) -> None:
        """Start a round at once, to release memory after an access to many pages that are not needed again soon."""
        self._wake.set()

    def _run(self) -> None:
        interval_s = min(self._store.config.flush_interval_consume_queue / 1000, _ROUND_S)
        try:
            while True:
                self._wake.wait(min(interval_s, self._retention.delete_interval_s))
                self._wake.clear()
                if self._stopping:
                    return
                self.run_once()
        except Exception as error:
            self._fail(OSError(f"the checkpoint thread ended: {error!r}"))
            raise

    def run_once(self) -> None:
        """Run one round of all that is due. A failed sync is reported to `on_error`; no OSError is raised.

        After a shortage of descriptors or memory everything stays due.
        """
        now = self._store.clock.monotonic()
        try:
            if now >= min(self._due, self._thorough_due) and not self._failed:
                thorough = now >= self._thorough_due
                self.flush_queues(thorough)
                took_s = 0.0 if thorough else self._store.clock.monotonic() - now
                self._due = now + max(self._store.config.flush_interval_consume_queue / 1000, took_s / _SEARCH_SHARE)
                if thorough:
                    self._thorough_due = now + self._store.config.flush_consume_queue_thorough_interval / 1000
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
        self._store.commit_log.refusal_log.write_due()
        self._look_for_deletion()
        with suppress(OSError):
            self._release_memory()

    def _look_for_deletion(self) -> None:
        """Refuse messages if the current log file has been deleted: the next start would not find them."""
        sequence = self._store.commit_log.mapped_files
        files = sequence.files
        if files and not self._store.disk.exists(path := files[-1].path) and files is sequence.files:
            reason = f"{path} was deleted while the broker was running; nothing is stored until the broker is restarted"
            self._store.commit_log.refuse("deleted", reason)

    def _release_memory(self) -> None:
        log_files, resident_max = self._store.commit_log.mapped_files.files, self._store.config.mapped_memory_resident_max
        release_index = (lambda: None) if self._store.index is None else self._store.index.release_memory
        self._open_files.release_memory(log_files, resident_max, release_index)

    def flush_queues(self, thorough: bool) -> None:
        """Sync queues with enough dirty pages and full index files; with `thorough` everything, then the checkpoint.

        Raises OSError; it is then unknown what is on the disk.
        """
        timestamp_ms = self.dispatched_timestamp_ms
        if not thorough:
            self._store.queues.flush(self._store.config.flush_consume_queue_least_pages)
            if self._store.index is not None:
                self._store.index.flush_full()
            return
        ends = self.take_ends() if self.take_ends is not None else None
        self._store.queues.flush()
        if self._store.index is not None:
            self._store.index.flush_current()
        if ends is not None:
            try:
                # Before the checkpoint: otherwise the loss of a queue covered by it would not be noticed.
                ends.save(self._store.disk, self._store.root)
            except OSError as error:
                # The old file and the checkpoint stay valid; a full disk is a temporary condition.
                log.warning("the ends of queues and index are not saved: %s; trying again", error)
                return
        if self._store.index is not None:
            self._store.checkpoint.index_msg_timestamp_ms = timestamp_ms
        self._store.checkpoint.logics_msg_timestamp_ms = timestamp_ms
        self._store.checkpoint.flush()

    def _fail(self, error: OSError) -> None:
        self._failed = True
        self._on_error(error)
