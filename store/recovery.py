"""Opening a store: where the log ends, and what queues and index lack of it.

The log is the truth; queues and index are made from it and can be made again. Recovery therefore

1. decides from which physical offset on the log must be looked at: after a clean stop from where the queues end, else from
   the newest file that the checkpoint vouches for (log and queues are on disk up to its time);
2. lets the queues forget what they have of that part: after a crash a unit may be torn, and it is made again anyway;
3. goes through the records, each checked, up to the first that is none, and dispatches them;
4. cuts everything behind: later files are deleted, the rest of the last file is zeroed, since a record left over there could
   pass for a valid one after the next crash; queues and index drop what points beyond.

After a crash all that was found is synced before it counts as flushed: the page cache survives a killed process, but not
the next power cut.
"""

from dataclasses import dataclass, field

from store.commit_log import CommitLog
from store.consume_queue_store import ConsumeQueueStore
from store.dispatcher import Dispatcher
from store.index_service import IndexService
from store.layout import RECORD_SIZE_MIN
from store.mapped_file import MappedFile
from store.message import DispatchRequest
from store.record import (
    BadRecordError,
    TagsCode,
    check_record,
    decode_dispatch_request,
    is_blank,
    store_timestamp_of,
)
from store.store_checkpoint import StoreCheckpoint

_DISPATCH_BATCH = 1000
# As far back as Apache goes after a clean stop (CommitLog.recoverNormally).
_FILES_SCANNED = 3


@dataclass
class RecoveryReport:
    """What was found and what was done about it. Offsets are physical, sizes in bytes."""

    clean: bool
    scan_start_offset: int = 0
    end_offset: int = 0
    records_scanned: int = 0
    records_dispatched: int = 0
    log_files_deleted: int = 0
    # Why the record at `end_offset` is none, when there were bytes.
    end_reason: str = ""
    repairs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        repairs = "; ".join(self.repairs) or "nothing to repair"
        return (
            f"{'clean stop' if self.clean else 'unclean stop'}: log ends at {self.end_offset}, "
            f"{self.records_scanned} records looked at from {self.scan_start_offset} on, "
            f"{self.records_dispatched} dispatched again; {repairs}"
        )


