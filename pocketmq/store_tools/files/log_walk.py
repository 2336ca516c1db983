"""Iteration over the records of a log by `pread`, in windows, with the gaps between them.

The walk follows the chain from record to record and over the BLANK at the end of a file into the next one. Where the bytes
are not a valid record, it searches the next valid one and records a `Gap`. Whether a gap is damage, or the end of the log
followed by left-over bytes, is decided by the caller, which knows queues and index.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT, RECORD_SIZE_MIN
from pocketmq.store.format.record import BadRecordError, bounds, check_record, decode_record
from pocketmq.store.format.record_chain import MARK_SIZE, chained, record_candidates
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store_tools.files.store_files import Bytes, RowFile, StoreFiles

WINDOW_SIZE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [begin, end) of the log that are not valid records; `reason` explains the first. Physical offsets."""

    begin: int
    end: int
    reason: str


# Maximum distance from a byte back to the start of its record.
_SEARCHED_BACK: Final = 8 << 20
UNWRITTEN: Final = "nothing is written here"


def record_bytes(files: StoreFiles, physical_offset: int) -> memoryview:
    """Return the bytes of the record at `physical_offset`, limited by its size field and its file, and the 8 after it.

    Raises BadRecordError if no file has that offset, and OSError.
    """
    file = files.log.file_at(physical_offset)
    if file is None:
        raise BadRecordError(f"no file of the log has physical offset {physical_offset}")
    position = physical_offset - file.start_offset
    data = files.read(file.path, position, min(4096, file.size - position))
    size = int.from_bytes(data[:4].tobytes(), "big", signed=True)
    if len(data) < size + BLANK_SIZE and size <= file.size - position:
        data = files.read(file.path, position, min(size + BLANK_SIZE, file.size - position))
    return memoryview(data[: max(size, RECORD_SIZE_MIN) + BLANK_SIZE]).toreadonly()  # type: ignore[arg-type]  # an ndarray is a buffer


def why_invalid(files: StoreFiles, physical_offset: int, check_crc: bool = True, complete_to: int = 0) -> str:
    """Return why there is no valid record (`record.check_record`) at `physical_offset`, "" if there is one."""
    try:
        view = record_bytes(files, physical_offset)
        if len(view) >= BLANK_SIZE and not any(view[:BLANK_SIZE]):
            return UNWRITTEN
        check_record(view, 0, physical_offset, check_crc, complete_to)
        decode_record(view)
    except BadRecordError as error:
        return str(error)
    return ""


def first_valid(files: StoreFiles, begin: int, stop: int) -> int | None:
    """Return the physical offset of the first valid record that begins in [begin, stop), or None."""
    for file in files.log.files:
        for found in _candidates(files, file, max(begin, file.start_offset), min(stop, file.end_offset)):
            if not why_invalid(files, found):
                return found
    return None


def valid_behind(files: StoreFiles, bad: int, stop: int) -> int | None:
    """Return the offset at which valid records continue after the invalid one at `bad`, before `stop`; None without.

    If a valid record follows at the distance given by the size field, it is taken: only the content of the record is
    damaged, and a search could find bytes in its body, which a client chose, that look like a record. Else the search starts
    after the smallest possible record.
    """
    try:
        end = bad + bounds(record_bytes(files, bad), 0)[0]
    except BadRecordError:
        end = -1
    if bad < end < stop and not why_invalid(files, end):
        return end
    return first_valid(files, bad + RECORD_SIZE_MIN, stop)


def record_around(files: StoreFiles, file: RowFile, position: int) -> int | None:
    """Return the position of the valid record that contains the byte `position` of a file, or begins there; else None."""
    begin = max(0, position - _SEARCHED_BACK)
    data = files.read(file.path, begin, min(position - begin + MARK_SIZE, file.size - begin))
    for start in reversed(record_candidates(data, file.start_offset + begin).tolist()):
        at = begin + int(start)
        size = int.from_bytes(files.read(file.path, at, 4).tobytes(), "big", signed=True)
        if at == position or (at < position < at + size and not why_invalid(files, file.start_offset + at)):
            return at
    return None


