"""The flush thread: it alone syncs the log, so that the loop never waits for a disk, and a group never for anything else.

Group commit (SYNC_FLUSH): at the end of a turn the loop asks for the highest end offset that was put; one sync answers
everybody who came meanwhile, through `on_flushed`. Interval: the log each 500 ms once four pages are dirty and at least each
10 s. Between the two the next log file is made, and with warmMapedFileEnable carried to the disk as zeros, a little at a
time: a sync of bytes that have their place on the disk already is quicker by the journal's commit.

A sync that failed, here or in the checkpoint thread, is never tried again: the kernel may have dropped the dirty pages and
would report success. From then on nothing is acknowledged and nothing taken; the store says why until it is restarted and
has recovered from the disk. One that could not begin for a shortage of descriptors or memory has not failed: it is tried
again after a pause.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import SHORTAGE
from pocketmq.store.disk.mapped_file_queue import OS_PAGE_SIZE
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.log.commit_log import CommitLog

log = logging.getLogger("store")

OnFlushed = Callable[[int, OSError | None], None]

# How long the thread sleeps at most when nobody asks for anything.
_IDLE_S: Final = 0.5
# So much is warmed at once, which is what a group may have to wait for, and so long after the last time.
_WARM_STEP_MAX: Final = 1 << 20
_WARM_PAUSE_S: Final = 0.01
# How soon a sync is tried again that lacked a descriptor or memory, and for how long at a stop.
SHORTAGE_PAUSE_S: Final = 0.05
_SHORTAGE_MAX_S: Final = 5.0


class FlushService:
    """`flushed_offset` is the physical offset up to which the log is durable, `error` why nothing will be any more."""

    def __init__(self, config: MessageStoreConfig, clock: Clock, commit_log: CommitLog, checkpoint: StoreCheckpoint) -> None:
        self.on_flushed: OnFlushed = lambda flushed_offset, error: None
        self.error: OSError | None = None
        self.flushed_offset = 0
        self._config = config
        self._clock = clock
        self._commit_log = commit_log
        self._checkpoint = checkpoint
        self._requested_offset = 0
        self._answered_offset = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
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

    def fail(self, error: OSError) -> None:
        """From now on nothing is durable. Any thread may say so."""
        if self.error is None:
            log.error("the disk failed to sync: %s; nothing is stored until the broker is restarted", error)
        self.error = self.error or error
        reason = f"the disk failed to sync ({self.error}); nothing is stored until the broker is restarted"
        self._commit_log.refuse("sync", reason)
        self._wake.set()

    # --- the thread's side -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        interval_s = min(self._config.flush_interval_commit_log / 1000, _IDLE_S)
        try:
            while not self._stopping:
                if self._lacks_something:
                    # Not woken by a group that cannot be served anyway.
                    time.sleep(SHORTAGE_PAUSE_S)
                else:
                    self._wake.wait(_WARM_PAUSE_S if self._warming else interval_s)
                self._wake.clear()
                self.run_once()
            self.run_once()
        except Exception as error:
            # A fault of ours: a store that does not sync must not go on taking messages either.
            self.fail(OSError(f"the flush thread ended: {error!r}"))
            self._serve_group()
            raise

    def run_once(self) -> None:
        """One round: the group that waits, then what is due. Never raises OSError; errors go to `on_flushed`.

        For a shortage everything stays due, and the next round comes soon.
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
        # Asked again: the checkpoint thread may have failed meanwhile.
        if self.error is not None:
            self._answered_offset = requested_offset
            self.on_flushed(requested_offset, self.error)
            return
        assert self.flushed_offset >= requested_offset, "asked to sync what was not written"
        self._answered_offset = requested_offset
        self.on_flushed(self.flushed_offset, None)
        self._commit_log.prepare_next_file()

    def flush_log(self, least_pages: int = 0) -> None:
        """Sync the log; with `least_pages` only files with so many dirty ones. Raises OSError."""
        files = self._commit_log.mapped_files
        timestamp_ms = self._commit_log.last_store_timestamp_ms
        end_offset = self._commit_log.max_offset
        files.flush(least_pages)
        self.flushed_offset = files.flushed_offset
        if self.flushed_offset >= end_offset:
            self._checkpoint.physic_msg_timestamp_ms = timestamp_ms
            # Into the page cache only: a killed process leaves it exact.
            self._checkpoint.write()


def patiently(sync: Callable[[], None]) -> None:
    """Call `sync`, for some seconds again and again while the machine lacks descriptors or memory. Raises OSError."""
    until_s = time.monotonic() + _SHORTAGE_MAX_S
    while True:
        try:
            return sync()
        except OSError as error:
            if error.errno not in SHORTAGE or time.monotonic() >= until_s:
                raise
            time.sleep(SHORTAGE_PAUSE_S)
