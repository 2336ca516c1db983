"""`spark.read.format("rocketmq").load(STORE)`: CommitLog files as a table, read straight from disk.

STORE is a store's root, its commitlog folder, one file, or a glob of these. No broker is needed, and one that runs is not
disturbed: files are only read, and no lock is taken. What the log held when the query was planned is what the query sees.

Spark tells a Python source which filters apply, but not which columns are used, so a schema given by the user is the
projection: `.schema("topic string, storeTimestamp timestamp")` decodes two columns and nothing else.

Options:
    maxPartitionBytes   bytes of a task, `128m` unless given; a plain number or with k, m or g
    pushFilters         true: leave out, while reading, what the query's filters on topic, physicalOffset and storeTimestamp
                        exclude; needs spark.sql.python.filterPushdown.enabled. Only for a DataFrame that serves one query
                        with one filter: Spark (4.3) keeps the filters of the first with the loaded table, so a later query
                        on the same DataFrame would miss rows. Off by default for that reason
    mode                FAILFAST (default) ends the query at a damaged record with the log's end still to come;
                        DROPMALFORMED goes on with the next intact one
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_analytics.columns import COLUMNS, DDL, Records, record_batch
from spark_analytics.pruning import Pruning
from spark_analytics.reader import Ending, Walk, next_candidate
from spark_analytics.splits import SPLIT_SIZE, Split, first_record, log_files, plan

log = logging.getLogger(__name__)

MODES: Final = ("FAILFAST", "DROPMALFORMED")
SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE_PATTERN: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)


class DamagedRecordError(ValueError):
    """Bytes within the log, in front of its end, that are no intact record."""


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """One task's share."""

    split: Split


class CommitLogReader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of `schema` from the store that `options` name.

    Raises ValueError for a column, type or option that there is not, FileNotFoundError for a store that there is not.
    """

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._names = _projection(schema)
        self._path = options.get("path", "")
        if not self._path:
            raise ValueError('no store named: load("/path/of/the/store")')
        self._split_size = size_option("maxPartitionBytes", options.get("maxPartitionBytes", str(SPLIT_SIZE)))
        self._mode = options.get("mode", MODES[0]).upper()
        if self._mode not in MODES:
            raise ValueError(f"option mode is {self._mode}: it must be one of {', '.join(MODES)}")
        self._pruning = Pruning()

    def partitions(self) -> list[SplitPartition]:
        """The splits that the filters leave."""
        splits = plan(log_files(self._path), self._split_size)
        return [SplitPartition(split) for split in splits if self._pruning.wants(split)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow record batches of a partition, one a window."""
        # Spark makes up a partition of its own when there is none.
        if not isinstance(partition, SplitPartition):
            return
        split = partition.split
        begin = first_record(split)
        while begin is not None:
            walk = Walk(split.file, begin, split.stop)
            for window in walk:
                records = Records.of(window)
                damaged = records.damaged()
                if len(damaged):
                    self._damaged(split, int(damaged[0]))
                    records = records.sound()
                records = self._pruning.records(records)
                if len(records):
                    yield record_batch(records, self._names)
            if walk.ending is not Ending.BROKEN:
                return
            self._damaged(split, split.file.physical_offset + walk.position)
            begin = next_candidate(split.file, walk.position + 1, split.stop)

    def _damaged(self, split: Split, physical_offset: int) -> None:
        message = f"damaged record at physical offset {physical_offset} of {split.file.path}"
        if self._mode == "FAILFAST":
            raise DamagedRecordError(f'{message}; .option("mode", "DROPMALFORMED") reads on behind it')
        log.warning("%s left out", message)


class FilteringCommitLogReader(CommitLogReader):
    """A reader that also takes the query's filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Note what can be left out, and give every filter back: Spark applies them as well."""
        self._pruning = self._pruning.narrowed(filters)
        return filters


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The data source `rocketmq`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> CommitLogReader:
        # Spark refuses a reader that takes filters while its own setting is off, and its error names the setting.
        wanted = self.options.get("pushFilters", "false").lower()
        if wanted not in ("true", "false"):
            raise ValueError(f"option pushFilters is {wanted!r}: it must be true or false")
        kind = FilteringCommitLogReader if wanted == "true" else CommitLogReader
        return kind(schema, self.options)


def _projection(schema: StructType) -> list[str]:
    """The names of the columns that a user's schema asks for."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ValueError(f"unknown column {field.name}: the columns are {', '.join(COLUMNS)}")
        own, asked = COLUMNS[field.name].spark_type, field.dataType.simpleString()
        if own != asked:
            raise ValueError(f"column {field.name} is {own}, the schema says {asked}: cast it after reading")
    return [field.name for field in schema.fields]


def size_option(name: str, value: str) -> int:
    """Bytes of an option such as `128m`. Raises ValueError."""
    match = SIZE_PATTERN.fullmatch(value.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"option {name} is {value!r}: it must be a positive size such as 134217728 or 128m")
    return int(match[1]) * SIZE_UNITS[match[2].lower()]


def register(spark: Any) -> None:
    """Make the format `rocketmq` known to a session."""
    spark.dataSource.register(RocketMQDataSource)
