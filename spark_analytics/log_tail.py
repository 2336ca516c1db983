"""Where a log ends that somebody is writing, looked at again and again.

The chain of records is followed once and then from where it was left, so that a look at a log that did not grow costs a few
small reads. Before the newest file everything is the log's: another file begins only when one is full.

Headers come before bodies, so the newest records may be there in part only. One counts when its whole is sound, as a
broker's recovery would have it, which is looked at for the last window that is read. What is not sound holds the end back;
but when it stays so for a second, with others behind it, then it is damage, and nothing that is being written.
"""

import time
from typing import Final

from pocketmq.spark_analytics.places import LogFile, begins_with_record, open_file, read_at
from pocketmq.spark_analytics.reader import Ending, Walk
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT
from pocketmq.store.format.record_chain import MARK_SIZE, Bytes, record_candidates
from pocketmq.store.format.record_window import RecordWindow

_NONE: Final = -1
DOUBT_S = 1.0


class LogTail:
    """The end of one log."""

    def __init__(self) -> None:
        self._file: LogFile | None = None
        self._position = 0
        # Where the last record before `_position` begins.
        self._last = 0
        # Physical offset of a record that was not sound, and until when it may become so.
        self._doubted = _NONE
        self._doubted_until = 0.0

    def follow(self, files: list[LogFile], known: int = _NONE) -> int:
        """Physical offset behind the last whole record of a log that has these files now; where it begins without one.

        `known`: that of a place where a record began, or the log ended, when somebody looked before. Smaller than the last
        time if the log was cut meanwhile. Raises MissingFileError, OSError.
        """
        newest = self._newest(files)
        if newest is None:
            return files[0].physical_offset if files else 0
        if self._file is None or self._file.physical_offset != newest.physical_offset:
            self._position = self._last = 0
            start = known - newest.physical_offset
            if self._file is None and 0 < start < newest.size and has_record(newest, start):
                self._position = self._last = start
        self._file = newest
        if has_record(newest, self._position):
            self._walk(newest)
        elif self._last < self._position and not has_record(newest, self._last):
            self._position = self._last = 0
            self._walk(newest)
        return newest.physical_offset + self._position

    def settled(self, files: list[LogFile]) -> int:
        """As `follow`, after a second if the end is held back: what is no damage is written by then."""
        end = self.follow(files)
        while self._doubted != _NONE and time.monotonic() < self._doubted_until:
            time.sleep(DOUBT_S / 10)
            end = self.follow(files)
        return self.follow(files) if self._doubted != _NONE else end

    def _newest(self, files: list[LogFile]) -> LogFile | None:
        """The last file with a record; those behind it are made ahead."""
        for file in reversed(files):
            is_known = self._file is not None and self._file.physical_offset == file.physical_offset
            if is_known or begins_with_record(file):
                return file
        return None

    def _walk(self, file: LogFile) -> None:
        walk = Walk(file, self._position, file.size)
        last: RecordWindow | None = None
        for window in walk:
            last = window
        if last is None:
            return
        if walk.ending is Ending.BLANK:
            count, self._doubted = len(last), _NONE
        else:
            count = self._vouched(last)
        base = last.physical_offset - file.physical_offset
        if count:
            self._last = base + int(last.starts[count - 1])
            self._position = self._last + int(last.sizes[count - 1])
        else:
            self._position = base

    def _vouched(self, window: RecordWindow) -> int:
        """How many of a window's records are there as a whole."""
        unsound = window.first_unsound()
        if unsound is None:
            self._doubted = _NONE
            return len(window)
        physical_offset = int(window.physical_offsets[unsound])
        if physical_offset != self._doubted:
            self._doubted, self._doubted_until = physical_offset, time.monotonic() + DOUBT_S
        if unsound == len(window) - 1 or time.monotonic() < self._doubted_until:
            return unsound
        newest = window.rows(slice(len(window) - 1, None))
        return len(window) if newest.first_unsound() is None else len(window) - 1


def has_record(file: LogFile, position: int) -> bool:
    """Whether a record begins at a position."""
    return len(record_candidates(_mark(file, position), file.physical_offset + position)) > 0


def is_boundary(file: LogFile, position: int) -> bool:
    """Whether a record begins at a position, or the file is full there; who reads it will tell if its filler is damaged."""
    mark = _mark(file, position)
    if len(record_candidates(mark, file.physical_offset + position)):
        return True
    is_blank = len(mark) >= BLANK_SIZE and BLANK_STRUCT.unpack(mark[:BLANK_SIZE].tobytes())[1] == BLANK_MAGIC_CODE
    return is_blank or position == file.size


def _mark(file: LogFile, position: int) -> Bytes:
    with open_file(file.path) as stream:
        return read_at(stream, position, max(min(MARK_SIZE, file.size - position), 0))