class Recovery:
    """One run over one store whose files are loaded. Raises StoreError and OSError."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        tags_code: TagsCode,
        check_crc: bool = True,
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatcher = Dispatcher(queues, index)
        self._tags_code = tags_code
        self._check_crc = check_crc
        self._last_store_timestamp_ms = 0

    def run(self, clean: bool) -> RecoveryReport:
        """Recover; the commit log is ready to append afterwards."""
        report = RecoveryReport(clean)
        files = self._commit_log.mapped_files
        if files.files:
            self._recover(report)
        if not files.files:
            if self._queues.max_physical_offset:
                report.repairs.append("there is nothing in the log: all queues deleted")
            self._queues.destroy()
            if self._index is not None:
                self._index.destroy()
        self._commit_log.recovered(self._last_store_timestamp_ms)
        min_offset = self._commit_log.min_offset
        self._queues.correct_min_offsets(min_offset)
        for queue in self._queues:
            self._commit_log.queue_offsets[queue.topic, queue.queue_id] = queue.max_offset
        return report

    def _recover(self, report: RecoveryReport) -> None:
        dispatched_to = self._queues.max_physical_offset
        if report.clean:
            start = self._clean_start(dispatched_to)
            dispatch_start = dispatched_to
        else:
            start = self._vouched_start()
            self._queues.truncate(start)
            if self._index is not None and self._index.indexed_to < start:
                # Index files that may be torn are gone by now, and reached further back than the queues' doubt.
                start = self._file_start(self._index.indexed_to)
            dispatch_start = start
        report.scan_start_offset = start
        self._scan(report, start, dispatch_start)
        self._cut(report, start)

    # --- where to begin --------------------------------------------------------------------------------------------

    def _clean_start(self, dispatched_to: int) -> int:
        """Where the queues end, if the record before that is sound; else some files back."""
        for queue in self._queues:
            if queue.max_physical_offset == dispatched_to > 0:
                unit = queue.unit_at(queue.max_offset - 1)
                if unit is not None and self._is_record(*unit[:2]):
                    return dispatched_to
        files = self._commit_log.mapped_files.files
        start = files[max(len(files) - _FILES_SCANNED, 0)].start_offset
        return max(min(start, dispatched_to), files[0].start_offset)

    def _is_record(self, physical_offset: int, size: int) -> bool:
        file = self._commit_log.mapped_files.file_at(physical_offset)
        if file is None:
            return False
        position = physical_offset - file.start_offset
        try:
            sound = check_record(file.view, position, physical_offset, self._check_crc) == size
        except BadRecordError:
            return False
        self._last_store_timestamp_ms = store_timestamp_of(file.view, position)
        return sound

    def _vouched_start(self) -> int:
        """Start of the newest file that begins with a record the checkpoint vouches for; else of the first file."""
        files = self._commit_log.mapped_files.files
        vouched_ms = self._checkpoint.min_timestamp_ms
        for file in reversed(files):
            if 0 < self._first_store_timestamp(file) <= vouched_ms:
                return file.start_offset
        return files[0].start_offset

    def _first_store_timestamp(self, file: MappedFile) -> int:
        try:
            check_record(file.view, 0, file.start_offset, self._check_crc)
        except BadRecordError:
            return -1
        return store_timestamp_of(file.view)

    def _file_start(self, physical_offset: int) -> int:
        file = self._commit_log.mapped_files.file_at(physical_offset)
        return file.start_offset if file is not None else self._commit_log.min_offset

    # --- going through it ------------------------------------------------------------------------------------------

    def _scan(self, report: RecoveryReport, start: int, dispatch_start: int) -> None:
        """Check every record from `start` on and dispatch those from `dispatch_start` on; sets the report's end."""
        batch: list[DispatchRequest] = []
        physical_offset = start
        file = self._commit_log.mapped_files.file_at(start)
        while file is not None:
            position, view = physical_offset - file.start_offset, file.view
            try:
                size = check_record(view, position, physical_offset, self._check_crc)
            except BadRecordError as error:
                if not is_blank(view, position):
                    report.end_reason = str(error)
                    break
                physical_offset = file.start_offset + file.size
                file = self._commit_log.mapped_files.file_at(physical_offset)
                continue
            report.records_scanned += 1
            self._last_store_timestamp_ms = store_timestamp_of(view, position)
            if physical_offset >= dispatch_start:
                request = decode_dispatch_request(view, position, self._tags_code)
                if len(batch) == _DISPATCH_BATCH or request.queue_offset == 0:
                    # A topic that was deleted and made anew counts from 0 again: its two lives must not become one run.
                    self._dispatch(batch, report)
                batch.append(request)
            physical_offset += size
        self._dispatch(batch, report)
        report.end_offset = physical_offset

    def _dispatch(self, batch: list[DispatchRequest], report: RecoveryReport) -> None:
        if batch:
            self._dispatcher.dispatch(batch)
            report.records_dispatched += len(batch)
            batch.clear()

    # --- cutting what is behind ------------------------------------------------------------------------------------

    def _cut(self, report: RecoveryReport, start: int) -> None:
        end = report.end_offset
        files = self._commit_log.mapped_files
        behind = files.view(end, RECORD_SIZE_MIN)
        if behind is not None and any(behind):
            report.repairs.append(f"what stood behind the log's end at {end} is cut off: {report.end_reason}")
        if not report.clean:
            for file in files.files:
                if start < file.start_offset + file.size and file.start_offset < end:
                    file.region.sync(0, file.size)
            if files.files:
                files.disk.sync_dir(files.directory)
        report.log_files_deleted = files.truncate(end)
        if self._queues.max_physical_offset > end:
            report.repairs.append(f"queues knew of records up to {self._queues.max_physical_offset}")
            self._queues.truncate(end)
        if self._index is not None and self._index.indexed_to >= end > 0:
            self._index.truncate(end)
            report.repairs.append("index files that knew of later records are deleted")
            if self._index.indexed_to < start:
                # What else those files held is indexed again; the queues leave out what they have.
                self._scan(report, self._file_start(self._index.indexed_to), 0)
