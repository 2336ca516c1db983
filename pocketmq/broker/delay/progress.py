"""Progress of the sources of delayed messages: recorded after each batch, and written to disk behind a sync of the log.

`config/delayOffset.json` is Apache's file for the delay levels, and up to ten seconds old. `config/levelmark`, PocketMQ's
own, is written after each batch of deliveries, so that a killed process repeats at most the batch under way, and once a
second to disk. (The timers' files are written by `store.timer.timer_store`.)

The statement that everything before a queue offset is delivered stays true whichever broker continues with the store. So the
greater offset of mark and file counts, provided that the mark is about the same queue: the record before that offset must be
at the physical offset in the mark.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Final

from pocketmq.store.disk.mark_file import PAYLOAD_MAX, MarkFile
from pocketmq.store.format.layout import LEVEL_MARK_STRUCT
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

_LEVELS_MAX: Final = PAYLOAD_MAX // LEVEL_MARK_STRUCT.size


class WriteBehindSync:
    """Writes a state to disk once the log is synced up to everything that the state refers to; one write at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._next: tuple[int, Callable[[], None]] | None = None
        self._writing: Future[None] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing is not None and not self._writing.done()

    def write_in(self, executor: Executor, end_offset: int, write: Callable[[], None]) -> None:
        """Call `write` in `executor` if the log is synced up to `end_offset`, or in a later call of this method.

        If it is not synced so far and an earlier `write` waits, that one is called once it can be: otherwise a log that
        always grows would put off each of them.
        """
        if self.is_writing:
            return
        if self._next is not None and end_offset > self._store.flushed_offset:
            end_offset, write = self._next
        if end_offset <= self._store.flushed_offset:
            self._next = None
            self._writing = executor.submit(write)
        else:
            self._next = end_offset, write
            # A log that is synced at intervals leaves a few pages unsynced for ten seconds.
            self._store.request_sync(end_offset)

    def finish(self) -> None:
        """Wait for the write under way."""
        if self._writing is not None:
            self._writing.exception()


class LevelMark:
    """Mark of the delay levels. Runs on the event loop only, except for writing it to disk."""

    def __init__(self, store: MessageStore, file: MarkFile) -> None:
        self._store = store
        self._file = file
        self._writer = WriteBehindSync(store)
        self._rows: dict[int, bytes] = {}
        self._written = self._synced = b""
        self._sync_failed = False
        self._end_offset = 0
        self._found: dict[int, int] = {}
        for problem in file.problems:
            log.warning("%s: %s; delay levels missing from it continue as in delayOffset.json", file.path, problem)
        for payload in (file.durable, file.live):
            for level, next_offset, physical_offset in LEVEL_MARK_STRUCT.iter_unpack(payload or b""):
                if self.place_before(level, next_offset) == physical_offset:
                    self._found[level] = max(next_offset, self._found.get(level, 0))

    def place_before(self, level: int, next_offset: int) -> int:
        """Return the physical offset of the record before `next_offset`; -1 if the queue has no such record."""
        unit = self._store.unit_at(SCHEDULE_TOPIC, level - 1, next_offset - 1)
        return -1 if unit is None else unit[0]

    def delivered_to(self, level: int) -> int:
        """Return the queue offset before which a level was delivered according to the last process; 0 if unknown."""
        return self._found.get(level, 0)

    def write(self, progress: Mapping[int, tuple[int, int]], end_offset: int) -> None:
        """Record changed progress as level -> (next queue offset, physical offset of the record before it or -1).

        The last copy ends at physical offset `end_offset`. It is written to the log, so a process kill does not lose it.
        """
        for level, (next_offset, place) in progress.items():
            self._rows[level] = LEVEL_MARK_STRUCT.pack(level, next_offset, place) if place >= 0 else b""
        payload = b"".join([row for row in self._rows.values() if row][:_LEVELS_MAX])
        self._end_offset = end_offset
        if payload != self._written:
            self._written = payload
            self._file.write(payload)

    def write_in(self, executor: Executor) -> None:
        """Write the mark to disk in `executor` once its copies are synced. To be called every second."""
        payload = self._written
        if payload != self._synced and not self._sync_failed:
            self._writer.write_in(executor, self._end_offset, lambda: self._sync(payload))

    def _sync(self, payload: bytes) -> None:
        try:
            self._file.sync(payload)
            self._synced = payload
        except OSError as error:
            self._sync_failed = True
            log.error("%s cannot be synced: %s; a power cut would repeat some deliveries", self._file.path, error)

    def close(self) -> None:
        """Write the mark for the next start if the log is synced, and unmap the file. Raises OSError."""
        self._writer.finish()
        if self._written and not self._sync_failed and self._end_offset <= self._store.flushed_offset:
            self._file.seal(self._written)
        self._file.close()
