"""Streaming read: `spark.readStream.format("rocketmq").load(STORE)` follows a store's log while a broker writes it.

A query's progress is a physical offset, `{"physicalOffset": N}`: all records before it were returned, and the next record
begins there. With several stores (a list or a glob) each has its own offset, keyed by its commitlog folder. A micro-batch
has the same splits and columns as a batch read; only the end of the log is checked again each time (`log_tail`). A
micro-batch that is planned again after a crash has the same bounds and therefore the same rows.

Options, besides those of a batch read that select rows and columns:
    startingOffsets     earliest (default), latest, or a physical offset; only for a query without a checkpoint
    maxBytesPerTrigger  approximate bytes of log per micro-batch, in all stores together; 512m by default
    maxRecordsPerTrigger  maximum number of records of the log per micro-batch, of any topic, in all stores together; no
                        default
    failOnDataLoss      true (default): the query fails if records are gone before it has read them, because retention has
                        deleted them or the log was truncated. false: it continues at the next available record

Set a trigger: without one Spark checks for new records a hundred times a second.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pocketmq.spark_analytics.reading.body_options import INFER
from pocketmq.spark_analytics.reading.log_reader import planned
from pocketmq.spark_analytics.reading.log_tail import LogTail, is_damaged_boundary, may_begin
from pocketmq.spark_analytics.reading.options import STREAM_OPTIONS, OptionParser, byte_size, read_options
from pocketmq.spark_analytics.reading.pruning import Pruning
from pocketmq.spark_analytics.reading.queue_pruning import plan_range, scans
from pocketmq.spark_analytics.reading.replicas import Copies, copies_between, have_same_log, with_copies
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.split_planning import FULL_FILE_TAIL, full_end
from pocketmq.spark_analytics.source.batch import CommitLogReader, Partition
from pocketmq.spark_analytics.source.errors import LostRecordsError, named_errors
from pocketmq.store.offline.log_walk import WINDOW_SIZE_FIRST, next_candidate, walks
from pocketmq.store.offline.places import LogFile, log_files

try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxBytes,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    raise ImportError("following a store needs PySpark 4.2 or newer") from None

log = logging.getLogger(__name__)

# Physical offsets by commitlog folder; the key is "" if the query has one store.
Offsets = dict[str, int]
PHYSICAL_OFFSET: Final = "physicalOffset"
BYTES_A_TRIGGER: Final = 512 << 20


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Stream reader for the stores named in `options`. Raises the same errors as CommitLogReader."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        given = {name.lower(): value.strip() for name, value in options.items()}
        own = OptionParser({name.lower(): given.pop(name.lower()) for name in STREAM_OPTIONS if name.lower() in given})
        if given.get("table", "messages").lower() != "messages":
            raise ValueError(f"option table is {given['table']}: only messages can be streamed")
        self._fails_on_loss = own.flag("failOnDataLoss", "true")
        if not self._fails_on_loss:
            given["ignoremissingfiles"] = "true"
        self._starting = _starting(own.text("startingOffsets") or "earliest")
        self._bytes_max = (own.text("maxBytesPerTrigger") and own.parsed("maxBytesPerTrigger", byte_size)) or BYTES_A_TRIGGER
        self._records_max = own.parsed("maxRecordsPerTrigger", _count)
        self._options = read_options(given)
        if self._options.is_aggregated:
            raise ValueError("options groupBy and aggregates are not available for readStream: use spark.read")
        if self._options.body.is_inferred:
            raise ValueError(
                f"option bodySchema is {INFER}: a stream needs a fixed schema, give the one that a batch infers"
            )
        self._reader = CommitLogReader(schema, given)
        self._pruning = Pruning.of(self._options)
        self._is_one = self._options.is_one_store
        self._tails: dict[str, LogTail] = {}
        self._latest: Offsets = {}
        self._target: Offsets | None = None

    # --- Spark's interface ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a query without a checkpoint starts."""
        offsets: Offsets = {"": 0} if self._is_one else {}
        for key, files in self._logs().items():
            begin, end = files[0].start_offset, self._follow(key, files)
            if isinstance(self._starting, int):
                offsets[key] = _first_from(files, self._starting, end)
            else:
                offsets[key] = end if self._starting == "latest" else begin
        return _encoded(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit given by the option maxBytesPerTrigger."""
        return ReadMaxBytes(self._bytes_max)

    @named_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, not before `start`. Raises LostRecordsError."""
        return planned(lambda: self._next_end(start, limit))

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begins, ends = _decoded(start), dict(_decoded(start))
        logs = self._logs()
        for key, files in logs.items():
            begin = begins.setdefault(key, files[0].start_offset)
            end = self._follow(key, files, begin)
            if end < begin:
                self._lost(files, begin, f"the log ends at {end}: it was truncated", "there once the log is longer again")
            elif begin < files[0].start_offset:
                self._deleted(files, begin)
            if self._target is not None:
                end = min(end, self._target.get(key, begin))
            ends[key] = max(end, begin)
        if isinstance(limit, ReadMaxBytes):
            behind = [key for key in logs if ends[key] > begins[key]]
            for key in behind:
                share = max(limit.max_bytes // len(behind), 1)
                begin = max(begins[key], logs[key][0].start_offset)
                if begin + share < ends[key]:
                    ends[key] = _first_from(logs[key], begin + share, ends[key])
                if self._records_max is not None:
                    count = max(self._records_max // len(behind), 1)
                    ends[key] = _behind_records(logs[key], begin, ends[key], count)
        return _encoded(ends)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the records that exist now."""
        self._target = {key: self._tail(key).settled(files) for key, files in self._logs().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs as last seen."""
        return _encoded(self._latest) if self._latest else None

    @named_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Partition]:
        """Return the splits between two offsets. Raises LostRecordsError."""
        return [Partition(split) for split in planned(lambda: self._splits_between(start, end))]

    def _splits_between(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        begins, ends, logs = _decoded(start), _decoded(end), self._logs()
        splits: list[Split] = []
        for key, stop in ends.items():
            files = logs.get(key, [])
            begin = begins.get(key, files[0].start_offset if files else stop)
            if begin < stop:
                self._check(files, begin, stop)
                own = self._splits(files, begin, stop)
                splits += with_copies(own, self._copies(key, begin, stop, begins, ends, logs))
        return self._reader.log_reader.named(splits, (file for files in logs.values() for file in files))

    def _copies(
        self, key: str, begin: int, stop: int, begins: Offsets, ends: Offsets, logs: dict[str, list[LogFile]]
    ) -> list[Copies]:
        """Return the copies of a log's records in the other logs, as far as these are returned from there."""
        found = []
        for other, files in logs.items():
            if self._options.drop_replicas and other != key and have_same_log(logs.get(key, []), files):
                limit = ends.get(other, 0) if other < key else begins.get(other, 0)
                found.append(copies_between(files, begin, stop, limit))
        return found

    def read(self, partition: Any) -> Any:
        """Return the Arrow record batches of a split."""
        return self._reader.read(partition)

    # --- files ------------------------------------------------------------------------------------------------------

    def _logs(self) -> dict[str, list[LogFile]]:
        """Return the files of each store, ascending."""
        files = log_files(self._options.paths)
        return {"" if self._is_one else folder: list(own) for folder, own in groupby(files, lambda file: file.folder)}

    def _follow(self, key: str, files: list[LogFile], known: int = -1) -> int:
        self._latest[key] = end = self._tail(key).follow(files, known)
        return end

    def _tail(self, key: str) -> LogTail:
        return self._tails.setdefault(key, LogTail())

    def _splits(self, files: list[LogFile], begin: int, end: int) -> list[Split]:
        split_size = self._options.split_size(end - begin)
        splits, begin = plan_range(files, self._pruning, split_size, begin, end)
        for file, start, stop in _between(files, begin, end):
            splits += scans(file, start, stop, self._pruning, split_size, is_damaged_boundary)
        return splits

    # --- lost records -----------------------------------------------------------------------------------------------

    def _check(self, files: list[LogFile], begin: int, end: int) -> None:
        """Report a loss if bytes between two offsets are missing, or if no record begins at the first."""
        position = begin
        for file in files:
            if file.end_offset <= begin or file.start_offset >= end:
                continue
            where = file.start_offset
            if where > position and file is files[0]:
                self._deleted(files, position)
            elif where > position:
                self._lost(
                    files, position, f"their file is truncated or missing, the next one begins at {where}", f"at {where}"
                )
            elif position == begin and not may_begin(file, begin - file.start_offset):
                self._lost(files, begin, "no record begins there any more: the log was truncated", "at the next record")
            position = file.end_offset
        if position < end:
            self._lost(files, position, "they were deleted", "without them")

    def _deleted(self, files: list[LogFile], begin: int) -> None:
        where = files[0].start_offset
        self._lost(files, begin, f"the log begins at {where}: retention has deleted them", f"at {where}")

    def _lost(self, files: list[LogFile], physical_offset: int, why: str, where: str) -> None:
        folder = files[0].folder if files else ", ".join(self._options.paths)
        message = f"records of {folder} from physical offset {physical_offset} on are lost: {why}"
        if self._fails_on_loss:
            raise LostRecordsError(f'{message}; .option("failOnDataLoss", "false") continues {where}')
        log.warning("%s", message)


def _between(files: Iterable[LogFile], begin: int, end: int) -> Iterator[tuple[LogFile, int, int]]:
    """Yield each file with records between two physical offsets, and the positions in it between which they begin."""
    for file in files:
        start = max(begin - file.start_offset, 0)
        if file.start_offset < end and start < file.size:
            yield file, start, full_end(file, start) if end >= file.end_offset else end - file.start_offset


def _first_from(files: list[LogFile], physical_offset: int, end: int) -> int:
    """Return the physical offset of the first record at or behind `physical_offset`, or `end`, the end of the log."""
    for file in files:
        start = max(physical_offset - file.start_offset, 0)
        if file.start_offset >= end or start >= file.size:
            continue
        found = None
        stop = end - file.start_offset
        if end >= file.end_offset:
            # Behind the BLANK of a full file there may be old records. The BLANK is searched for only if no record begins
            # before the file's tail.
            tail = file.size - FULL_FILE_TAIL
            found = next_candidate(file, start, tail) if start < tail else None
            stop = full_end(file, 0) if found is None else tail
        if found is None and start < stop:
            found = next_candidate(file, start, stop)
        if found is not None:
            return file.start_offset + found
    return end


def _behind_records(files: list[LogFile], begin: int, end: int, count: int) -> int:
    """Return the physical offset behind the first `count` records between two offsets, or `end` if there are fewer."""
    for file, start, stop in _between(files, begin, end):
        for walk in walks(file, start, stop, first_size=WINDOW_SIZE_FIRST):
            for window in walk:
                if len(window) >= count:
                    last = count - 1
                    return window.physical_offset + int(window.starts[last] + window.sizes[last])
                count -= len(window)
    return end


def _encoded(offsets: Offsets) -> dict[str, Any]:
    if set(offsets) == {""}:
        return {PHYSICAL_OFFSET: offsets[""]}
    return {key: {PHYSICAL_OFFSET: offset} for key, offset in offsets.items()}


def _decoded(offsets: dict[str, Any]) -> Offsets:
    if PHYSICAL_OFFSET in offsets:
        return {"": int(offsets[PHYSICAL_OFFSET])}
    return {key: int(offset[PHYSICAL_OFFSET]) for key, offset in offsets.items()}


def _starting(value: str) -> str | int:
    if value.lower() in ("earliest", "latest"):
        return value.lower()
    if not re.fullmatch(r"\d{1,18}", value, re.ASCII):
        raise ValueError(f"option startingOffsets is {value!r}: it must be earliest, latest or a physical offset")
    return int(value)


def _count(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value, re.ASCII) or not int(value):
        raise ValueError(f"option {name} is {value!r}: it must be a positive integer")
    return int(value)