def _candidates(files: StoreFiles, file: RowFile, begin: int, end: int) -> Iterator[int]:
    if begin >= end:
        return
    for data_begin, data_end in files.data_extents(file.path, file.size):
        first = max(begin - file.start_offset, data_begin - MARK_SIZE, 0)
        last = min(end - file.start_offset, data_end)
        for position in range(first, last, WINDOW_SIZE):
            # Windows overlap, so that the mark of each record is complete in one of them.
            data = files.read(file.path, position, min(WINDOW_SIZE + MARK_SIZE - 1, file.size - position))
            for start in record_candidates(data, file.start_offset + position).tolist():
                if begin <= file.start_offset + position + start < end:
                    yield file.start_offset + position + start


class LogWalk:
    """Iterator of RecordWindows of the valid records that begin in [begin, stop), physical offsets.

    `begin` must be the start of a record or of a file. At the end `position` is the first byte not visited, `gaps` are the
    skipped bytes, and `reason` tells why the walk ended before `stop` ("" if it did not; UNWRITTEN at zeros).
    Raises OSError.
    """

    def __init__(
        self,
        files: StoreFiles,
        begin: int,
        stop: int,
        *,
        check_crc: bool = True,
        known_end: int = 0,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        """`known_end`: no queue or index refers to records after it, so the log ends at the first gap there; 0: unknown."""
        self.position = begin
        self.gaps: list[Gap] = []
        self.reason = ""
        self._files = files
        self._stop = stop
        self._check_crc = check_crc
        self._known_end = known_end
        self._window_size = window_size

    def __iter__(self) -> Iterator[RecordWindow]:
        size = self._window_size
        while self.position < self._stop:
            file = self._files.log.file_at(self.position)
            if file is None:
                return
            data = self._read(file, size)
            starts, sizes = chained(data, self.position)
            within = int(starts.searchsorted(self._stop - self.position))
            starts, sizes = starts[:within], sizes[:within]
            window = RecordWindow(data, self.position, starts, sizes)
            invalid = window.first_invalid(self._check_crc, self._known_end) if within else None
            if invalid is not None:
                starts, sizes = starts[:invalid], sizes[:invalid]
                window = RecordWindow(data, self.position, starts, sizes)
            consumed = int(starts[-1] + sizes[-1]) if len(starts) else 0
            self.position += consumed
            if len(starts):
                yield window
            if self.position >= self._stop or (invalid is None and self.position >= file.end_offset):
                continue
            wanted = self._next_size(file, data[consumed:]) if invalid is None else 0
            size = max(self._window_size, wanted)
            if wanted == 0 and not self._step_over():
                return

    def _read(self, file: RowFile, size: int) -> Bytes:
        position = self.position - file.start_offset
        return self._files.read(file.path, position, min(size, file.size - position))

    def _next_size(self, file: RowFile, rest: Bytes) -> int:
        """Return the minimum size of the next window, skipping a BLANK; 0 if the bytes are not a record."""
        room = file.end_offset - self.position
        if len(rest) < MARK_SIZE and room > len(rest):
            return MARK_SIZE
        if len(rest) < BLANK_SIZE:
            return 0
        size, magic_code = BLANK_STRUCT.unpack(rest[:BLANK_SIZE].tobytes())
        if magic_code == BLANK_MAGIC_CODE and size == room:
            self.position = file.end_offset
            return 1
        is_cut_off = len(rest) < size <= room and len(record_candidates(rest[:MARK_SIZE], self.position)) > 0
        return int(size) if is_cut_off else 0

    def _step_over(self) -> bool:
        """Move to the next valid record; return whether there is one."""
        self.reason = why_invalid(self._files, self.position, self._check_crc, self._known_end)
        if not self.reason:
            # The bytes have changed since they were read: a broker is writing here. Read them again.
            return True
        if 0 < self._known_end <= self.position:
            return False
        found = valid_behind(self._files, self.position, self._stop)
        if found is None:
            return False
        self.gaps.append(Gap(self.position, found, self.reason))
        self.position, self.reason = found, ""
        return True
