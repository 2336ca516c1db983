"""The records of a log, in windows, and the bytes between them that are not records.

`FileWalk` follows the chain of records (`record_chain`) through one file, by structure only or with the checks of recovery.
`LogWalk` goes on over the BLANK at the end of a file into the next one, and over invalid bytes to the next valid record; the
bytes that it passes over are `gaps`. Whether a gap is damage, or the end of the log followed by left-over bytes, is decided
by the caller, which knows queues and index.

A log may be a row of files (`store_folder.Row`) or a broker's own mapped files: it finds the file of an offset, and each
file gives its bytes (`file_bytes.FileBytes`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, InitVar, dataclass
from enum import Enum
from sys import maxsize
from typing import Final, Protocol, Self

import numpy as np

from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    MAGIC_CODE_POSITION,
    RECORD_SIZE_MIN,
)
from pocketmq.store.format.record import BadRecordError, Record, bounds, check_record, decode_record
from pocketmq.store.format.record_chain import MARK_SIZE, Bytes, linked, record_candidates
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.offline.file_bytes import FileBytes

# Smaller windows cost more numpy calls, larger ones exceed the processor's cache.
WINDOW_SIZE: Final = 4 << 20
# First size of windows where the records may end soon.
WINDOW_SIZE_FIRST: Final = 64 << 10
# Bytes read beyond the end of a window, for the rest of its last record.
OVERLAP: Final = 64 << 10
UNWRITTEN: Final = "nothing is written here"
_RECORD_READ: Final = 4096
_BLOCK: Final = 256 << 10


class File(Protocol):
    """A file of a log, whose first byte is at `start_offset`."""

    @property
    def start_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def open(self) -> AbstractContextManager[FileBytes]: ...


class Log(Protocol):
    """The files of a log, in ascending order."""

    @property
    def files(self) -> Sequence[File]: ...

    def file_at(self, offset: int) -> File | None: ...


class Known(Protocol):
    """Knowledge about stretches of a file that need not be read again."""

    def passed(self, position: int, stop: int) -> int:
        """Return the position behind the stretches that follow each other from `position` on without a wanted record."""
        ...

    def note(self, window: RecordWindow, begin: int) -> None:
        """Take note of consecutive records, of which the first begins at a position."""
        ...


class Ending(Enum):
    """Reason why a walk through a file ended."""

    STOP = "stop"  # every record that begins before the requested end was seen
    BLANK = "blank"  # the file is full
    BROKEN = "broken"  # the bytes at this position are not a valid record


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [begin, end) of the log that are not valid records; `reason` explains the first. Physical offsets."""

    begin: int
    end: int
    reason: str


