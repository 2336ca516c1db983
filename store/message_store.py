"""The store as the broker sees it: put, dispatch, get, query; load at the start, shutdown at the end.

All methods belong to the loop's thread. `on_flushed` alone is called from the flush thread.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

from runtime.clock import Clock
from store.commit_log import CommitLog
from store.config import MessageStoreConfig
from store.consume_queue import ConsumeQueue
from store.consume_queue_store import ConsumeQueueStore
from store.delay_level import DelayLevels
from store.disk import Disk, DiskLock, StoreError
from store.dispatcher import Dispatcher
from store.flush import FlushService, OnFlushed
from store.index_service import IndexService
from store.layout import CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_STRUCT, unit_run_struct
from store.mapped_file_queue import MappedFileQueue
from store.message import (
    SCHEDULE_TOPIC,
    Arrival,
    GetResult,
    GetStatus,
    Message,
    PutResult,
    QueryResult,
)
from store.record import store_timestamp_of
from store.recovery import Recovery, RecoveryReport
from store.retention import Retention
from store.store_checkpoint import StoreCheckpoint

# Units looked at by one pull, at least (Java: 16,000 bytes of queue).
# Records apart from each other are copied into one buffer from this count on, if they are no larger than this on average.
_COPY_COUNT_MIN: Final = 6
_COPY_SIZE_MAX: Final = 8192
_UNITS_SCANNED = 16_000 // CONSUME_QUEUE_UNIT_SIZE


class MessageStore:
    """Made closed; `load` opens it."""

    def __init__(self, config: MessageStoreConfig, disk: Disk, clock: Clock) -> None:
        if "," in config.commit_log_directory:
            raise StoreError(f"storePathCommitLog={config.commit_log_directory}: several paths are not supported")
        self.config = config
        self.disk = disk
        self.clock = clock
        self.delay_levels = DelayLevels(config.message_delay_level)
        self.commit_log = CommitLog(config, disk, clock, self.delay_levels.tags_code)
        self.queues = ConsumeQueueStore(disk, config.store_path("consumequeue"), config.mapped_file_size_consume_queue)
        self._lock: DiskLock | None = None
        self._on_flushed: OnFlushed = lambda flushed_offset, error: None
        self._in_memory_bytes = _memory_size() * config.access_message_in_memory_max_ratio // 100

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self) -> RecoveryReport:
        """Lock the store, open its files and recover them.

        Raises StoreError when another broker has it, or when it does not fit the configuration, and OSError.
        """
        config, disk = self.config, self.disk
        disk.make_dirs(config.store_path_root_dir)
        try:
            self._lock = disk.lock(config.store_path("lock"))
        except BlockingIOError:
            raise StoreError(
                f"{config.store_path_root_dir} is in use by another broker (its file `lock` is locked); "
                "stop that one, or set another storePathRootDir"
            ) from None
        try:
            return self._load()
        except BaseException:
            self._lock.close()
            self._lock = None
            raise

    def _load(self) -> RecoveryReport:
        config, disk = self.config, self.disk
        self._abort_path = config.store_path("abort")
        clean = not disk.exists(self._abort_path)
        self.checkpoint = StoreCheckpoint(disk, config.store_path("checkpoint"))
        self.index: IndexService | None = None
        self.commit_log.mapped_files.load()
        self.queues.load(clean=clean)
        if config.message_index_enable:
            self.index = IndexService(
                disk,
                config.store_path("index"),
                self.clock,
                self.checkpoint,
                slot_count=config.max_hash_slot_num,
                index_count_max=config.max_index_num,
            )
            self.index.load(clean=clean)
        recovery = Recovery(
            self.commit_log,
            self.queues,
            self.index,
            self.checkpoint,
            self.delay_levels.tags_code,
            config.check_crc_on_recover,
        )
        report = recovery.run(clean)
        self._dispatcher = Dispatcher(self.queues, self.index)
        self._retention = Retention(config, disk, self.clock, self.commit_log, self.queues, self.index)
        self.flush_service = FlushService(config, self.clock, self.commit_log, self.queues, self.index, self.checkpoint)
        self.flush_service.on_flushed = self._on_flushed
        self.flush_service.flushed_offset = self.commit_log.max_offset
        self.flush_service.dispatched_timestamp_ms = self.commit_log.last_store_timestamp_ms
        # From here on the files change: whoever finds this mark must recover.
        disk.write_file(self._abort_path, str(os.getpid()).encode())
        disk.sync_dir(config.store_path_root_dir)
        return report

    def start(self) -> None:
        """Start the flush thread."""
        self.flush_service.start()

    def shutdown(self) -> None:
        """Flush everything and close. The store counts as cleanly stopped unless a sync failed.

        Raises OSError when the last sync fails; the abort mark stays then, and the next start recovers.
        """
        if self._lock is None:
            return
        try:
            self.flush_service.stop()
            self.dispatch()
            if self.flush_service.error is not None:
                return  # nothing more can be said about what is on the disk: the next start finds out
            self.flush_service.flush_queues(thorough=True)
            if self.index is not None:
                self.index.close()
            self.checkpoint.flush()
            self.disk.delete(self._abort_path)
            self.disk.sync_dir(self.config.store_path_root_dir)
            self.queues.close()
            self.checkpoint.close()
            self.commit_log.close()
        finally:
            self._lock.close()
            self._lock = None

    # --- putting ----------------------------------------------------------------------------------------------------

    def put_message(self, message: Message) -> PutResult:
        """Append one message. A refusal is a status and a reason, never an exception."""
        return self.commit_log.put(message)

    def put_messages(self, messages: Sequence[Message]) -> PutResult:
        """Append a batch of one topic and queue as consecutive records: all, or none of them."""
        return self.commit_log.put_batch(messages)

    def dispatch(self) -> list[Arrival]:
        """Carry what was put since the last call into queues and index; the queues that grew."""
        requests = self.commit_log.undispatched
        if not requests:
            return []
        self.commit_log.undispatched = []
        arrivals = self._dispatcher.dispatch(requests)
        self.flush_service.dispatched_timestamp_ms = requests[-1].store_timestamp_ms
        return arrivals

    # --- flushing ---------------------------------------------------------------------------------------------------

    @property
    def on_flushed(self) -> OnFlushed:
        """Called from the flush thread: everything before this physical offset is durable, or an error and never will be."""
        return self._on_flushed

    @on_flushed.setter
    def on_flushed(self, on_flushed: OnFlushed) -> None:
        self._on_flushed = on_flushed
        if self._lock is not None:
            self.flush_service.on_flushed = on_flushed

    def request_sync(self, end_offset: int) -> None:
        """Ask for a sync of everything before `end_offset`; one call a turn is enough."""
        self.flush_service.request_sync(end_offset)

    def flush_queues(self) -> None:
        """Sync queues and checkpoint now, in the caller's thread. Raises OSError."""
        self.flush_service.flush_queues(thorough=True)

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is durable."""
        return self.flush_service.flushed_offset

    # --- where things are -------------------------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.max_offset

    @property
    def writeable(self) -> bool:
        return self.commit_log.refusal is None

    def is_in_memory(self, physical_offset: int) -> bool:
        """Whether a record lies so near the log's end that it is read from memory (accessMessageInMemoryMaxRatio)."""
        return self.commit_log.max_offset - physical_offset <= self._in_memory_bytes

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nothing was ever put into it."""
        return self.queues.get(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset that can be read; -1 for an unknown queue, as in 4.9.4."""
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The next queue offset; 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset by 4.9.4's rule: an exact hit, else the nearer neighbour; 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return queue.offset_by_time(timestamp_ms, self._store_timestamp) if queue is not None else 0

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message in ms, -1 when there is none."""
        queue = self.queues.get(topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue is not None else None
        return self._store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int:
        """Store time of the first message that can be read, -1 when there is none."""
        queue = self.queues.get(topic, queue_id)
        return self.store_timestamp_at(topic, queue_id, queue.min_offset) if queue is not None else -1

    def _store_timestamp(self, physical_offset: int, size: int) -> int:
        view = self.commit_log.mapped_files.view(physical_offset, size)
        return store_timestamp_of(view) if view is not None else -1

    # --- getting ----------------------------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        matches: Callable[[int], bool] | None = None,
    ) -> GetResult:
        """Up to `count_max` records of a queue from `queue_offset` on; `matches` says by tags code which are wanted."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if not min_offset <= queue_offset < max_offset:
            return _out_of_range(queue_offset, min_offset, max_offset)
        count_max = max(count_max, 1)
        if matches is None:
            units = queue.units(queue_offset, min(count_max, self.config.max_transfer_count_on_message_in_memory))
            result = self._get_all(units, queue_offset, min_offset, max_offset) if units else None
            if result is not None:
                return result
        units = queue.units(queue_offset, max(_UNITS_SCANNED, count_max))
        if not units:
            # A hole in the row of files: the reader goes on behind it.
            per_file = self.config.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT_SIZE
            next_offset = queue_offset - queue_offset % per_file + per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
        return self._get_matching(units, queue_offset, min_offset, max_offset, count_max, matches)

    def _get_all(self, units: memoryview, queue_offset: int, min_offset: int, max_offset: int) -> GetResult | None:
        """The records of all `units`, if they are within the limits; None leaves them to `_get_matching`.

        The fast twin of `_get_matching` for the usual case: 32 neighbours cost 5 us here and 14 there; 32 records that are
        none cost 13 us, 5 of them for making the views.
        """
        log_files = self.commit_log.mapped_files
        count = len(units) // CONSUME_QUEUE_UNIT_SIZE
        values = unit_run_struct(count).unpack(units)
        offsets, sizes = values[::3], values[1::3]
        size, start = sum(sizes), offsets[0]
        if (
            size > self.config.max_transfer_bytes_on_message_in_memory
            or start < log_files.min_offset
            or start < self.commit_log.max_offset - self._in_memory_bytes
        ):
            return None
        last = offsets[-1]
        if last + sizes[-1] - start == size:
            # Records never overlap, so these lie side by side, in one file: each file ends with a mark of 8 bytes.
            views = [_view(log_files, start, start + size)]
        else:
            views = _gathered(log_files, offsets, sizes, size)
        last_view = views[-1]
        return GetResult(
            GetStatus.FOUND,
            queue_offset + count,
            min_offset,
            max_offset,
            views,
            count,
            size,
            last,
            store_timestamp_of(last_view, len(last_view) - sizes[-1]),
        )

    def _get_matching(
        self,
        units: memoryview,
        queue_offset: int,
        min_offset: int,
        max_offset: int,
        count_max: int,
        matches: Callable[[int], bool] | None,
    ) -> GetResult:
        """Walk over `units` and gather the records that match, as many as the limits allow but at least one."""
        config, log_files = self.config, self.commit_log.mapped_files
        in_memory_from = self.commit_log.max_offset - self._in_memory_bytes
        bytes_max = config.max_transfer_bytes_on_message_in_memory
        count_max = min(count_max, config.max_transfer_count_on_message_in_memory)
        min_physical_offset = log_files.min_offset
        offsets: list[int] = []
        sizes: list[int] = []
        scanned = total = 0
        removed = False
        for physical_offset, size, code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            if len(offsets) >= count_max:
                break
            if matches is None or matches(code):
                if physical_offset < min_physical_offset:
                    removed = True
                    scanned += 1
                    continue
                if physical_offset < in_memory_from:
                    bytes_max = config.max_transfer_bytes_on_message_in_disk
                    count_max = min(count_max, config.max_transfer_count_on_message_in_disk)
                if offsets and (total + size > bytes_max or len(offsets) >= count_max):
                    break
                offsets.append(physical_offset)
                sizes.append(size)
                total += size
            scanned += 1
        if not offsets:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, queue_offset + scanned, min_offset, max_offset)
        views = _gathered(log_files, offsets, sizes, total)
        last_view = views[-1]
        return GetResult(
            GetStatus.FOUND,
            queue_offset + scanned,
            min_offset,
            max_offset,
            views,
            len(offsets),
            total,
            offsets[-1],
            store_timestamp_of(last_view, len(last_view) - sizes[-1]),
        )

    def message_at(self, physical_offset: int) -> memoryview | None:
        """The whole record that begins at `physical_offset`, or None."""
        return self.commit_log.record_at(physical_offset)

    def query_message(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Records indexed under `key` and stored in [begin_ms, end_ms]; at most `maxMsgsNumBatch`, the newest of them."""
        if self.index is None:
            return QueryResult([], 0, 0)
        found = self.index.find(topic, key, min(count_max, self.config.max_msgs_num_batch), begin_ms, end_ms)
        records = (self.commit_log.record_at(physical_offset) for physical_offset in found)
        return QueryResult([record for record in records if record is not None], *self.index.last_update)

    # --- keeping house ----------------------------------------------------------------------------------------------

    def clean(self, manual: bool = False) -> int:
        """Delete what is expired and see whether the disk is full; to be called every `cleanResourceInterval`."""
        deleted = self._retention.clean(manual)
        if self.flush_service.error is None:
            self.commit_log.refusal = self._retention.disk_full
        return deleted

    def drop_topics(self, keep: set[str]) -> list[str]:
        """Delete the queues of all topics but `keep` (and the schedule topic's); their queue offsets begin at 0 again."""
        log = self.commit_log
        dropped = self.queues.drop_topics(keep | {SCHEDULE_TOPIC})
        for key in [key for key in log.queue_offsets if key[0] in dropped]:
            del log.queue_offsets[key]
        # What was put in this very turn would go into the queue of the topic's next life.
        log.undispatched = [request for request in log.undispatched if request.topic not in dropped]
        return dropped


def _view(log_files: MappedFileQueue, start: int, end: int) -> memoryview:
    view = log_files.view(start, end - start)
    assert view is not None, f"records {start}..{end} are within the log"
    return view


def _gathered(log_files: MappedFileQueue, offsets: Sequence[int], sizes: Sequence[int], size: int) -> list[memoryview]:
    """Records that do not all lie side by side: views, or one copy where many small views would cost a socket more.

    Measured for 32 records of 1.2 KB that lie apart: 6 us to copy them, and 5 us less to send one buffer than 32.
    """
    count = len(offsets)
    if count < _COPY_COUNT_MIN or size > count * _COPY_SIZE_MAX:
        return _views(log_files, offsets, sizes)
    file = log_files.file_at(offsets[0])
    assert file is not None, f"record {offsets[0]} is within the log"
    start, view = file.start_offset, file.view
    if offsets[-1] >= start + file.size:
        return [memoryview(b"".join(_views(log_files, offsets, sizes)))]
    return [memoryview(b"".join([view[o - start : o - start + n] for o, n in zip(offsets, sizes, strict=True)]))]


def _views(log_files: MappedFileQueue, offsets: Sequence[int], sizes: Sequence[int]) -> list[memoryview]:
    """Views of records, neighbours merged. The offsets ascend."""
    views: list[memoryview] = []
    start, end = offsets[0], offsets[0] + sizes[0]
    file_start = file_end = -1
    view = memoryview(b"")
    for physical_offset, size in zip((*offsets[1:], -1), (*sizes[1:], 0), strict=True):
        if physical_offset == end:
            end += size
            continue
        if start >= file_end:
            file = log_files.file_at(start)
            assert file is not None, f"record {start} is within the log"
            view, file_start, file_end = file.view, file.start_offset, file.start_offset + file.size
        views.append(view[start - file_start : end - file_start])
        start, end = physical_offset, physical_offset + size
    return views


def _out_of_range(queue_offset: int, min_offset: int, max_offset: int) -> GetResult:
    if max_offset == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
    if queue_offset < min_offset:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
    if queue_offset == max_offset:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, min_offset, max_offset)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)


def _memory_size() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
