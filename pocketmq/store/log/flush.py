"""FlushService: the thread that syncs the commit log, so that the event loop never waits for the disk.

Group commit (SYNC_FLUSH): at the end of a turn the loop requests a sync up to the highest end offset that was put. One sync
answers all requests that arrived before it started, by the event `flushed`. ASYNC_FLUSH: the log is synced each 500 ms if at
least four pages are dirty, and at least every 10 s. In between, the thread creates the next log file and, with
warmMapedFileEnable, writes it to the disk as zeros in small steps; a later sync of allocated blocks is faster because it
needs no journal commit.

A failed sync, here or in the checkpoint thread, is never retried: the kernel may have dropped the dirty pages and would
report success. After it nothing is acknowledged and no message is accepted, with that reason, until the broker is restarted
and has recovered from the disk. A sync that could not start because of a shortage of descriptors or memory has not failed,
and is retried after a pause.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import SHORTAGE
from pocketmq.store.disk.mapped_file_queue import OS_PAGE_SIZE
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.service_thread import ServiceThread

log = logging.getLogger("store")

Flushed = Event[[int, OSError | None]]

# Maximum sleep of the thread without requests.
_IDLE_S: Final = 0.5
# Bytes of the next file pre-written at once, for which a sync request may have to wait, and the pause between two steps.
_WARM_STEP_MAX: Final = 1 << 20
_WARM_PAUSE_S: Final = 0.01
# Pause before a sync is retried after a shortage of descriptors or memory, and for how long a stop retries.
SHORTAGE_PAUSE_S: Final = 0.05
_SHORTAGE_MAX_S: Final = 5.0


class FlushService(ServiceThread):
    """Thread that syncs the log. It serves the pending requests before it ends.

    `flushed_offset` is the physical offset up to which the log is durable; `error` is the failed sync, if there was one.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, commit_log: CommitLog, checkpoint: StoreCheckpoint, flushed: Flushed
    ) -> None:
        super().__init__("flush")
        self._flushed = flushed
        self.synced: Event[[float]] = Event()
        """Happens after each sync of the log, in the thread that synced, with its duration in seconds."""
        self.error: OSError | None = None
        self.flushed_offset = 0
        self._config = config
        self._clock = clock
        self._commit_log = commit_log
        self._checkpoint = checkpoint
        self._requested_offset = 0
        self._answered_offset = 0
        now = clock.monotonic()
        self._due = now + config.flush_interval_commit_log / 1000
        self._thorough_due = now + config.flush_commit_log_thorough_interval / 1000
        self._warm_step = 0
        if config.warm_maped_file_enable:
            pages_size = config.flush_least_pages_when_warm_maped_file * OS_PAGE_SIZE
            self._warm_step = max(OS_PAGE_SIZE, min(pages_size, _WARM_STEP_MAX))
        self._warm_due = now
        self._warming = False
        self._shortages = RefusalLog(log, "the log is not synced yet", now=clock.monotonic)
        self._lacks_something = False

    # --- called by the event loop----------------------------------------------------------------------------------

    def request_sync(self, end_offset: int) -> None:
        """Request a sync up to `end_offset`. `flushed` happens when it is done or has failed."""
        if end_offset > self._requested_offset:
            self._requested_offset = end_offset
        self._wake.set()

    def fail(self, error: OSError) -> None:
        """Record a failed sync: from now on nothing is acknowledged or accepted. Thread-safe."""
        if self.error is None:
            log.error("the disk failed to sync: %s; nothing is stored until the broker is restarted", error)
        self.error = self.error or error
        reason = f"the disk failed to sync ({self.error}); nothing is stored until the broker is restarted"
        self._commit_log.refuse("sync", reason)
        self._wake.set()

    # --- run by the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        interval_s = min(self._config.flush_interval_commit_log / 1000, _IDLE_S)
        try:
            while not self._stopping:
                if self._lacks_something:
                    # New requests need not wake the thread, as they cannot be served yet.
                    time.sleep(SHORTAGE_PAUSE_S)
                else:
                    self._wake.wait(_WARM_PAUSE_S if self._warming else interval_s)
                self._wake.clear()
                self.run_once()
            self.run_once()
        except Exception as error:
            # A bug: without this thread nothing is synced, so no more messages may be accepted.
            self.fail(OSError(f"the flush thread ended: {error!r}"))
            self._serve_group()
            raise

    def run_once(self) -> None:
        """Run one round: serve waiting requests, then do what is due. OSErrors are reported through the event `flushed`.

        After a shortage everything stays due, and the next round follows shortly.
        """
        try:
            self._serve_group()
            if self.error is not None:
                return
            now = self._clock.monotonic()
            if now >= self._due:
                thorough = now >= self._thorough_due
                self.flush_log(0 if thorough else self._config.flush_commit_log_least_pages)
                self._due = now + self._config.flush_interval_commit_log / 1000
                if thorough:
                    self._thorough_due = now + self._config.flush_commit_log_thorough_interval / 1000
                self._commit_log.prepare_next_file()
            if self._warm_step and now >= self._warm_due and not self._wake.is_set():
                self._warming = self._commit_log.warm_next_file(self._warm_step)
                self._warm_due = now + _WARM_PAUSE_S
            if self._lacks_something:
                self._lacks_something = False
                self._shortages.over("sync")
        except OSError as error:
            if error.errno in SHORTAGE:
                self._lacks_something = True
                self._shortages.refused("sync", f"{error}; trying again")
                return
            self.fail(error)
            self._serve_group()

    def _serve_group(self) -> None:
        requested_offset = self._requested_offset
        if requested_offset <= self._answered_offset:
            return
        if self.error is None:
            try:
                self.flush_log(0)
            except OSError as error:
                if error.errno in SHORTAGE:
                    raise
                self.fail(error)
        # Checked again, as the checkpoint thread may have set it.
        if self.error is not None:
            self._answered_offset = requested_offset
            self._flushed(requested_offset, self.error)
            return
        # A slave that stops may have cut off an incomplete or damaged record since the request.
        assert self.flushed_offset >= min(requested_offset, self._commit_log.max_offset), "requests are for written records"
        self._answered_offset = requested_offset
        self._flushed(self.flushed_offset, None)
        self._commit_log.prepare_next_file()

    def flush_log(self, least_pages: int = 0) -> None:
        """Sync the files of the log that have at least `least_pages` dirty pages. Raises OSError."""
        files = self._commit_log.mapped_files
        timestamp_ms = self._commit_log.last_store_timestamp_ms
        end_offset = self._commit_log.max_offset
        began_s = time.monotonic()
        files.flush(least_pages)
        if files.flushed_offset > self.flushed_offset:
            self.synced(time.monotonic() - began_s)
        self.flushed_offset = files.flushed_offset
        if self.flushed_offset >= end_offset:
            self._checkpoint.physic_msg_timestamp_ms = timestamp_ms
            # Written to the page cache only, which is enough to be exact after a process kill.
            self._checkpoint.write()


def patiently(sync: Callable[[], None]) -> None:
    """Call `sync`, retrying for some seconds during a shortage of descriptors or memory. Raises OSError."""
    until_s = time.monotonic() + _SHORTAGE_MAX_S
    while True:
        try:
            return sync()
        except OSError as error:
            if error.errno not in SHORTAGE or time.monotonic() >= until_s:
                raise
            time.sleep(SHORTAGE_PAUSE_S)
