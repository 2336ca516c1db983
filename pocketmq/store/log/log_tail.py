"""LogTail: the end of the log, where records have their offsets but are not yet written to the file or dispatched.

It owns the next queue offset of each queue, the physical offset of the next record, and the records and dispatch requests
that wait. The records of one event-loop turn are written together, before queues, senders or other files use them.
"""

from collections.abc import Container, Iterable, Set
from time import monotonic
from typing import Final

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.message import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_TYPE_MASK,
    TRANSACTION_UNQUEUED_FLAG,
    DispatchRequest,
)

QueueKey = tuple[str, int]

# Bytes that are buffered within a turn before they are written.
_UNWRITTEN_MAX: Final = 1 << 20
# A message that arrives this soon after a slow write has waited for it.
_BUSY_FOR_S: Final = 0.05


class LogTail:
    """End of the log in its last `file`; `end_offset` is the physical offset of the next record. Not thread-safe."""

    __slots__ = (
        "_busy_after_s",
        "_unwritten",
        "_write_beyond",
        "busy_until_s",
        "end_offset",
        "file",
        "longest_wait_s",
        "queue_offsets",
        "undispatched",
    )

    def __init__(self, config: MessageStoreConfig) -> None:
        self.file: MappedFile | None = None
        self.end_offset = 0
        self.queue_offsets: dict[QueueKey, int] = {}
        """The next offset of each queue."""
        self.undispatched: list[DispatchRequest] = []
        """Requests for the records that are not in queues and index yet, in log order."""
        self._unwritten: list[bytes] = []
        self._write_beyond = 0
        self.busy_until_s = 0.0
        """Monotonic time until which requests have waited longer than osPageCacheBusyTimeOutMills for a write or space."""
        self.longest_wait_s = 0.0  # for a write to the page cache or for space; reset by the code that samples it
        self._busy_after_s = config.os_page_cache_busy_time_out_mills / 1000

    def continue_in(self, file: MappedFile) -> None:
        """Let the next record follow the written bytes of `file`. No record may be unwritten."""
        self.file, self.end_offset = file, file.end_offset
        self._write_beyond = self.end_offset + _UNWRITTEN_MAX

    def add(self, size: int, records: Iterable[bytes], requests: Iterable[DispatchRequest]) -> None:
        """Add records of `size` bytes in total, for which the file has space, and the requests to dispatch them."""
        self.end_offset += size
        self._unwritten += records
        self.undispatched += requests
        if self.end_offset > self._write_beyond:
            self.write()

    def write(self) -> None:
        """Write the records to the file. Afterwards they survive a process kill."""
        if self._unwritten:
            began_s, file = monotonic(), self.file
            assert file is not None, "unwritten records imply a file"
            file.write(b"".join(self._unwritten))
            self._unwritten.clear()
            self._write_beyond = self.end_offset + _UNWRITTEN_MAX
            self.note_wait(began_s)

    def note_wait(self, began_s: float) -> None:
        """Measure the time since `began_s`, for which requests have waited for a write or for space."""
        wait_s = monotonic() - began_s
        self.longest_wait_s = max(self.longest_wait_s, wait_s)
        if wait_s > self._busy_after_s:
            self.busy_until_s = began_s + wait_s + _BUSY_FOR_S

    @property
    def undispatched_bytes(self) -> int:
        """Number of bytes of the log from the first record on that is not in its queue yet."""
        return self.end_offset - self.undispatched[0].physical_offset if self.undispatched else 0

    def restart_offsets(self, topic: str, existing: Container[QueueKey]) -> None:
        """Let the queues of `topic` that are not `existing`, which were deleted, begin at offset 0 again."""
        for key in [key for key in self.queue_offsets if key[0] == topic and key not in existing]:
            del self.queue_offsets[key]

    def keep_out_of_queues(self, keys: Set[QueueKey]) -> None:
        """Let the waiting records of deleted queues go to no queue: it would be one of a new topic with the same name."""
        for request in self.undispatched:
            if (request.topic, request.queue_id) in keys and not request.sys_flag & TRANSACTION_UNQUEUED_FLAG:
                # The index keeps such a record.
                request.sys_flag = request.sys_flag & ~TRANSACTION_TYPE_MASK | TRANSACTION_PREPARED_TYPE
