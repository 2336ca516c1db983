"""LogTail: the end of the log, where records have their offsets but are not yet written to the file or dispatched.

It owns the next queue offset of each queue, the physical offset of the next record, and the records and dispatch requests
that wait. The records of one event-loop turn are written together, before queues, senders or other files use them.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, MutableMapping, Set
from time import monotonic
from typing import Final

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.lane_units import LaneUnits, NextOffset
from pocketmq.store.format.message import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_TYPE_MASK,
    TRANSACTION_UNQUEUED_FLAG,
    DispatchRequest,
    QueueKey,
)

# Bytes that are buffered within a turn before they are written.
_UNWRITTEN_MAX: Final = 1 << 20
# A message that arrives this soon after a slow write has waited for it.
_BUSY_FOR_S: Final = 0.05


class NextOffsets(MutableMapping[QueueKey, int]):
    """(topic, queue id) -> next offset. Each is in a cell, which the compiled lane knows and changes, too."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[QueueKey, NextOffset] = {}

    def __getitem__(self, key: QueueKey) -> int:
        return self.cells[key].value

    def __setitem__(self, key: QueueKey, value: int) -> None:
        cell = self.cells.get(key)
        if cell is None:
            self.cells[key] = NextOffset(value)
        else:
            cell.value = value

    def __delitem__(self, key: QueueKey) -> None:
        self.cells.pop(key).value = -1  # the lane looks for the key again

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


class LogTail:
    """End of the log in its last `file`; `end_offset` is the physical offset of the next record. Not thread-safe.

    A record of the Python path has a dispatch request, one of the compiled lane has a unit there. In log order they are
    batches of requests, each with a batch of units behind it, and the last requests. All units become requests when
    `undispatched` is read.
    """

    def __init__(self, config: MessageStoreConfig, request_at: Callable[[int], DispatchRequest]) -> None:
        """`request_at` decodes the dispatch request of the written record at a physical offset."""
        self.file: MappedFile | None = None
        self.end_offset = 0
        self.queue_offsets = NextOffsets()
        """The next offset of each queue."""
        self._before_units: deque[list[DispatchRequest]] = deque()
        self._undispatched: list[DispatchRequest] = []  # behind those and their units
        self._lane: LaneUnits | None = None
        self._request_at = request_at
        self.has_units = False
        """Whether the last records are the compiled lane's. It appends them to `unwritten`; its caller sets this flag and
        `end_offset`."""
        self.unwritten: list[bytes] = []
        """Records that are not in the file yet, as adjacent pieces of the log."""
        self.write_beyond = 0
        """End offset of records beyond which they are written before the turn ends."""
        self.busy_until_s = 0.0
        """Monotonic time until which requests have waited longer than osPageCacheBusyTimeOutMills for a write or space."""
        self.longest_wait_s = 0.0  # for a write to the page cache or for space; reset by the code that samples it
        self._busy_after_s = config.os_page_cache_busy_time_out_mills / 1000

    def continue_in(self, file: MappedFile) -> None:
        """Let the next record follow the written bytes of `file`. No record may be unwritten."""
        self.file, self.end_offset = file, file.end_offset
        self.write_beyond = self.end_offset + _UNWRITTEN_MAX

    def add(self, size: int, records: Iterable[bytes], requests: Iterable[DispatchRequest]) -> None:
        """Add records of `size` bytes in total, for which the file has space, and the requests to dispatch them."""
        if self.has_units:
            self._seal_units()
        self.end_offset += size
        self.unwritten += records
        self._undispatched += requests
        if self.end_offset > self.write_beyond:
            self.write()

    def use_lane(self, lane: LaneUnits | None) -> None:
        """Take units from `lane` from now on."""
        self._take_units()
        self._lane = lane

    @property
    def undispatched(self) -> list[DispatchRequest]:
        """Requests for the records that are not in queues and index yet, in log order."""
        if self.has_units or self._before_units:
            self._take_units()
        return self._undispatched

    @property
    def units(self) -> LaneUnits | None:
        """The compiled lane, if it has units to be dispatched. Its first batch follows the `first_requests` in the log."""
        if self.has_units:
            self._seal_units()
        return self._lane if self._before_units else None

    @property
    def first_requests(self) -> list[DispatchRequest]:
        """The requests before the first batch of units, or the last ones."""
        return self._before_units[0] if self._before_units else self._undispatched

    def units_dispatched(self) -> None:
        """Forget the first batch of units, which is in queues and index. No requests may wait before it."""
        assert self._lane is not None
        self._lane.clear()
        self._before_units.popleft()

    def requests_dispatched(self) -> None:
        """Forget the `first_requests`, which are in queues and index."""
        self.first_requests.clear()

    def _seal_units(self) -> None:
        assert self._lane is not None
        self._lane.seal()
        self._before_units.append(self._undispatched)
        self._undispatched, self.has_units = [], False

    def _take_units(self) -> None:
        """Replace the units by requests, decoded from the records."""
        self.write()
        found = list[DispatchRequest]()
        while (units := self.units) is not None:
            found += self.first_requests
            found += map(self._request_at, units.physical_offsets())
            self.units_dispatched()
        self._undispatched[:0] = found

    def write(self) -> None:
        """Write the records to the file. Afterwards they survive a process kill."""
        if self.unwritten:
            began_s, file = monotonic(), self.file
            assert file is not None, "unwritten records imply a file"
            file.write(b"".join(self.unwritten))
            self.unwritten.clear()
            self.write_beyond = self.end_offset + _UNWRITTEN_MAX
            wait_s = monotonic() - began_s
            if wait_s > self.longest_wait_s or wait_s > self._busy_after_s:
                self.note_wait(began_s, wait_s)

    def note_wait(self, began_s: float, wait_s: float) -> None:
        """Note that requests have waited from `began_s` on for `wait_s`, for a write or for space."""
        self.longest_wait_s = max(self.longest_wait_s, wait_s)
        if wait_s > self._busy_after_s:
            self.busy_until_s = began_s + wait_s + _BUSY_FOR_S

    @property
    def undispatched_bytes(self) -> int:
        """Number of bytes of the log from the first record on that is not in its queue yet."""
        undispatched = self.undispatched
        return self.end_offset - undispatched[0].physical_offset if undispatched else 0

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
