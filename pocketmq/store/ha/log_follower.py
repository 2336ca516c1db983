"""LogFollower: appends the bytes of a master's log to the log of a slave, and dispatches the records that are complete.

Frames are checked before memory is used for them: their offset must be the end of the log, and their bytes are appended as
they arrive, so that no whole frame is buffered. Records are checked as in recovery: a damaged one is never dispatched, and
nothing after it is accepted.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.layout import BLANK_STRUCT, REPLICA_REPORT_STRUCT, REPLICA_TRANSFER_STRUCT
from pocketmq.store.format.message import DispatchRequest
from pocketmq.store.format.multi_dispatch import further_request
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import (
    BadRecordError,
    TagsCode,
    bounds,
    check_record,
    decode_dispatch_request,
    is_blank,
)
from pocketmq.store.format.record_chain import linked
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.log.commit_log import CommitLog

_HEADER_SIZE: Final = REPLICA_TRANSFER_STRUCT.size
PIECE_SIZE: Final = 64 << 10
"""Pieces of at least this size arrive while the slave catches up, or the master is busy."""
WINDOW_SIZE_MIN: Final = 32 << 10
BULK_SIZE: Final = 2 << 20
"""Maximum number of bytes that are dispatched together, and that are left undispatched."""
BODY_SIZE_MAX: Final = 1 << 30
"""Limit of a frame's size. Frames do not cross the end of a file."""

OFFSET_MAX: Final = (1 << 63) - 1


class FollowError(Exception):
    """Raised for received bytes that do not continue the slave's log; the connection must be closed."""


