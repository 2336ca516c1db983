"""LogScan: iteration over the checked records of a log in windows, and the search for the next intact record."""

from collections.abc import Iterator
from typing import Final

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import MAGIC_CODE_POSITION, RECORD_SIZE_MIN
from pocketmq.store.format.record import BadRecordError, check_record, is_blank
from pocketmq.store.format.record_chain import MARK_SIZE, chained, record_candidates
from pocketmq.store.format.record_window import RecordWindow

WINDOW_SIZE: Final = 8 << 20


class LogScan:
    """Iterator over windows of intact records from the physical offset `start` on, across BLANK marks and files.

    Afterwards `position` is the end offset of the last intact record, or of the BLANK mark that follows it, and `reason`
    says why no record begins there; it is empty at the end of the last file. Both are also valid between two windows. A
    window keeps its file mapped, so callers must release it before they request the next. `complete_to` is that of
    `record.check_record`.
    """

    def __init__(
        self,
        mapped_files: MappedFileQueue,
        start: int,
        *,
        check_crc: bool = True,
        complete_to: int = 0,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self.position = start
        self.reason = ""
        self._files = mapped_files
        self._check_crc = check_crc
        self._complete_to = complete_to
        self._window_size = window_size

    def __iter__(self) -> Iterator[RecordWindow]:
        while (window := self._next()) is not None:
            self.position = int(window.physical_offsets[-1] + window.sizes[-1])
            yield window
            # Releases the window and its file before the next one is created.
            del window

    def _next(self) -> RecordWindow | None:
        while (file := self._files.file_at(self.position)) is not None:
            at = self.position - file.start_offset
            try:
                # The first record is checked separately: its error is the reason, and it may be larger than a window.
                size = check_record(file.view, at, self.position, self._check_crc, self._complete_to)
            except BadRecordError as error:
                if not is_blank(file.view, at):
                    self.reason = str(error)
                    return None
                self.position = file.start_offset + file.size
                continue
            data = file.array[at : at + max(self._window_size, size)]
            window = RecordWindow(data, self.position, *chained(data, self.position))
            invalid = window.first_invalid(self._check_crc, self._complete_to)
            assert len(window) and invalid != 0, f"checks of the record at {self.position} disagree"
            return window if invalid is None else window.rows(slice(invalid))
        return None


def next_valid_record(mapped_files: MappedFileQueue, after: int) -> int | None:
    """Return the physical offset of the next intact record beyond `after`, in this or a later file, or None.

    A record is intact if `record.check_record` accepts it, including the CRC of its body.
    """
    files = mapped_files.files
    if not files:
        return None
    position = max(after + 1, files[0].start_offset)
    while (file := mapped_files.file_at(position)) is not None:
        # The unused rest of the last file is a hole in the file system's sense and is skipped. (The first bytes of a record,
        # which belong to its size, may be zeros inside the hole.)
        at = position - file.start_offset
        at = max(at, file.next_data(at) - MAGIC_CODE_POSITION)
        position = file.start_offset + at
        # Windows overlap so that the magic code of each record is completely within one.
        data = file.array[at : at + WINDOW_SIZE + MARK_SIZE - 1]
        # Pre-written or reserved zeros need not be searched.
        is_zero = not data.max()
        for start in () if is_zero else record_candidates(data, position).tolist():
            try:
                check_record(file.view, at + start, position + start)
            except BadRecordError:
                continue
            return position + int(start)
        file.release_memory(at)
        room = file.size - at
        position += WINDOW_SIZE if room >= WINDOW_SIZE + RECORD_SIZE_MIN else room
    return None
