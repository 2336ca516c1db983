"""Replica: one slave, as its master sees it.

The slave reports the end of its log; the first report is also the request for everything after it. The master answers with
frames, which are views of its log files: each contains bytes of one file. Sockets are handled by `broker.ha`.
"""

from typing import Final

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import REPLICA_REPORT_STRUCT, REPLICA_TRANSFER_STRUCT

_REPORT_SIZE: Final = REPLICA_REPORT_STRUCT.size


class ReplicaError(Exception):
    """A report that the master cannot serve; the connection must be closed."""


class Replica:
    """Progress of one slave. `reported_offset` is the end of its log, -1 before its first report."""

    def __init__(self, files: MappedFileQueue, transfer_size_max: int) -> None:
        """`files` is the master's log, `transfer_size_max` limits the bytes of the log in one frame."""
        self.reported_offset = -1
        self.next_offset = -1
        """Physical offset of the next frame."""
        self._files = files
        self._transfer_size_max = transfer_size_max
        self._unread = b""

    def receive(self, data: bytes) -> bool:
        """Read reports; the newest one counts. Return whether `reported_offset` changed. Raises ReplicaError."""
        data = self._unread + data
        end = len(data) - len(data) % _REPORT_SIZE
        self._unread = data[end:]
        if not end:
            return False
        if self.next_offset < 0:
            self._begin(REPLICA_REPORT_STRUCT.unpack_from(data)[0])
        reported = int(REPLICA_REPORT_STRUCT.unpack_from(data, end - _REPORT_SIZE)[0])
        if reported < 0:
            raise ReplicaError(f"it reports {reported}, which is not a physical offset")
        if reported > self.next_offset:
            raise ReplicaError(f"it reports {reported}, but was sent the log only up to {self.next_offset}")
        is_changed = reported != self.reported_offset
        self.reported_offset = reported
        return is_changed

    def _begin(self, reported: int) -> None:
        files = self._files
        begin, end = files.min_offset, files.max_offset
        if reported == 0:
            # As in Apache: an empty slave begins with the last file.
            self.next_offset = files.files[-1].start_offset if files.files else 0
        elif begin <= reported <= end:
            self.next_offset = reported
        elif reported > end:
            raise ReplicaError(
                f"its log ends at {reported}, after the master's end at {end}: they have diverged, or the master's is older"
            )
        else:
            raise ReplicaError(f"its log ends at {reported}, before the master's begins at {begin}: empty its store")

    def next_transfer(self) -> tuple[bytes, memoryview] | None:
        """Return header and bytes of the next frame, or None if the slave was sent everything that is written."""
        offset = self.next_offset
        file = None if offset < 0 else self._files.file_at(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        size = min(file.wrote - position, self._transfer_size_max)
        if size <= 0:
            return None
        self.next_offset = offset + size
        return REPLICA_TRANSFER_STRUCT.pack(offset, size), file.view[position : position + size]

    def heartbeat(self) -> bytes:
        """Return a frame without bytes."""
        return REPLICA_TRANSFER_STRUCT.pack(max(self.next_offset, 0), 0)