class FileWalk:
    """Iterator over the windows of a file, from the record at `begin` to the last one that begins before `stop`.

    Positions count from the file's first byte. `position` is the first byte behind the records seen, and after the iteration
    `ending` is the reason for the end. A window is valid until the next one is requested, since they may share memory. The
    first window has `first_size` bytes, each next one is twice as long, up to `window_size`. Windows end at multiples of
    `window_size`, so that several walks have the same windows; `known` tells which of them are passed over. `first_invalid`
    returns the row of a window at which the walk has to end, or None. Raises OSError when the file cannot be read.
    """

    def __init__(
        self,
        file: File,
        begin: int,
        stop: int,
        window_size: int = WINDOW_SIZE,
        first_size: int = WINDOW_SIZE,
        *,
        known: Known | None = None,
        first_invalid: Callable[[RecordWindow], int | None] = lambda window: None,
    ) -> None:
        self.position = begin
        # Start of the last record seen before `position`; equal to `position` until a record was seen.
        self.last = begin
        self.ending = Ending.STOP
        self._file = file
        self._stop = min(stop, file.size)
        self._window_size = max(window_size, MARK_SIZE)
        self._next_window_size = min(self._window_size, first_size)
        self._known = known
        self._first_invalid = first_invalid

    def __iter__(self) -> Iterator[RecordWindow]:
        with self._file.open() as bytes_:
            wanted = MARK_SIZE
            buffer = np.empty(0, np.uint8)
            while self._goes_on():
                # The last part of a file may be shorter than a window.
                stop = min(self._stop, (self.position // self._window_size + 1) * self._window_size)
                size = max(min(self._next_window_size, stop - self.position + OVERLAP), wanted)
                self._next_window_size = min(2 * self._next_window_size, self._window_size)
                size_there = min(size, self._file.size - self.position)
                if len(buffer) < size_there:
                    buffer = np.empty(size_there, np.uint8)
                data = bytes_.read(self.position, size_there, buffer)
                at_end = len(data) < size_there  # the file was truncated since its size was read
                window, invalid = self._records(data, stop - self.position, at_end)
                rest = data
                if len(window):
                    begin = self.position
                    self.last = begin + int(window.starts[-1])
                    self.position = self.last + int(window.sizes[-1])
                    rest = data[self.position - begin :]
                    if self._known is not None:
                        self._known.note(window, begin)
                    yield window
                del window, data
                if invalid:
                    self.ending = Ending.BROKEN
                    return
                if self.position >= stop:
                    wanted = MARK_SIZE
                    continue
                wanted = self._next_size(rest, at_end)
                if wanted == 0:
                    return

    @property
    def _physical_offset(self) -> int:
        return self._file.start_offset + self.position

    def to_end(self) -> Self:
        """Walk to the end; return this walk."""
        for _ in self:
            pass
        return self

    def _records(self, data: Bytes, stop: int, at_end: bool) -> tuple[RecordWindow, bool]:
        """Return the records in `data` that begin before `stop`, and whether an invalid one follows them."""
        physical_offset = self._physical_offset
        starts, sizes = linked(data, physical_offset)
        within = int(np.searchsorted(starts, stop))
        # The bytes behind a record show whether it is torn.
        known_to = len(data) if at_end or self.position + len(data) == self._file.size else len(data) - BLANK_SIZE
        if within and starts[within - 1] + sizes[within - 1] > known_to:
            within -= 1
        window = RecordWindow(data, physical_offset, starts[:within], sizes[:within])
        invalid = self._first_invalid(window) if within else None
        return (window, False) if invalid is None else (window.rows(slice(invalid)), True)

    def _goes_on(self) -> bool:
        """Pass over the known stretches without wanted records; return whether a record may follow before the stop."""
        if self._known is not None:
            passed = self._known.passed(self.position, self._stop)
            if passed != self.position:
                self.position = self.last = passed
        return self.position < self._stop

    def _next_size(self, rest: Bytes, at_end: bool) -> int:
        """Return the minimum size of the next window; 0 with `ending` set if the chain ends here."""
        room = self._file.size - self.position
        if len(rest) < MARK_SIZE and not at_end and room > len(rest):
            return MARK_SIZE
        self.ending = Ending.BROKEN
        if at_end or len(rest) < BLANK_SIZE:
            return 0
        if is_blank(rest, room):
            self.ending = Ending.BLANK
            return 0
        size, _ = BLANK_STRUCT.unpack(rest[:BLANK_SIZE].tobytes())
        wanted = min(size + BLANK_SIZE, room)
        if len(rest) < wanted and size <= room and len(record_candidates(rest[:MARK_SIZE], self._physical_offset)):
            self.ending = Ending.STOP
            return int(wanted)
        return 0


@dataclass(eq=False)
class LogWalk:
    """Iterator over the windows of the valid records that begin in [begin, stop), physical offsets, across files.

    `begin` must be the start of a record or of a file. `position` is the end of the last record seen, or of the BLANK behind
    it, and `reason` says why no record begins there; it is empty at `stop` and at the end of the last file. Both are also
    valid between two windows. A window of mapped files keeps its file mapped, so callers must release it before they request
    the next. Raises OSError.

    `complete_to`: see `record.check_record`. With `over_gaps` the walk goes on behind invalid bytes before
    `complete_to`, or behind all of them if that is 0.
    """

    log: Log
    begin: InitVar[int]
    stop: int = maxsize
    _: KW_ONLY
    check_crc: bool = True
    complete_to: int = 0
    over_gaps: bool = False
    window_size: int = WINDOW_SIZE

    def __post_init__(self, begin: int) -> None:
        self.position = begin
        self.gaps: list[Gap] = []
        self.reason = ""

    def __iter__(self) -> Iterator[RecordWindow]:
        while self.position < self.stop and (file := self.log.file_at(self.position)) is not None:
            start = file.start_offset
            walk = FileWalk(
                file, self.position - start, self.stop - start, self.window_size,
                WINDOW_SIZE_FIRST if self.gaps else self.window_size, first_invalid=self._first_invalid,
            )  # fmt: skip
            for window in walk:
                self.position = start + walk.position
                yield window
                # Releases the window and its file before the next one is created.
                del window
            self.position = start + walk.position
            if walk.ending is Ending.BLANK:
                self.position = start + file.size
            elif walk.ending is Ending.BROKEN and not self._step_over():
                return

    def _first_invalid(self, window: RecordWindow) -> int | None:
        return window.first_invalid(self.check_crc, self.complete_to)

    def _step_over(self) -> bool:
        """Move to the next valid record; return whether there is one."""
        self.reason = why_invalid(self.log, self.position, self.check_crc, self.complete_to)
        if not self.reason:
            # The bytes have changed since they were read: a broker is writing here. Read them again.
            return True
        if not self.over_gaps or 0 < self.complete_to <= self.position:
            return False
        found = valid_behind(self.log, self.position, self.stop)
        if found is None:
            return False
        self.gaps.append(Gap(self.position, found, self.reason))
        self.position, self.reason = found, ""
        return True


def is_blank(mark: Bytes, room: int) -> bool:
    """Return whether `mark` begins with the BLANK; its size must be all the remaining room in the file."""
    return len(mark) >= BLANK_SIZE and BLANK_STRUCT.unpack(mark[:BLANK_SIZE].tobytes()) == (room, BLANK_MAGIC_CODE)


def walks(file: File, begin: int | None, stop: int, first_size: int = WINDOW_SIZE) -> Iterator[FileWalk]:
    """Yield walks that together pass a file from `begin` to `stop`, each from the next candidate behind the last one's end.

    The caller must iterate over each walk before it requests the next.
    """
    while begin is not None:
        walk = FileWalk(file, begin, stop, first_size=first_size)
        yield walk
        begin = next_candidate(file, max(walk.position, begin + 1), stop)


def has_record(file: File, position: int) -> bool:
    """Return whether the bytes at a position of a file look like the start of a record."""
    return len(record_candidates(read_mark(file, position), file.start_offset + position)) > 0


def read_mark(file: File, position: int) -> Bytes:
    """Return the bytes at a position by which a record is recognised; fewer at the end of the file."""
    with file.open() as bytes_:
        return bytes_.read(position, min(MARK_SIZE, file.size - position))


# --- single records ---------------------------------------------------------------------------------------------------


def record_bytes(log: Log, physical_offset: int) -> memoryview:
    """Return the bytes of the record at `physical_offset`, limited by its size field and its file, and the 8 after it.

    Raises BadRecordError if no file has that offset or the file ends before the record does, and OSError.
    """
    file = log.file_at(physical_offset)
    if file is None:
        raise BadRecordError(f"no file of the log has physical offset {physical_offset}")
    position = physical_offset - file.start_offset
    room = file.size - position
    with file.open() as bytes_:
        data = bytes_.read(position, min(_RECORD_READ, room))
        size = max(int.from_bytes(data[:4].tobytes(), "big", signed=True), RECORD_SIZE_MIN)
        if len(data) < min(size + BLANK_SIZE, room) and size <= room:
            data = bytes_.read(position, min(size + BLANK_SIZE, room))
    return memoryview(data[: size + BLANK_SIZE]).toreadonly()  # type: ignore[arg-type]  # an ndarray is a buffer


def why_invalid(log: Log, physical_offset: int, check_crc: bool = True, complete_to: int = 0) -> str:
    """Return why there is no valid record (`record.check_record`) at `physical_offset`, "" if there is one."""
    try:
        view = record_bytes(log, physical_offset)
        if len(view) >= BLANK_SIZE and not any(view[:BLANK_SIZE]):
            return UNWRITTEN
        check_record(view, 0, physical_offset, check_crc, complete_to)
    except BadRecordError as error:
        return str(error)
    return ""


def read_record(log: Log, physical_offset: int) -> Record | None:
    """Return the valid record at `physical_offset`, None without one."""
    try:
        view = record_bytes(log, physical_offset)
        check_record(view, 0, physical_offset, complete_to=physical_offset + len(view))
        return decode_record(view)
    except (BadRecordError, FileNotFoundError):
        return None


# --- searching --------------------------------------------------------------------------------------------------------


def candidates(file: File, begin: int, stop: int, window_size: int = WINDOW_SIZE) -> Iterator[int]:
    """Yield the positions in [begin, stop) of a file that look like the start of a record. Holes are not read."""
    with file.open() as bytes_:
        position, stop = max(begin, 0), min(stop, file.size)
        while position < stop:
            # The first bytes of a record, which belong to its size, may be zeros within a hole.
            position = max(position, bytes_.next_data(position) - MAGIC_CODE_POSITION)
            # Windows overlap so that a record's mark is entirely in one of them.
            data = bytes_.read(position, min(window_size + MARK_SIZE - 1, file.size - position))
            # Zeros that were written or reserved in advance need not be searched.
            starts = record_candidates(data, file.start_offset + position).tolist() if data.any() else ()
            del data
            for start in starts:
                if position + start >= stop:
                    return
                yield position + int(start)
            bytes_.release_memory(position)
            position += window_size


def next_candidate(file: File, begin: int, stop: int, window_size: int = WINDOW_SIZE) -> int | None:
    """Return the first position in [begin, stop) that looks like the start of a record, or None."""
    return next(candidates(file, begin, stop, window_size), None)


def written_end(file: File, begin: int = 0) -> int | None:
    """Return the position behind the last byte of a file from `begin` on that is not zero, or None. Holes are not read."""
    with file.open() as bytes_:
        for stop in range(file.size, begin, -_BLOCK):
            start = max(stop - _BLOCK, begin)
            if bytes_.next_data(start) < stop and (block := bytes_.read(start, stop - start)).any():
                return start + int(block.nonzero()[0][-1]) + 1
    return None


def first_valid(log: Log, begin: int, stop: int = maxsize) -> int | None:
    """Return the physical offset of the first valid record that begins in [begin, stop), or None."""
    for file in log.files:
        start = file.start_offset
        if begin < start + file.size and start < stop:
            for position in candidates(file, begin - start, stop - start):
                if not why_invalid(log, start + position):
                    return start + position
    return None


def valid_behind(log: Log, bad: int, stop: int = maxsize) -> int | None:
    """Return the offset at which valid records continue after the invalid one at `bad`, before `stop`; None without.

    If a valid record follows at the distance given by the size field, it is taken: only the content of the record is
    damaged, and a search could find bytes in its body, which a client chose, that look like a record. Else the search starts
    in the next file, or after the smallest record that can replace the bad one (`quarantine`).
    """
    file = log.file_at(bad)
    if file is None:
        return None
    file_end = file.start_offset + file.size
    try:
        end = bad + bounds(record_bytes(log, bad), 0)[0]
    except BadRecordError:
        end = -1
    if bad < end < file_end and is_blank(read_mark(file, end - file.start_offset), file_end - end):
        end = file_end
    if bad < end < stop and not why_invalid(log, end):
        return end
    return first_valid(log, min(bad + RECORD_SIZE_MIN + 1, file_end), stop)