class LogFollower:
    """Slave's side of replication, without sockets."""

    def __init__(
        self,
        commit_log: CommitLog,
        tags_code: TagsCode,
        dispatched_offset: int,
        check_crc: bool = True,
        dispatch_window: Callable[[RecordWindow], bool] = lambda window: False,
    ) -> None:
        """`dispatched_offset`: end of the last record in queues and index, which is the end of a recovered log.

        `dispatch_window` dispatches many records at once, or returns False.
        """
        self._log = commit_log
        self._tags_code = tags_code
        self._check_crc = check_crc
        self._dispatch_window = dispatch_window
        self.window_size_min = WINDOW_SIZE_MIN
        """Bytes from which on records are dispatched together."""
        self.checked_offset = dispatched_offset
        """End of the last record that has arrived completely and is intact: the slave acknowledges nothing behind it."""
        # Physical offset up to which records are dispatched one by one.
        self._single_until = 0
        self._damage = ""
        self._header = b""
        # Bytes of the present frame that have not arrived yet.
        self._missing = 0

    @property
    def max_offset(self) -> int:
        """End of the slave's log."""
        return self._log.max_offset

    def report(self) -> bytes:
        """Return the first report of a connection, which requests what follows the end of the log.

        Raises FollowError if that end is damaged, because a report also acknowledges what is before it.
        """
        self.dispatch()
        return REPLICA_REPORT_STRUCT.pack(self.max_offset)

    def reconnected(self) -> None:
        """Expect the beginning of a frame."""
        self._header, self._missing = b"", 0

    def begin(self, physical_offset: int, record: bytes) -> None:
        """Begin an empty log with the first record of the master's. Raises FollowError or OSError."""
        self._check_beginning(physical_offset)
        if len(record) > self._log.mapped_files.file_size:
            raise FollowError(f"the first record of the master's log, of {len(record)} bytes, does not fit into a file")
        try:
            check_record(memoryview(record), 0, physical_offset, self._check_crc)
        except BadRecordError as error:
            raise FollowError(f"the first record of the master's log, at {physical_offset}, is damaged: {error}") from None
        self._log.begin_raw(physical_offset)
        self.checked_offset = physical_offset
        self._log.append_raw(memoryview(record))
        self.dispatch()

    def _check_beginning(self, offset: int) -> None:
        """Raises FollowError unless a file of this log can begin at `offset`."""
        size = self._log.mapped_files.file_size
        if offset % size or not 0 <= offset <= OFFSET_MAX - size:
            raise FollowError(f"the master's log begins at {offset}, where no file of {size} bytes begins")

    @property
    def has_undispatched(self) -> bool:
        """Whether the log has bytes after the last dispatched record."""
        return self.checked_offset < self.max_offset

    def receive(self, data: bytes) -> int:
        """Append the log bytes in `data`. Return the number of frames that ended, heartbeats included.

        While the log arrives in large pieces, its records are not dispatched at once, because dispatching many together is
        cheaper; the caller must then call `dispatch` soon.

        Raises FollowError if the bytes do not continue this log, and OSError if the disk is full; the rest of the bytes is
        then not used, and the connection must be closed.
        """
        view, at, frames = memoryview(data), 0, 0
        while at < len(view):
            if not self._missing:
                taken = _HEADER_SIZE - len(self._header)
                self._header += view[at : at + taken]
                at += taken
                if len(self._header) < _HEADER_SIZE:
                    break
                self._begin_frame()
                frames += not self._missing
                continue
            part = view[at : at + self._missing]
            while part:
                size = self._log.append_raw(part)
                part, at, self._missing = part[size:], at + size, self._missing - size
            frames += not self._missing
        if len(data) < PIECE_SIZE or self.max_offset - self.checked_offset >= BULK_SIZE:
            self.dispatch()
        return frames

    def _begin_frame(self) -> None:
        offset, size = REPLICA_TRANSFER_STRUCT.unpack(self._header)
        self._header = b""
        files = self._log.mapped_files
        if not 0 <= size <= BODY_SIZE_MAX:
            raise FollowError(f"the master sent a frame of {size} bytes; the limit is {BODY_SIZE_MAX}")
        if not files.files:
            self._check_beginning(offset)
            if not size:
                return
            self._log.begin_raw(offset)
            self.checked_offset = offset
        if offset != self.max_offset:
            raise FollowError(f"the master sent a frame of offset {offset}, but this log ends at {self.max_offset}")
        if size and (problem := self._problem()):
            raise FollowError(problem)
        self._missing = size

    def _problem(self) -> str:
        """Return why nothing more may be appended, or an empty text."""
        reasons = (reason for cause, reason in self._log.refusals.items() if cause != "role")
        return self._damage or next(reasons, "")

    def dispatch(self) -> None:
        """Dispatch the complete records after the last dispatched one, or let them wait for one.

        Raises FollowError for a damaged record.
        """
        if self._damage:
            raise FollowError(self._damage)
        files = self._log.mapped_files
        while (file := files.file_at(self.checked_offset)) is not None:
            view, at = file.view[: file.wrote], self.checked_offset - file.start_offset
            if is_blank(view, at):
                self.checked_offset = file.start_offset + file.size
                continue
            room = len(view) - at
            if room < BLANK_STRUCT.size or room < BLANK_STRUCT.unpack_from(view, at)[0] <= file.size - at:
                return  # not complete yet
            if room >= self.window_size_min and self.checked_offset >= self._single_until:
                self.checked_offset += self._dispatch_many(file, at)
            else:
                self.checked_offset += self._dispatch_one(view, at)

    def _dispatch_many(self, file: MappedFile, at: int) -> int:
        """Dispatch the intact records from position `at` of the file on together. Return their size, 0 if that failed.

        The bytes of a window that failed are then dispatched record by record, so that no byte is in many windows.
        """
        data = file.array[at : min(file.wrote, at + BULK_SIZE)]
        window = RecordWindow(data, self.checked_offset, *linked(data, self.checked_offset))
        if len(window) and (invalid := window.first_invalid(self._check_crc)) is not None:
            window = window.rows(slice(invalid))
        size = int(window.sizes.sum()) if len(window) else 0
        if size and self._dispatch_window(window):
            return size
        self._single_until = self.checked_offset + len(data)
        return 0

    def _dispatch_one(self, view: memoryview, at: int) -> int:
        """Let the record at position `at` wait for a dispatch, and return its size. Raises FollowError if it is damaged."""
        try:
            size = check_record(view, at, self.checked_offset, self._check_crc)
        except BadRecordError as error:
            self._damage = f"the record at {self.checked_offset} of the master's log is damaged: {error}"
            raise FollowError(self._damage) from None
        requests = self._requests(view, at)
        self._log.tail.undispatched.extend(requests)
        self._log.last_store_timestamp_ms = requests[0].store_timestamp_ms
        return size

    def cut_incomplete(self) -> None:
        """Remove the beginning of a record whose end has not arrived, as recovery would do at the next start.

        Dispatches all others first.
        """
        with contextlib.suppress(FollowError):
            self.dispatch()
        file = next(iter(self._log.mapped_files.files[-1:]), None)
        if file is not None and self.max_offset > self.checked_offset:
            file.truncate(max(self.checked_offset - file.start_offset, 0))
            self._log.tail.continue_in(file)

    def _requests(self, view: memoryview, at: int) -> list[DispatchRequest]:
        request = decode_dispatch_request(view, at, self._tags_code)
        multi_dispatch = self._log.multi_dispatch
        if multi_dispatch is None:
            return [request]
        size, _, topic_start, topic_size = bounds(view, at)
        properties = decode_properties(view[topic_start + topic_size + 2 : at + size])
        return [request, *(further_request(request, *row) for row in multi_dispatch.units_of(properties, request.queue_id))]
