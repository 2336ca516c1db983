"""The one flush thread: it alone syncs, so that the loop never waits for a disk.

Group commit (SYNC_FLUSH): at the end of a turn the loop asks for the highest end offset that was put; one sync answers
everybody who came meanwhile, through `on_flushed`. It goes first, also between any two syncs of queues. Intervals: the log
each 500 ms once four pages are dirty and at least each 10 s, the queues each second and at least each minute, the
checkpoint after those.

A sync that failed is never tried again: the kernel may have dropped the dirty pages and would report success. From then on
nothing is acknowledged and nothing taken; the store says why until it is restarted and has recovered from the disk.
"""

import threading
from collections.abc import Callable
from typing import Final

from runtime.clock import Clock
from store.commit_log import CommitLog
from store.config import MessageStoreConfig
from store.consume_queue_store import ConsumeQueueStore
from store.index_service import IndexService
from store.store_checkpoint import StoreCheckpoint

OnFlushed = Callable[[int, OSError | None], None]

# How long the thread sleeps at most when nobody asks for anything.
_IDLE_S: Final = 0.5


class FlushService:
    """`flushed_offset` is the physical offset up to which the log is durable."""

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
    ) -> None:
        self.on_flushed: OnFlushed = lambda flushed_offset, error: None
        self.error: OSError | None = None
        self._config = config
        self._clock = clock
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        # Store time of the newest record that is in its queue, told by whoever dispatches.
        self.dispatched_timestamp_ms = 0
        self.flushed_offset = 0
        self._requested_offset = 0
        self._answered_offset = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        now = clock.monotonic()
        self._log_due = now + config.flush_interval_commit_log / 1000
        self._log_thorough = now + config.flush_commit_log_thorough_interval / 1000
        self._queues_due = now + config.flush_interval_consume_queue / 1000
        self._queues_thorough = now + config.flush_consume_queue_thorough_interval / 1000

    # --- the loop's side -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    def request_sync(self, end_offset: int) -> None:
        """Ask that everything before `end_offset` becomes durable; `on_flushed` will tell."""
        if end_offset > self._requested_offset:
            self._requested_offset = end_offset
        self._wake.set()

    def stop(self) -> None:
        """End the thread once what was asked for is done."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- the thread's side -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        interval_s = min(self._config.flush_interval_commit_log / 1000, _IDLE_S)
        try:
            while not self._stopping:
                self._wake.wait(interval_s)
                self._wake.clear()
                self.run_once()
            self.run_once()
        except Exception as error:
            # A fault of ours: a store that does not sync must not go on taking messages either.
            self._fail(OSError(f"the flush thread ended: {error!r}"))
            self._serve_group()
            raise

    def run_once(self) -> None:
        """One round: the group that waits, then what the intervals ask for. Never raises; errors go to `on_flushed`."""
        self._serve_group()
        if self.error is not None:
            return
        now = self._clock.monotonic()
        try:
            if now >= self._log_due:
                self._log_due = now + self._config.flush_interval_commit_log / 1000
                thorough = now >= self._log_thorough
                if thorough:
                    self._log_thorough = now + self._config.flush_commit_log_thorough_interval / 1000
                self.flush_log(0 if thorough else self._config.flush_commit_log_least_pages)
                self._commit_log.prepare_next_file()
            if now >= self._queues_due:
                self._queues_due = now + self._config.flush_interval_consume_queue / 1000
                thorough = now >= self._queues_thorough
                if thorough:
                    self._queues_thorough = now + self._config.flush_consume_queue_thorough_interval / 1000
                self.flush_queues(thorough)
        except OSError as error:
            self._fail(error)

    def _serve_group(self) -> None:
        requested_offset = self._requested_offset
        if requested_offset <= self._answered_offset:
            return
        if self.error is None:
            try:
                self.flush_log(0)
                self._commit_log.prepare_next_file()
            except OSError as error:
                self._fail(error)
        if self.error is not None:
            self._answered_offset = requested_offset
            self.on_flushed(requested_offset, self.error)
            return
        assert self.flushed_offset >= requested_offset, "asked to sync what was not written"
        self._answered_offset = requested_offset
        self.on_flushed(self.flushed_offset, None)

    def flush_log(self, least_pages: int = 0) -> None:
        """Sync the log; with `least_pages` only files with so many dirty ones. Raises OSError."""
        files = self._commit_log.mapped_files
        timestamp_ms = self._commit_log.last_store_timestamp_ms
        end_offset = self._commit_log.max_offset
        files.flush(least_pages)
        self.flushed_offset = files.flushed_offset
        if self.flushed_offset >= end_offset:
            self._checkpoint.physic_msg_timestamp_ms = timestamp_ms

    def flush_queues(self, thorough: bool) -> None:
        """Sync the queues and the index files that are full; `thorough` takes every page, then the checkpoint.

        The checkpoint promises that units of records up to its time are on disk, so its time is taken first, the log and all
        queues come next, and it is written last. Raises OSError.
        """
        timestamp_ms = self.dispatched_timestamp_ms
        self._queues.flush(0 if thorough else self._config.flush_consume_queue_least_pages, self._serve_group)
        if self._index is not None:
            self._index.flush_full()
            self._serve_group()
        if thorough and self.error is None:
            self.flush_log(0)
            self._checkpoint.logics_msg_timestamp_ms = timestamp_ms
            self._checkpoint.flush()

    def _fail(self, error: OSError) -> None:
        self.error = error
        self._commit_log.refusal = f"the disk failed to sync ({error}); nothing is stored until the broker is restarted"
