"""Mark of the delay levels in `config/levelmark`: how far each level is delivered.

`config/delayOffset.json` is Apache's file and up to ten seconds old. The mark is written after each batch of deliveries, so
that a killed process repeats at most the batch under way, and once a second to disk after a sync of the log.

The statement that everything before a queue offset is delivered stays true whichever broker continues with the store. So the
greater offset of mark and file counts, provided that the mark is about the same queue: the record before that offset must be
at the physical offset in the mark.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from pocketmq.store.disk.mark_file import PAYLOAD_MAX, MarkFile
from pocketmq.store.format.layout import LEVEL_MARK_STRUCT
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

_LEVELS_MAX: Final = PAYLOAD_MAX // LEVEL_MARK_STRUCT.size


class LevelMark:
    """Runs on the event loop only, except for writing the mark to disk."""

    def __init__(self, store: MessageStore, file: MarkFile) -> None:
        self._store = store
        self._file = file
        self._written = b""
        # By level: the next queue offset, and its encoded row.
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, bytes] = {}
        # (offset, payload): the payload is written to disk once the log is synced up to the offset.
        self._unsynced: tuple[int, bytes] | None = None
        self._synced = b""
        self._sync_failed = False
        self._end_offset = 0
        self._found: dict[int, int] = {}
        for problem in file.problems:
            log.warning("%s: %s; delay levels missing from it continue as in delayOffset.json", file.path, problem)
        for payload in (file.durable, file.live):
            self._read(payload or b"")

    def _read(self, payload: bytes) -> None:
        for level, next_offset, physical_offset in LEVEL_MARK_STRUCT.iter_unpack(payload):
            if self._place_before(level, next_offset) == physical_offset:
                self._found[level] = max(next_offset, self._found.get(level, 0))

    def _place_before(self, level: int, next_offset: int) -> int:
        """Return the physical offset of the record before `next_offset`; -1 if there is none."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        unit = None if queue is None or next_offset <= 0 else queue.unit_at(next_offset - 1)
        return -1 if unit is None else unit[0]

    def delivered_to(self, level: int) -> int:
        """Return the queue offset before which a level was delivered according to the last process; 0 if unknown."""
        return self._found.get(level, 0)

    def write(self, next_offsets: Mapping[int, int], end_offset: int) -> None:
        """Record the progress as level -> next queue offset. The last copy ends at physical offset `end_offset`.

        The copies are written to the log before, so a process kill does not lose them.
        """
        for level, next_offset in next_offsets.items():
            if self._offsets.get(level) != next_offset:
                self._offsets[level] = next_offset
                place = self._place_before(level, next_offset)
                self._rows[level] = LEVEL_MARK_STRUCT.pack(level, next_offset, place) if place >= 0 else b""
        payload = b"".join([row for row in self._rows.values() if row][:_LEVELS_MAX])
        self._end_offset = end_offset
        if payload != self._written:
            self._written = payload
            self._file.write(payload)

    def persist_in(self, executor: Executor) -> None:
        """Write the mark to disk in `executor` once its copies are synced. To be called every second."""
        if self._unsynced is None and self._written != self._synced and not self._sync_failed:
            self._unsynced = self._end_offset, self._written
        if self._unsynced is None:
            return
        end_offset, payload = self._unsynced
        if end_offset <= self._store.flushed_offset:
            self._unsynced, self._synced = None, payload
            executor.submit(self._sync, payload)
        else:
            self._store.request_sync(end_offset)

    def _sync(self, payload: bytes) -> None:
        try:
            self._file.sync(payload)
        except OSError as error:
            self._sync_failed = True
            log.error("%s cannot be synced: %s; a power cut would repeat some deliveries", self._file.path, error)

    def close(self) -> None:
        """Write the mark for the next start if the log is synced, and unmap the file. Raises OSError."""
        if self._written and not self._sync_failed and self._end_offset <= self._store.flushed_offset:
            self._file.seal(self._written)
        self._file.close()
