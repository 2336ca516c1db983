"""Going through a log: its checked records window by window, up to where it ends."""

from collections.abc import Iterator
from typing import Final

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import MAGIC_CODE_POSITION, RECORD_SIZE_MIN
from pocketmq.store.format.record import BadRecordError, check_record, is_blank
from pocketmq.store.format.record_chain import MARK_SIZE, chained, record_candidates
from pocketmq.store.format.record_window import RecordWindow

WINDOW_SIZE: Final = 8 << 20


class LogScan:
    """Iterates over windows of sound records from the physical offset `start` on, over BLANK marks and files.

    Afterwards `position` is the physical offset behind the last sound record, and behind the BLANK if one follows it; and
    `reason` says why the bytes there are no record, or is empty where there are no more files. Both are right between two
    windows too. A window holds the mapping of its file; let go of it before the next.
    """

    def __init__(
        self, mapped_files: MappedFileQueue, start: int, *, check_crc: bool = True, window_size: int = WINDOW_SIZE
    ) -> None:
        self.position = start
        self.reason = ""
        self._files = mapped_files
        self._check_crc = check_crc
        self._window_size = window_size

    def __iter__(self) -> Iterator[RecordWindow]:
        while (window := self._next()) is not None:
            self.position = int(window.physical_offsets[-1] + window.sizes[-1])
            yield window
            # Or it, and its file, would be held while the next one is made.
            del window

    def _next(self) -> RecordWindow | None:
        while (file := self._files.file_at(self.position)) is not None:
            at = self.position - file.start_offset
            try:
                # The first record is looked at alone: it tells why the log ends here, and may be larger than a window.
                size = check_record(file.view, at, self.position, self._check_crc)
            except BadRecordError as error:
                if not is_blank(file.view, at):
                    self.reason = str(error)
                    return None
                self.position = file.start_offset + file.size
                continue
            data = file.array[at : at + max(self._window_size, size)]
            window = RecordWindow(data, self.position, *chained(data, self.position))
            unsound = window.first_unsound(self._check_crc)
            assert len(window) and unsound != 0, f"a record at {self.position} is sound and is not"
            return window if unsound is None else window.rows(slice(unsound))
        return None


def next_sound_record(mapped_files: MappedFileQueue, after: int) -> int | None:
    """Physical offset of the next place beyond `after`, in this file or a later one, with a sound record; None without.

    Sound is what `record.check_record` accepts with the body's CRC.
    """
    files = mapped_files.files
    if not files:
        return None
    position = max(after + 1, files[0].start_offset)
    while (file := mapped_files.file_at(position)) is not None:
        # Behind the end of a log that was not finished there is a hole, the rest of a GiB: to look at it took 1 to 4 s. (The
        # first bytes of a record, those of its size, may be zeros in it.)
        at = position - file.start_offset
        at = max(at, file.next_data(at) - MAGIC_CODE_POSITION)
        position = file.start_offset + at
        # The overlap lets a record's mark be seen whole in one of two windows.
        data = file.array[at : at + WINDOW_SIZE + MARK_SIZE - 1]
        # Or zeros, written ahead or reserved: 10 ms a window to search.
        has_nothing = not data.max()
        for start in () if has_nothing else record_candidates(data, position).tolist():
            try:
                check_record(file.view, at + start, position + start)
            except BadRecordError:
                continue
            return position + int(start)
        file.release_memory(at)
        room = file.size - at
        position += WINDOW_SIZE if room >= WINDOW_SIZE + RECORD_SIZE_MIN else room
    return None
