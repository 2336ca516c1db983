"""MessageStore: the broker's interface to the store: load, put, dispatch, get, query and shutdown.

Methods must be called in the event loop's thread, unless noted otherwise. The event `flushed` happens in the flush thread.
"""

import sys
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, suppress
from typing import Final

from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import NO_ROOM, Disk, StoreError, no_room
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import (
    SCHEDULE_TOPIC,
    Arrival,
    DispatchRequest,
    QueryResult,
    Watched,
)
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.record import store_timestamp_of
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flush import Flushed, FlushService, patiently
from pocketmq.store.parts import StoreParts
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.dispatcher import Dispatcher
from pocketmq.store.queue.queue_checksums import RENEWED_MAX, take
from pocketmq.store.queue.queue_reader import QueueReader
from pocketmq.store.queue.time_search import Boundary, offset_at_boundary
from pocketmq.store.recovery import abort_mark, clean_stop
from pocketmq.store.recovery.clean_stop import CleanStop
from pocketmq.store.recovery.recovery import Progress, Recovery
from pocketmq.store.recovery.recovery_report import RecoveryReport, StartKind, loss_window
from pocketmq.store.recovery.recovery_start import complete_log_files, drop_cut_index_files
from pocketmq.store.upkeep.checkpointing import CheckpointService
from pocketmq.store.upkeep.retention import Retention

_DISPATCH_AGAIN_S: Final = 0.25


