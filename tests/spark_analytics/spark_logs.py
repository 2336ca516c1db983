"""Generated and golden CommitLogs, and a reader for both without a JVM."""

import gzip
import json
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.source.batch import CommitLogReader
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT, CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import encode_record, record_size, topic_part
from tests.golden.golden_files import GOLDEN

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
QUEUE_FILE_SIZE = 20 * 1000
HOST = bytes([10, 0, 0, 7]) + (10911).to_bytes(4, "big")
HOST_V6 = bytes.fromhex("20010db8000000000000000000000001") + (10911).to_bytes(4, "big")


def spark_schema(*names: str) -> StructType:
    """Return a schema of the named columns, or the default one. A name may be followed by a type: `body string`."""
    every = COLUMNS | DERIVED_COLUMNS
    typed = [(*name.split(), "") if " " in name else (name, every[name].spark_type) for name in names or COLUMNS]
    return StructType([StructField(name, TYPES[spark_type]) for name, spark_type, *_ in typed])


def read(store: Path | str, *names: str, **options: Any) -> list[dict[str, Any]]:
    """Return every row of a store, in the order in which tasks would yield them."""
    reader = CommitLogReader(spark_schema(*names), {"path": str(store)} | {k: str(v) for k, v in options.items()})
    return list(rows_of(reader))


def rows_of(reader: CommitLogReader) -> Iterator[dict[str, Any]]:
    for partition in reader.partitions():
        for batch in reader.read(partition):
            batch.validate(full=True)
            yield from batch.to_pylist()


def expected_records(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name / "expected.jsonl.gz", "rt") as lines:
        return [record for record in map(json.loads, lines) if record["kind"] == "msg"]


class LogBuilder:
    """A CommitLog built like a broker's, file after file; `write` puts it on disk."""

    def __init__(self, *file_sizes: int, physical_offset: int = 0) -> None:
        """The last of `file_sizes` is used for all further files."""
        self._file_sizes = list(file_sizes)
        self.files: list[tuple[int, bytearray]] = [(physical_offset, bytearray(file_sizes[0]))]
        self.position = 0
        self.physical_offsets: list[int] = []
        self.queue_offsets: Counter[tuple[str, int]] = Counter()

    @property
    def next_physical_offset(self) -> int:
        return self.files[-1][0] + self.position

    def append(
        self,
        body: bytes = b"body",
        topic: str = "T",
        properties: dict[str, str] | bytes = b"",
        born_host: bytes = HOST,
        store_host: bytes = HOST,
        store_timestamp_ms: int = 1_700_000_000_000,
        queue_id: int = 3,
        **fields: int,
    ) -> int:
        """Append a record; return its physical offset."""
        stored = properties if isinstance(properties, bytes) else encode_properties(properties).encode()
        message = Message(topic, queue_id, body, born_host, store_host, properties_bytes=stored, **fields)
        magic_code, topic_bytes = topic_part(topic.encode())
        size = record_size(message, len(topic_bytes))
        base, data = self.files[-1]
        if size + BLANK_SIZE > len(data) - self.position:
            BLANK_STRUCT.pack_into(data, self.position, len(data) - self.position, BLANK_MAGIC_CODE)
            file_size = self._file_sizes[min(len(self.files), len(self._file_sizes) - 1)]
            self.files.append((base + len(data), bytearray(file_size)))
            base, data, self.position = *self.files[-1], 0
        physical_offset = base + self.position
        queue_offset = self.queue_offsets[topic, queue_id]
        record = encode_record(message, magic_code, topic_bytes, size, queue_offset, physical_offset, store_timestamp_ms)
        self.queue_offsets[topic, queue_id] += 1
        data[self.position : self.position + size] = record
        self.position += size
        self.physical_offsets.append(physical_offset)
        return physical_offset

    def truncate(self, physical_offset: int) -> None:
        """Continue at an earlier offset, leaving the bytes after it unchanged, as a recovery does."""
        self.files = [file for file in self.files if file[0] <= physical_offset]
        self.position = physical_offset - self.files[-1][0]
        self.physical_offsets = [own for own in self.physical_offsets if own < physical_offset]

    def write(self, store: Path) -> Path:
        folder = store / "commitlog"
        folder.mkdir(parents=True)
        for base, data in self.files:
            (folder / f"{base:020}").write_bytes(data)
        return store


def physical_offsets(store: Path, **options: Any) -> list[int]:
    return [row["physicalOffset"] for row in read(store, "physicalOffset", **options)]


def write_queues(store: Path, up_to: int | None = None, without: Container[int] = (), **options: Any) -> Path:
    """Write the ConsumeQueues of a log, for records up to a physical offset; `options` are for reading the log."""
    units: dict[tuple[str, int], bytes] = {}
    for row in read(store, "topic", "queueId", "physicalOffset", "storeSize", **options):
        if (up_to is None or row["physicalOffset"] < up_to) and row["physicalOffset"] not in without:
            queue = (row["topic"], row["queueId"])
            unit = CONSUME_QUEUE_UNIT_STRUCT.pack(row["physicalOffset"], row["storeSize"], 0)
            units[queue] = units.get(queue, b"") + unit
    for (topic, queue_id), content in units.items():
        folder = store / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for begin in range(0, len(content), QUEUE_FILE_SIZE):
            (folder / f"{begin:020}").write_bytes(content[begin : begin + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0"))
    return store
