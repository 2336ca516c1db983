"""Detection of the end of a log that a broker is writing.

The chain of records is followed once, and later continued from where it ended, so checking a log that did not grow costs a
few small reads. All files before the newest one belong to the log entirely, since a file is started only when the previous
one is full.

A record's header is written before its body, so the newest records may be incomplete. A record counts when it is valid as a
whole, by the rules of a broker's recovery; this is checked for the last window that is read. The end is set before an
invalid record. If it is still invalid after a second and others follow it, it is damage rather than a record being written.
The same holds for bytes where no record begins: after a second they are damage if a record follows them within LOOK_AHEAD
that proves by rule 3b of `log_end` that the log goes on.
"""

import time
from typing import Final

from pocketmq.spark_analytics.reading.log_end import begins_chain, proof_behind
from pocketmq.spark_analytics.reading.split_planning import FULL_FILE_TAIL, begins_with_record
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT, HOST_V6_SIZE, STORE_TIMESTAMP_POSITION
from pocketmq.store.format.record import store_timestamp_of
from pocketmq.store.format.record_chain import record_candidates
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.offline.log_walk import Ending, FileWalk, has_record, next_candidate, read_mark, walks
from pocketmq.store.offline.places import LogFile

_NONE: Final = -1
DOUBT_S = 1.0
LOOK_AHEAD: Final = 4 << 20
# A log that does not grow is searched less and less often.
_LOOKS_APART_MAX_S: Final = 64.0


class LogTail:
    """The end of one log, updated by each call of `follow`."""

    def __init__(self) -> None:
        self._file: LogFile | None = None
        self._position = 0
        # Start of the last record before `_position`.
        self._last = 0
        # Physical offset of a record that was not valid, and the time until which it may become valid.
        self._doubted = _NONE
        self._doubted_until = 0.0
        # Physical offset at which the chain ends without a record, and when the bytes behind it are searched next.
        self._stopped_at = _NONE
        self._look_at = self._looks_apart_s = 0.0
        self._is_full = False

    def follow(self, files: list[LogFile], known: int = _NONE) -> int:
        """Return the physical offset behind the last complete record of a log with these files; its begin if it has none.

        `known` is the physical offset of a record's start, or of the end of the log, seen earlier. The result is smaller
        than the previous one if the log was truncated. Raises MissingFileError, OSError.
        """
        newest = self._newest(files)
        if newest is None:
            return files[0].start_offset if files else 0
        if self._file is None or self._file.start_offset != newest.start_offset:
            self._position = self._last = 0
            self._is_full = False
            start = known - newest.start_offset
            if self._file is None and 0 < start < newest.size and has_record(newest, start):
                self._position = self._last = start
        self._file = newest
        if has_record(newest, self._position) and begins_chain(newest, self._position):
            self._walk(newest)
        elif self._last < self._position and not has_record(newest, self._last):
            self._position = self._last = 0
            self._walk(newest)
        else:
            self._look_ahead(newest)
        return newest.start_offset + self._position

    def settled(self, files: list[LogFile]) -> int:
        """As `follow`, but if an invalid record is at the end, wait up to a second for it to be completed."""
        end = self.follow(files)
        while self._doubted != _NONE and time.monotonic() < self._doubted_until:
            time.sleep(DOUBT_S / 10)
            end = self.follow(files)
        end = self.follow(files) if self._doubted != _NONE else end
        while self._file is not None and self._proof(self._file) is not None:
            until = time.monotonic() + DOUBT_S
            while self.follow(files) == end and time.monotonic() < until:
                time.sleep(DOUBT_S / 10)
            self._look_at = time.monotonic()
            end = self.follow(files)
        return end

    def _look_ahead(self, file: LogFile) -> None:
        """Continue behind bytes that are not a record, if they stay so and a later record proves that the log goes on."""
        physical_offset = file.start_offset + self._position
        now = time.monotonic()
        if self._stopped_at != physical_offset:
            self._stopped_at, self._looks_apart_s = physical_offset, DOUBT_S
        elif now < self._look_at:
            return
        else:
            proof = self._proof(file)
            if proof is not None:
                self._position = self._last = proof
                self._walk(file)
                return
            self._looks_apart_s = min(2 * self._looks_apart_s, _LOOKS_APART_MAX_S)
        self._look_at = now + self._looks_apart_s

    def _proof(self, file: LogFile) -> int | None:
        if self._is_full or begins_chain(file, self._position):
            return None
        stored_ms = store_time_ms(file, self._last) if self._last < self._position else _NONE
        return proof_behind(file, self._position, stored_ms, min(self._position + LOOK_AHEAD, file.size))

    def _newest(self, files: list[LogFile]) -> LogFile | None:
        """Return the last file that begins with a record; files behind it are preallocated."""
        for file in reversed(files):
            is_known = self._file is not None and self._file.start_offset == file.start_offset
            if is_known or begins_with_record(file):
                return file
        return None

    def _walk(self, file: LogFile) -> None:
        walk = FileWalk(file, self._position, file.size)
        last: RecordWindow | None = None
        for window in walk:
            last = window
        self._is_full = walk.ending is Ending.BLANK
        if last is None:
            return
        if walk.ending is Ending.BLANK:
            count, self._doubted = len(last), _NONE
        else:
            count = self._vouched(last)
        base = last.physical_offset - file.start_offset
        if count:
            self._last = base + int(last.starts[count - 1])
            self._position = self._last + int(last.sizes[count - 1])
        else:
            self._position = base

    def _vouched(self, window: RecordWindow) -> int:
        """Return how many of a window's records are complete."""
        invalid = window.first_invalid()
        if invalid is None:
            self._doubted = _NONE
            return len(window)
        physical_offset = int(window.physical_offsets[invalid])
        if physical_offset != self._doubted:
            self._doubted, self._doubted_until = physical_offset, time.monotonic() + DOUBT_S
        if invalid == len(window) - 1 or time.monotonic() < self._doubted_until:
            return invalid
        newest = window.rows(slice(len(window) - 1, None))
        return len(window) if newest.first_invalid() is None else len(window) - 1


def store_time_ms(file: LogFile, position: int) -> int:
    """Return the store time of the record at a position."""
    data = file.read(position, STORE_TIMESTAMP_POSITION + HOST_V6_SIZE)
    return store_timestamp_of(memoryview(data.tobytes()))


def may_begin(file: LogFile, position: int) -> bool:
    """Return whether a record should begin at a position: one begins or ends there, or the file is full."""
    return is_boundary(file, position) or is_damaged_boundary(file, position)


def is_damaged_boundary(file: LogFile, position: int) -> bool:
    """Return whether a record should begin at a position, because one ends there, but none does."""
    return position > 0 and not is_boundary(file, position) and ends_chain(file, position)


def is_boundary(file: LogFile, position: int) -> bool:
    """Return whether a record begins at a position, or the file is full there (the BLANK's size is not checked)."""
    mark = read_mark(file, position)
    if len(record_candidates(mark, file.start_offset + position)):
        return True
    is_blank = len(mark) >= BLANK_SIZE and BLANK_STRUCT.unpack(mark[:BLANK_SIZE].tobytes())[1] == BLANK_MAGIC_CODE
    return is_blank or position == file.size


def ends_chain(file: LogFile, position: int) -> bool:
    """Return whether a record ends at a position, so that the bytes behind it are damaged rather than another record's."""
    for walk in walks(file, next_candidate(file, max(position - FULL_FILE_TAIL, 0), position), position):
        if walk.to_end().position >= position:
            return walk.position == position
    return False