class MessageStore:
    """A message store, closed until `load` is called."""

    def __init__(self, config: MessageStoreConfig, disk: Disk, clock: Clock) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.delay_levels = DelayLevels(config.message_delay_level)
        self.open_files = OpenFiles(config.mapped_file_open_max)
        self.commit_log = CommitLog(config, disk, clock, self.delay_levels.tags_code, self.open_files)
        ext = ConsumeQueueExtStore(
            disk,
            config.store_path("consumequeue_ext"),
            config.mapped_file_size_consume_queue_ext,
            writes=config.enable_consume_queue_ext,
            open_files=self.open_files,
        )
        self.queues = ConsumeQueueStore(
            disk, config.store_path("consumequeue"), config.mapped_file_size_consume_queue, ext, self.open_files
        )
        self._lock: ExitStack | None = None
        # When a failed dispatch is retried; 0: none is pending.
        self._dispatch_again_at = 0.0
        # Physical offsets of the last dispatched record: (begin, end).
        self._last_dispatched = (-1, 0)
        self._known = CleanStop()
        self._has_old_units = False  # retention may have deleted records that waited to be dispatched
        self._next_sums = 0  # index of the queue with which the next renewal of checksums begins
        self.flushed: Flushed = Event()
        """Happens in the flush thread, with the durable physical offset, or with the error of a failed sync."""
        self.watched: Watched | None = None
        """Queues and topics whose arrivals `dispatch` returns if the compiled lane served the messages; None: all."""
        self.units_added: Event[[int, int]] = Event()
        """Happens when units of the compiled lane came into queues, with their number and the bytes of their records."""
        self.reader = QueueReader(config, self.queues, self.commit_log, self.delay_levels.tags_code)

    # --- lifecycle -------------------------------------------------------------------------------------------------------

    def load(self, progress: Progress | None = None, *, rebuild: bool = False) -> RecoveryReport:
        """Lock the store, open its files and recover them; `rebuild` rebuilds all queues and the index from the log.

        `progress` is called with the activity, bytes done, and the maximum of bytes to do. Raises StoreError if another
        broker uses the store, or if the store does not fit the configuration, and OSError.
        """
        config, disk = self.config, self.disk
        disk.make_dirs(config.store_path_root_dir)
        try:
            self._lock = disk.lock(config.store_path("lock"))
        except BlockingIOError:
            raise StoreError(
                f"{config.store_path_root_dir} is in use by another broker (its file `lock` is locked); "
                "stop that one, or use another folder (storePathRootDir; for `pocketmq up`: --store)"
            ) from None
        try:
            return self._load(progress, rebuild)
        except BaseException:
            self._lock.close()
            self._lock = None
            raise

    def _load(self, progress: Progress | None, rebuild: bool) -> RecoveryReport:
        config, disk, root = self.config, self.disk, self.config.store_path_root_dir
        self._abort_path = config.store_path("abort")
        kind, abort_problem = self._start_kind()
        self.checkpoint = StoreCheckpoint(disk, config.store_path("checkpoint"))
        self.index: IndexService | None = None
        found, clean_stop_problem = clean_stop.load(disk, root)
        known = found or CleanStop()
        mended = complete_log_files(self.commit_log.mapped_files, known.log_file_size)
        if kind is StartKind.CLEAN and found is not None and not found.clean:
            abort_problem = (
                f"there is no file `abort`, but {clean_stop.FILE_NAME} does not record a clean stop: either another broker "
                "has used the store since and was stopped, or the file was deleted"
            )
        self.commit_log.mapped_files.load()
        self.queues.load(clean=kind is StartKind.CLEAN)
        if config.message_index_enable:
            self.index = IndexService(
                disk,
                config.store_path("index"),
                self.clock,
                self.checkpoint,
                slot_count=config.max_hash_slot_num,
                index_count_max=config.max_index_num,
            )
            mended += drop_cut_index_files(disk, self.index, known.index_file_size)
            self.index.load(clean=kind is StartKind.CLEAN)
        if kind is not StartKind.CRASHED:
            # If this start is killed, the next one must recover, too. The mark of a crash is kept until recovery has
            # finished: otherwise the next start would treat the crash as a kill.
            self._mark_abort()
        self._parts = StoreParts(
            config, disk, self.clock, self.delay_levels, self.commit_log, self.queues, self.index, self.checkpoint
        )
        recovery = Recovery(self._parts, known, progress)
        report = recovery.run(kind, rebuild=rebuild)
        if self.index is not None:
            self.index.release_memory()
        problems = (self.checkpoint.problem, clean_stop_problem, abort_problem)
        if self.commit_log.mapped_files.files:
            mended += [problem for problem in problems if problem]
        report.repairs[:0] = mended
        report.loss_window = loss_window(config)
        self._known = recovery.known
        self._sum_check = recovery.sum_check
        self._last_dispatched = (recovery.known.last_record, recovery.known.log_end)
        self.reader.written_from = self.commit_log.max_offset
        self._make_services()
        # The files change from now on, so a start that finds this mark must recover.
        self._mark_abort()
        return report

    def _start_kind(self) -> tuple[StartKind, str]:
        """Return how the last broker ended, and what is wrong with its mark."""
        if not self.disk.exists(self._abort_path):
            return StartKind.CLEAN, ""
        boot_mark = self.disk.boot_mark(self.config.store_path_root_dir)
        return abort_mark.decode(self.disk.read_file(self._abort_path), boot_mark)

    def _mark_abort(self) -> None:
        root = self.config.store_path_root_dir
        self.disk.write_file(self._abort_path, abort_mark.encode(self.disk.boot_mark(root)))
        self.disk.sync_dir(root)

    def _make_services(self) -> None:
        self._dispatcher = Dispatcher(self.queues, self.index, self.units_added)
        self._bulk = self._parts.bulk_dispatcher()
        self._bulk.arrivals = []
        self._retention = Retention(self._parts)
        self.flush_service = FlushService(self.config, self.clock, self.commit_log, self.checkpoint, self.flushed)
        self.flush_service.flushed_offset = self.commit_log.max_offset
        self.checkpoint_service = CheckpointService(self._parts, self._retention, self.open_files, self.flush_service.fail)
        self.checkpoint_service.dispatched_timestamp_ms = self.commit_log.last_store_timestamp_ms
        self.checkpoint_service.take_ends = self._take_ends
        self.checkpoint_service.check_sums = self._sum_check.go_on_in_background

    def start(self) -> None:
        """Start the flush thread and the checkpoint thread."""
        self.flush_service.start()
        self.checkpoint_service.start()

    def shutdown(self) -> None:
        """Flush everything and close. The store counts as cleanly stopped unless a sync failed.

        Raises OSError when the last sync fails; the abort mark stays then, and the next start recovers.
        """
        if self._lock is None:
            return
        try:
            self.flush_service.stop()
            self.checkpoint_service.stop()
            self._dispatch_again_at = 0.0
            self.dispatch()
            if self.flush_service.error is not None:
                return  # it is unknown what is on the disk; the next start recovers
            patiently(self.flush_service.flush_log)
            if self.commit_log.tail.undispatched:
                return  # no space for queues and index; the next start completes them
            patiently(self.flush_queues)
            self._retention.delete_all_removed()
            ends = self._take_ends(sys.maxsize)
            ends.clean = True
            if self.index is not None:
                self.index.close()
            self.checkpoint.flush()
            ends.save(self.disk, self.config.store_path_root_dir)
            self.disk.delete(self._abort_path)
            self.disk.sync_dir(self.config.store_path_root_dir)
            self.queues.close()
            self.checkpoint.close()
            self.commit_log.close()
        except OSError as error:
            self.flush_service.fail(error)
            raise
        finally:
            self._lock.close()
            self._lock = None

    def _take_ends(self, renewed_max: int = RENEWED_MAX) -> CleanStop:
        """Return the present ends of queues, index and log, to be saved once they are synced. Thread-safe.

        The checksums of at most `renewed_max` queues are renewed, of others than the last time.
        """
        last_record, end = self._last_dispatched
        if end <= self.flush_service.flushed_offset:
            self._known.last_record, self._known.log_end = last_record, end
        sums, self._next_sums = take(list(self.queues), self._next_sums, renewed_max)
        return self._known.renewed(self._parts, sums, self._sum_check.damaged)

    # --- putting ----------------------------------------------------------------------------------------------------

    def dispatch_window(self, window: RecordWindow) -> bool:
        """Dispatch the records of `window`, which follow those dispatched before. The next `dispatch` returns the arrivals.

        Return False if they must be dispatched one by one: the disk has no room, or a queue lacks records before them.
        """
        log, bulk = self.commit_log, self._bulk
        if self.queues.ext.writes:
            return False
        if log.tail.undispatched:
            bulk.arrivals = self.dispatch() + (bulk.arrivals or [])
            if log.tail.undispatched:
                return False
        try:
            bulk.dispatch(window)
        except OSError:
            return False  # the next attempt reports it
        if bulk.behind:
            bulk.behind.clear()
            bulk.beyond.clear()
            return False
        last = int(window.physical_offsets[-1])
        log.last_store_timestamp_ms = int(window.fixed("store_timestamp_ms")[-1])
        self._dispatched(last, int(window.sizes[-1]), log.last_store_timestamp_ms)
        return True

    def dispatch(self) -> list[Arrival]:
        """Write the records put since the last call and dispatch them to queues and index. Return the queues that grew.

        If that fails, for example on a full disk, the records are already in the log. A later call tries again, a few times
        per second, and until it succeeds no further messages are accepted.
        """
        tail, arrivals = self.commit_log.tail, list[Arrival]()
        while not self._dispatch_again_at and (units := tail.units) is not None:
            tail.write()
            if tail.first_requests:
                arrivals += self._dispatch_requests(tail.first_requests)
            if tail.first_requests or (found := self._dispatcher.dispatch_units(units, self.watched)) is None:
                break  # all are dispatched as requests
            assert units.last is not None, "the lane has units"
            self._dispatched(*units.last)
            tail.units_dispatched()
            arrivals += found
        arrivals += self._dispatch_requests(tail.undispatched)
        return self._take_bulk_arrivals() + arrivals

    def _dispatch_requests(self, requests: list[DispatchRequest]) -> list[Arrival]:
        log, tail = self.commit_log, self.commit_log.tail
        if not requests:
            return []
        if tail.unwritten:
            tail.write()
        if self._dispatch_again_at and self.clock.monotonic() < self._dispatch_again_at:
            return []
        try:
            arrivals = self._dispatcher.dispatch(requests)
        except OSError as error:
            self._dispatch_again_at = self.clock.monotonic() + _DISPATCH_AGAIN_S
            reason = f"queues and index cannot be written: {error}"
            if error.errno in NO_ROOM:
                reason = no_room(self.disk, self.config.store_path("consumequeue"), "queues and index", error)
            log.refuse("dispatch", reason)
            return []
        if self._dispatch_again_at:
            self._dispatch_again_at = 0.0
            log.refuse("dispatch", None)
            self._has_old_units = True
        if self._has_old_units:
            with suppress(OSError):  # tried again with the next records
                self.queues.correct_min_offsets(log.min_offset)
                self._has_old_units = False
        newest = requests[-1]
        tail.requests_dispatched()
        self._dispatched(newest.physical_offset, newest.size, newest.store_timestamp_ms)
        return arrivals

    def _dispatched(self, physical_offset: int, size: int, store_timestamp_ms: int) -> None:
        """Note the newest record that is in queues and index."""
        self.checkpoint_service.dispatched_timestamp_ms = store_timestamp_ms
        self._last_dispatched = (physical_offset, physical_offset + size)

    def _take_bulk_arrivals(self) -> list[Arrival]:
        arrivals, self._bulk.arrivals = self._bulk.arrivals or [], []
        return arrivals

    # --- flushing ---------------------------------------------------------------------------------------------------

    @property
    def dispatch_behind_bytes(self) -> int:
        """Number of bytes of the log from the first record on that is not in its queue yet."""
        return self.commit_log.tail.undispatched_bytes

    def request_sync(self, end_offset: int) -> None:
        """Request a sync of everything before `end_offset`; one call per turn is enough."""
        self.commit_log.tail.write()
        self.flush_service.request_sync(end_offset)

    def flush_queues(self) -> None:
        """Sync log, queues, index and checkpoint now, in the caller's thread. Raises OSError."""
        self.commit_log.tail.write()
        self.flush_service.flush_log()
        self.checkpoint_service.flush_queues(thorough=True)

    @property
    def flushed_offset(self) -> int:
        """Physical offset before which the log is durable."""
        return self.flush_service.flushed_offset

    # --- offsets and times ------------------------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.max_offset

    @property
    def last_record_offset(self) -> int:
        """Physical offset of the newest record in queues and index; -1 without one."""
        return self._last_dispatched[0]

    @property
    def writeable(self) -> bool:
        return self.commit_log.refusal is None

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None if it has never had a message."""
        return self.queues.get(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first readable queue offset; -1 for an unknown queue, as in 4.9.4."""
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next queue offset; 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of a queue's unit, or None if the queue has no such unit."""
        queue = self.queues.get(topic, queue_id)
        return queue.unit_at(queue_offset) if queue is not None else None

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a store time (`time_search.offset_at_boundary`); 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else offset_at_boundary(queue, timestamp_ms, boundary, self._store_timestamp)

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a queue's message in ms, or -1."""
        unit = self.unit_at(topic, queue_id, queue_offset)
        return self._store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int:
        """Return the store time in ms of the first readable message, or -1."""
        return self.store_timestamp_at(topic, queue_id, self.min_offset(topic, queue_id))

    def _store_timestamp(self, physical_offset: int, size: int) -> int:
        view = self.commit_log.mapped_files.view(physical_offset, size)
        return store_timestamp_of(view) if view is not None else -1

    # --- reading ----------------------------------------------------------------------------------------------------

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return the record that begins at `physical_offset`, or None."""
        return self.commit_log.record_at(physical_offset)

    def query_message(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return the newest records with `key` stored in [begin_ms, end_ms], at most `maxMsgsNumBatch`."""
        if self.index is None:
            return QueryResult([], 0, 0)
        found = self.index.find(topic, key, min(count_max, self.config.max_msgs_num_batch), begin_ms, end_ms)
        records = (self.commit_log.record_at(physical_offset) for physical_offset in found)
        return QueryResult([record for record in records if record is not None], *self.index.last_update)

    # --- maintenance ------------------------------------------------------------------------------------------------

    def clean(self, manual: bool = False) -> int:
        """Remove expired files and check whether the disk is full. Call it every `cleanResourceInterval`."""
        self.commit_log.tail.write()
        return self._retention.clean(manual)

    def clean_in_slices(self, run: Callable[[Iterator[None]], object]) -> None:
        """Let `run` do in steps what `clean` does for each queue."""
        self._retention.run = run

    def ask_before_removing(self, may_remove: Callable[[int], bool]) -> None:
        """Keep each CommitLog file until `may_remove(its end offset)` returns True; each round of retention calls it."""
        self._retention.may_remove = may_remove

    def drop_topics(self, keep: set[str]) -> list[str]:
        """Delete the queues of all topics except `keep`; their queue offsets restart at 0. Raises OSError.

        Queues of the schedule topic and light message queues, which are in no topic table, are kept.
        """
        self.commit_log.tail.write()
        log = self.commit_log
        waiting = {(one.topic, one.queue_id) for one in log.tail.undispatched}
        topics = {topic for topic, _ in self.queues.queues} | {key[0] for key in waiting if self.queues.can_have(*key)}
        kept = keep | {SCHEDULE_TOPIC} | {topic for topic in topics if topic.startswith(LMQ_PREFIX)}
        if topics - kept:
            self.mark_dropped(topics - kept, log.max_offset)
        for topic in {topic for topic, _ in log.tail.queue_offsets} - kept - topics:
            log.tail.restart_offsets(topic, self.queues.queues)
        return self._drop(topics - kept)

    @property
    def dropped_topics(self) -> dict[str, int]:
        """Deleted topic -> physical offset before which its records belong to the deleted one."""
        return self._known.dropped

    def mark_dropped(self, topics: Set[str], end_offset: int) -> None:
        """Prevent recovery from restoring queues of `topics` from records before `end_offset`. Thread-safe, blocking.

        On a full disk this is recorded in memory only.
        """
        with suppress(OSError):
            self._known.drop_topics(topics, end_offset, self.disk, self.config.store_path_root_dir)

    def dropping(self, topic: str) -> Iterator[None]:
        """Delete the queues of a topic that is marked as dropped, one a step. Raises OSError."""
        self.commit_log.tail.write()
        while keys := [key for key in self.queues.queues if key[0] == topic]:
            for key in keys:
                self.queues.drop_queue(*key)
                self.commit_log.tail.queue_offsets.pop(key, None)
                self.commit_log.tail.keep_out_of_queues({key})
                yield
        self._drop({topic})

    def _drop(self, topics: Set[str]) -> list[str]:
        tail = self.commit_log.tail
        try:
            for topic in sorted(topics):
                self.queues.drop_topic(topic)
        finally:
            # Also if a file could not be deleted: a deleted queue restarts at 0.
            dropped = topics - {topic for topic, _ in self.queues.queues}
            for topic in topics:
                tail.restart_offsets(topic, self.queues.queues)
            tail.keep_out_of_queues({(one.topic, one.queue_id) for one in tail.undispatched if one.topic in dropped})
        return sorted(dropped)
