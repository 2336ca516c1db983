"""Recovery: opens a store, finds the end of its log, and completes queues and index.

The log is authoritative; queues and index are derived from it and can be rebuilt. Recovery

1. determines the physical offset from which the log must be read (`recovery_start`): after a clean stop of PocketMQ nothing;
   after a clean stop of another broker the last file; after a crash or kill everything that neither the checkpoint nor the
   last recorded state covers;
2. drops that part from queues and index, where units may be torn, and rebuilds it;
3. reads the records up to the first invalid one. If an intact record after it had been synced, the bytes between are
   quarantined (`quarantine`) and reading continues. Otherwise the log ends there; the rest is saved and zeroed, because a
   left-over record could look valid after the next crash;
4. checks whether queues lack records before the start position, and rebuilds those queues in one pass over the log.

Everything that was read counts as durable afterwards and is therefore synced, every GiB: the page cache survives a kill, but
no power cut. The checkpoint advances with it, so that a recovery that is killed continues near where it stopped.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.store.format.layout import RECORD_SIZE_MIN
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.log import quarantine
from pocketmq.store.offline.log_walk import LogWalk, valid_behind
from pocketmq.store.parts import StoreParts
from pocketmq.store.queue.queue_checksums import SumCheck, take
from pocketmq.store.recovery import recovery_start
from pocketmq.store.recovery.clean_stop import CleanStop, QueueEnd
from pocketmq.store.recovery.lost_records import LostRecords, numbered
from pocketmq.store.recovery.recovery_report import RecoveryReport, StartKind

# (activity, bytes done, maximum of bytes to do)
Progress = Callable[[str, int, int], None]

# A checkpoint may be ahead of a log that lost its end, but not by this much.
_FUTURE_MS: Final = 3_600_000


class Recovery:
    """One recovery of a store whose files are loaded. Raises StoreError and OSError."""

    # Bytes of the log that are read between two updates of the checkpoint.
    checkpoint_interval = 1 << 30

    def __init__(self, store: StoreParts, known: CleanStop | None = None, progress: Progress | None = None) -> None:
        """`known` is the state recorded by the last stop or recovery (`clean_stop.load`), and is updated by this one."""
        self._store = store
        self._files = store.commit_log.mapped_files
        self._check_crc = store.config.check_crc_on_recover
        self.known = known or CleanStop()
        self._progress = progress or (lambda what, done, total: None)
        # Position and time of the newest record read.
        self._last_record = -1
        self._last_store_timestamp_ms = 0
        # Records of the last window.
        self._last_window: list[int] = []
        self._lost_records = LostRecords(store.queues, store.delay_levels)
        # Next queue offset at the log's beginning, for queues that were deleted to be rebuilt from there.
        self._past_ends: dict[QueueKey, int] = {}
        # Queues that must be rebuilt from the whole log.
        self._suspects: set[QueueKey] = set()
        self._is_unchanged = False
        # End offset of the newest record that was in a queue. `_complete_to` (see `record.check_record`) remains 0 after a
        # kill of PocketMQ, which stores no properties that end in a zero byte.
        self._queues_end = self._complete_to = 0

    def run(self, kind: StartKind, *, rebuild: bool = False) -> RecoveryReport:
        """Recover; afterwards the commit log is ready to append. `rebuild` rebuilds all queues and the index."""
        # Deletions of topics by another broker are unknown.
        known = CleanStop() if kind is StartKind.CLEAN and not self.known.clean else self.known
        began = self._store.clock.monotonic()
        report = self._report = RecoveryReport(kind)
        self._queues_end = self._store.queues.max_physical_offset
        if kind is StartKind.CRASHED:
            report.synced_timestamp_ms = self._store.checkpoint.physic_msg_timestamp_ms
            self._complete_to = self._queues_end
        self._suspects |= set(self.known.rebuilding)
        self._drop_broken()
        self._check_sums()
        report.repairs += recovery_start.deleted_since(self._files, self.known)
        self._drop_deleted_files()
        if not self._files.files:
            self._begin_empty()
        elif rebuild:
            self._start_over("requested")
        elif self._ended_cleanly():
            self._is_unchanged = True
        else:
            self._recover()
        self._make_again()
        self._keep_counting(known)
        self._store.commit_log.recovered(self._last_store_timestamp_ms)
        self._store.queues.correct_min_offsets(self._store.commit_log.min_offset)
        self._finish()
        for queue in self._store.queues:
            self._store.commit_log.tail.queue_offsets[queue.topic, queue.queue_id] = queue.max_offset
        report.duration_ms = int((self._store.clock.monotonic() - began) * 1000)
        return report

    def _drop_deleted_files(self) -> None:
        """Delete log files that had been deleted before: a power cut can restore their names without unsynced contents."""
        known, files = self.known, self._files
        if not files.min_offset < known.log_begin <= files.max_offset or not files.files:
            return
        scan = LogWalk(files, files.min_offset, check_crc=self._check_crc)
        for _ in scan:
            if scan.position >= known.log_begin:
                break
        if scan.position < known.log_begin:
            self._report.repairs.append(f"log files before {known.log_begin}, which had been deleted, are deleted again")
            while files.min_offset < known.log_begin:
                files.delete_first()
        else:
            # They were restored on purpose, so their records count again.
            self._report.repairs.append(f"log files before {known.log_begin} had been deleted and were restored")
            known.last_record, known.log_end, known.clean = -1, 0, False
            self._store.checkpoint.set_back(0)

    def _check_sums(self) -> None:
        """Mark the queues with damaged files for rebuilding, as units before the start are not read otherwise."""
        self.sum_check = SumCheck(self._store.disk, self._store.queues, self.known.sums, self.known.dropped)
        self._suspects |= self.sum_check.at_start(self._report.repairs)

    def _drop_broken(self) -> None:
        broken = tuple(self._store.queues.broken)
        if broken:
            self._suspects.update(broken)
            self._note_rebuilding()
            for key in broken:
                self._store.queues.drop_queue(*key)

    # --- kinds of start --------------------------------------------------------------------------------------------

    def _begin_empty(self) -> None:
        if self._store.queues.max_physical_offset:
            self._report.repairs.append("the log is empty: all queues are deleted")
        self._store.queues.destroy()
        if self._store.index is not None:
            self._store.index.destroy()
        self._suspects.clear()

    def _ended_cleanly(self) -> bool:
        """Return whether, apart from single queues, the store is as after PocketMQ's clean stop; then set the log's end."""
        known = self.known
        if not (
            self._report.kind is StartKind.CLEAN
            and known.clean
            and known.log_begin == self._files.min_offset
            and recovery_start.ended_there(self._files, known)
            and recovery_start.nothing_behind(self._files, known.log_end)
            and recovery_start.unindexed_from(self._files, self._store.index, self.known) is None
        ):
            return False
        self._store.queues.correct_min_offsets(known.log_begin)
        found = {(queue.topic, queue.queue_id): QueueEnd.of(queue) for queue in self._store.queues if queue.max_offset}
        ends = known.queue_ends()
        self._suspects |= {key for key in found.keys() | ends.keys() if found.get(key) != ends.get(key)}
        self._note_last(known.last_record)
        # A BLANK mark at the end is kept, because the recorded end of a deleted topic may be after it.
        self._report.scan_start_offset = self._report.end_offset = recovery_start.past_blank(self._files, known.log_end)
        self._report.log_files_deleted = self._files.truncate(self._report.end_offset)
        return True

    def _recover(self) -> None:
        """Read the log from where queues or index may be incomplete."""
        known, report, begin = self.known, self._report, self._files.min_offset
        known_end = begin
        if recovery_start.ended_there(self._files, known):
            known_end = known.log_end
            self._note_last(known.last_record)
        if report.clean:
            # A clean stop of another broker: its last file is read.
            start = index_start = max(recovery_start.last_file_start(self._files), known_end)
        else:
            start = index_start = max(self._vouched(self._store.checkpoint.min_timestamp_ms), known_end)
            if report.kind is StartKind.CRASHED and self._store.index is not None:
                index_start = max(self._vouched(self._store.checkpoint.min_timestamp_with_index_ms), known_end)
        missing_from = recovery_start.unindexed_from(self._files, self._store.index, known)
        if missing_from is not None and missing_from < index_start:
            report.repairs.append(f"index files are missing or short: records from {missing_from} on are indexed again")
            index_start = missing_from if recovery_start.record_at(self._files, missing_from) is not None else begin
        start = min(start, index_start)
        if report.clean or missing_from is not None:
            self._set_back(start)
        if known_end > begin and start <= known_end:
            self._store.queues.truncate_units({key: end.max_offset for key, end in known.queue_ends().items()})
        physic_ms, logics_ms = self._store.checkpoint.physic_msg_timestamp_ms, self._store.checkpoint.logics_msg_timestamp_ms
        self._carry(start)
        newest_ms = self._last_store_timestamp_ms
        if not report.clean and start > known_end and (physic_ms > newest_ms or logics_ms > newest_ms + _FUTURE_MS):
            report.repairs.append(
                f"the checkpoint has the store times {physic_ms} and {logics_ms}, but the newest record has {newest_ms}: "
                f"the checkpoint is ignored, and the log is read from {known_end} on"
            )
            self._set_back(known_end)
            self._carry(known_end)
        self._cut()
        self._compare_with_known()

    def _vouched(self, timestamp_ms: int) -> int:
        return recovery_start.vouched_start(self._files, self._store.queues, timestamp_ms)

    def _start_over(self, why: str) -> None:
        """Rebuild everything from the log."""
        self._report.repairs.append(f"all queues and the index are rebuilt from the log: {why}")
        self._set_back(0)
        self._suspects.clear()
        self._drop_queues()
        if self._store.index is not None:
            self._store.index.destroy()
        self._carry(self._files.min_offset)
        self._cut()

    def _set_back(self, start: int) -> None:
        """Set checkpoint and recorded state back to `start`, so that the next run begins there if this one is killed."""
        record = recovery_start.record_at(self._files, start)
        self._store.checkpoint.set_back(record[1] if record is not None and start > self._files.min_offset else 0)
        if self.known.log_end > start:
            self.known.log_end, self.known.last_record = 0, -1
            self._save_known()

    def _save_known(self) -> None:
        self.known.clean = False
        self.known.save(self._store.disk, self._store.root)

    def _drop_queues(self) -> None:
        """Delete all queues; they are rebuilt from the log's beginning on."""
        if begin := self._files.min_offset:
            self._store.queues.truncate(begin)
            ends = {(queue.topic, queue.queue_id): QueueEnd.of(queue) for queue in self._store.queues if queue.max_offset}
            self._past_ends = recovery_start.past_ends(self._files, ends, self.known.dropped) | self._past_ends
        self._store.queues.destroy()

    def _keep_counting(self, known: CleanStop) -> None:
        """Keep the offsets of queues whose records are all deleted; otherwise consumers' offsets would be beyond them."""
        # Also for queues that were lost, or deleted by a start that was killed.
        lost = recovery_start.past_ends(self._files, known.queue_ends(), self.known.dropped)
        for key, next_offset in (lost | self._past_ends).items():
            if not (queue := self._store.queues.find_or_create(*key)).max_offset:
                queue.begin_at(next_offset)
                self._store.queues.dirty[queue] = None

    # --- reading ---------------------------------------------------------------------------------------------------

    def _carry(self, start: int) -> None:
        """Rebuild queues and index from `start` on, syncing at intervals, and set the report's end."""
        if start > self._files.min_offset:
            self._store.queues.truncate(start)
        else:
            self._drop_queues()
        if self._store.index is not None and (lacking_from := self._store.index.recover(start)) < start:
            self._report.repairs.append(f"index files are damaged: records from {lacking_from} on are indexed again")
            if recovery_start.record_at(self._files, lacking_from) is None:
                lacking_from = self._files.min_offset
            self._set_back(lacking_from)
            self._carry(lacking_from)
            return
        self._report.scan_start_offset = start
        bulk, marked, is_whole = self._store.bulk_dispatcher(), start, start == self._files.min_offset

        def dispatch(window: RecordWindow) -> None:
            nonlocal marked
            bulk.dispatch(numbered(window))
            if is_whole:
                self._report.repairs += self._lost_records.step_over(bulk, window)
            self._suspects.update(bulk.behind)
            position = int(window.physical_offsets[-1] + window.sizes[-1])
            if position - marked >= self.checkpoint_interval:
                self._sync(marked)
                newest_ms, checkpoint = self._last_store_timestamp_ms, self._store.checkpoint
                checkpoint.move_on(newest_ms, physic_ms=max(newest_ms, checkpoint.physic_msg_timestamp_ms))
                marked = position

        self._report.end_offset = self._read("recovering", start, dispatch)

    def _read(self, what: str, start: int, dispatch: Callable[[RecordWindow], None]) -> int:
        """Pass every record from `start` on to `dispatch`, repairing the log. Return the physical offset of the end."""
        position, total = start, self._files.max_offset - start
        while True:
            scan = LogWalk(self._files, position, check_crc=self._check_crc, complete_to=self._complete_to)
            for window in scan:
                self._last_window = window.physical_offsets.tolist()
                self._note_last(self._last_window[-1])
                self._lost_records.note_fillers(window)
                self._report.records_scanned += len(window)
                self._report.bytes_scanned += int(window.sizes.sum())
                dispatch(window)
                self._progress(what, scan.position - start, total)
                del window
                self._release_memory()
            position, self._report.end_reason = scan.position, scan.reason
            valid = self._valid_behind(position) if scan.reason else None
            if valid is None:
                return position
            saved = quarantine.apply(
                self._files,
                f"{self._store.root}/quarantine",
                position,
                valid,
                scan.reason,
                self._store.clock.message_time_ms(),
                self._last_store_timestamp_ms,
            )
            self._report.repairs.append(
                f"{valid - position} bytes at {position} are damaged ({scan.reason}) and saved in {saved}; "
                "a filler replaces them, and the log continues after it"
            )

    def _release_memory(self) -> None:
        """Remove the part of the log that was read from the resident set, which would otherwise grow to the log's size."""
        if (file := self._files.file_at(self._last_record)) is not None:
            file.release_memory(self._last_record - file.start_offset)

    def _note_last(self, physical_offset: int) -> None:
        record = recovery_start.record_at(self._files, physical_offset, check_crc=False)
        assert record is not None, f"an intact record was at {physical_offset}"
        self._last_record, self._last_store_timestamp_ms = physical_offset, record[1]

    def _valid_behind(self, position: int) -> int | None:
        """Return where intact records continue after a bad record that had been synced; None if the log ends there.

        It had been synced, in log order, if the records before it are all older than the newest synced time.
        """
        synced_ms = self._report.synced_timestamp_ms
        if synced_ms is not None and self._last_store_timestamp_ms >= synced_ms:
            return None
        valid = valid_behind(self._files, position)
        if valid is not None and synced_ms is not None and self._last_record < 0 and self._files.min_offset:
            # No record is left before it, and the newest synced one may be deleted, so the intact record must be older.
            record = recovery_start.record_at(self._files, valid)
            return valid if record is not None and record[1] < synced_ms else None
        return valid

    def _sync(self, start: int) -> None:
        """Sync log, queues and index from `start` to the last record read."""
        end = recovery_start.past_blank(self._files, self._last_end)
        for file in self._files.files:
            if start < file.start_offset + file.size and file.start_offset < end:
                if self._report.kind is StartKind.KILLED:
                    # A sync may have failed before, after which the kernel treats pages as clean that are not on the disk.
                    _ = file.view  # maps the file
                    file.region.rewrite(max(start - file.start_offset, 0), min(end - file.start_offset, file.size))
                file.region.sync(0, file.size)
        for directory in self._files.directories:
            self._store.disk.sync_dir(directory)
        self._store.queues.flush()
        if self._store.index is not None:
            self._store.index.flush()
        if not self._suspects <= set(self.known.rebuilding):
            self._note_rebuilding()

    @property
    def _last_end(self) -> int:
        """End offset of the last record, or 0."""
        last = recovery_start.record_at(self._files, self._last_record, check_crc=False)
        return 0 if last is None else self._last_record + last[0]

    def _note_rebuilding(self) -> None:
        """Record the queues to be rebuilt, so that the next run does it if this one is killed."""
        self.known.rebuilding = sorted(self._suspects)
        self._save_known()

    def _finish(self) -> None:
        """Sync everything and record the state for the next start."""
        if self._is_unchanged and not self._suspects:
            return
        self._sync(self._report.scan_start_offset)
        end = self._last_end
        self.known.last_record, self.known.log_end = (self._last_record, end) if end else (-1, 0)
        self.known = self.known.renewed(self._store, take(list(self._store.queues))[0])
        # Before the checkpoint: otherwise the loss of a queue covered by it would not be noticed.
        self._save_known()
        self._store.checkpoint.move_on(self._last_store_timestamp_ms, physic_ms=self._last_store_timestamp_ms)

    # --- the end of the log ----------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut the log after its last intact record: later files are deleted, the rest of the last one is zeroed."""
        report, files = self._report, self._files
        if report.kind is not StartKind.CLEAN:
            self._leave_torn_properties()
        end = report.end_offset
        if any(files.view(end, RECORD_SIZE_MIN) or b""):
            until, now_ms = recovery_start.written_to(files, end), self._store.clock.message_time_ms()
            saved = quarantine.save(files, f"{self._store.root}/quarantine", end, until, report.end_reason, now_ms)
            report.repairs.append(f"bytes after the log's end at {end} are cut off: {report.end_reason}; saved in {saved}")
        if report.kind is not StartKind.CRASHED and self._queues_end > end:
            line = f"queues had records up to {self._queues_end}, the log has them up to {end}"
            report.repairs.append(line + recovery_start.missing_behind(files, end))
        report.log_files_deleted = files.truncate(end)
        if self._store.queues.max_physical_offset > end:
            self._store.queues.truncate(end)
        if self._store.index is not None and self._store.index.indexed_to >= end > 0:
            self._store.index.truncate(end)

    def _leave_torn_properties(self) -> None:
        """Cut the log before records at the end of a damaged log whose properties, which have no checksum, do not parse.

        PocketMQ stores no such properties, and Apache keeps them. Zero bytes in a record that was in a queue are a client's.
        """
        synced_ms = self._report.synced_timestamp_ms or self._store.checkpoint.physic_msg_timestamp_ms
        for physical_offset in reversed(self._last_window):
            record = recovery_start.record_at(self._files, physical_offset, check_crc=False)
            parse = recovery_start.properties_parse
            if record is None or record[1] < synced_ms or parse(self._files, physical_offset, self._complete_to):
                return
            self._report.end_offset = physical_offset
            self._report.end_reason = "the properties cannot be parsed"

    # --- queues before the start -----------------------------------------------------------------------------------

    def _compare_with_known(self) -> None:
        """Mark queues for rebuilding that end earlier than recorded, or whose newest unit points at no record."""
        known, files = self.known, self._files
        self._store.queues.correct_min_offsets(files.min_offset)
        for key, end in known.queue_ends().items():
            queue = self._store.queues.get(*key)
            if known.dropped.get(key[0], 0) >= end.max_physical_offset:
                continue
            # Also if it ended beyond the log, which may have lost its end: earlier units are as likely to be missing.
            if files.min_offset < end.max_physical_offset and (
                queue is None
                or queue.max_offset < end.max_offset
                or (known.log_begin == files.min_offset and queue.min_offset > end.min_offset)
            ):
                self._suspects.add(key)
        for queue in self._store.queues:
            if not recovery_start.is_newest_valid(files, queue):
                self._suspects.add((queue.topic, queue.queue_id))

    def _make_again(self) -> None:
        """Delete the marked queues and rebuild them from the whole log; delete those of deleted topics."""
        self._drop_deleted_topics()
        suspects = self._suspects
        if not suspects:
            return
        names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in sorted(suspects)[:5])
        more = f" and {len(suspects) - 5} more" if len(suspects) > 5 else ""
        self._report.repairs.append(f"queues rebuilt from the whole log: {names}{more}")
        self._note_rebuilding()
        for key in suspects:
            self._store.queues.drop_queue(*key)
        end_reason = self._report.end_reason
        self._lost_records = LostRecords(self._store.queues, self._store.delay_levels)
        bulk = self._store.bulk_dispatcher()

        def dispatch(window: RecordWindow) -> None:
            bulk.dispatch(numbered(window), only=suspects, with_index=False)
            self._report.repairs += self._lost_records.step_over(bulk, window)

        self._read("rebuilding queues", self._files.min_offset, dispatch)
        self._report.end_reason = end_reason
        self._drop_deleted_topics()

    def _drop_deleted_topics(self) -> None:
        """Delete queues that have only records of deleted topics, which reading the log has restored."""
        dropped, begin = self.known.dropped, self._files.min_offset
        for queue in [queue for queue in self._store.queues if queue.max_physical_offset <= dropped.get(queue.topic, -1)]:
            key = queue.topic, queue.queue_id
            # Without units: if marked for rebuilding, later records may be lost; else only the offset was restored.
            if queue.max_physical_offset or (key not in self._suspects and dropped[queue.topic] > begin):
                self._store.queues.drop_queue(*key)
                if key not in self.known.rebuilding:  # else records of the topic created again may be missing
                    self._suspects.discard(key)
