"""Columns of the `messages` table, decoded from a window of CommitLog records.

A column is decoded for a whole window at once, and only if it was requested. The byte positions come from the declarations
in `layout`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.spark_analytics.decoding import body_types
from pocketmq.spark_analytics.decoding.properties import PropertyTable, slices, text
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.host import host_text
from pocketmq.store.format.layout import (
    BORNHOST_V6_FLAG,
    HOST_SIZE,
    HOST_V6_SIZE,
    RECORD_FIXED,
    STOREHOSTADDRESS_V6_FLAG,
    field_position,
)
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.format.record_window import HEADER, Mask, RecordWindow

# Born timestamps are set by clients and may not fit into Spark's microseconds.
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
_HOST_FIELDS: Final = ("born_host", "store_host")
_HOSTS: Final = np.dtype(
    {
        "names": _HOST_FIELDS,
        "formats": ["<i8", "<i8"],
        "offsets": [field_position(RECORD_FIXED, name) for name in _HOST_FIELDS],
        "itemsize": HEADER.itemsize,
    }
)
_LEVELS: Final = DelayLevels()
HEX_PAIRS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), "V2")


class Records(RecordWindow):
    """The records of a window, decoded into Arrow columns on demand, one row per record."""

    path: str = ""
    broker_name: str = ""
    delay_levels: DelayLevels
    own_offsets: Positions | None = None
    """Physical offsets, where they are not those of the records' places in `data` (see `inner_batches`)."""
    plain: list[bytes | None] | None = None
    """Decompressed bodies of the compressed rows, in row order; None where decompression failed (see `bodies`)."""
    typed: Any | None = None
    """Decoded bodies as an Arrow array, null where that failed (see `typed_bodies`)."""
    body_damage: Mapping[int, str] = {}
    """Why bodies could not be decoded, by row."""

    @classmethod
    def of(
        cls, window: RecordWindow, path: str = "", delay_levels: DelayLevels = _LEVELS, broker_name: str = ""
    ) -> "Records":
        """Wrap `window`; `path` is the path of its file."""
        records = cls(window.data, window.physical_offset, window.starts, window.sizes)
        records.path, records.broker_name, records.delay_levels = path, broker_name, delay_levels
        return records

    @property
    def physical_offsets(self) -> Positions:
        return super().physical_offsets if self.own_offsets is None else self.own_offsets

    def rows(self, keep: Any) -> Self:
        """Return only the rows selected by `keep`."""
        kept = super().rows(keep)
        kept.path, kept.broker_name, kept.delay_levels = self.path, self.broker_name, self.delay_levels
        if self.own_offsets is not None and kept is not self:
            kept.own_offsets = self.own_offsets[keep]
        return kept

    @property
    def bodies(self) -> Any:
        return slices(self.data, self.body_begins, self.body_ends)

    @cached_property
    def topic_column(self) -> Any:
        # A window holds few topics and many messages: each topic is decoded once.
        texts, ids = self.topic_texts()
        return texts.take(ids)

    def topic_texts(self) -> tuple[Any, Any]:
        """Return (distinct topics, for each record the index of its topic) as Arrow arrays."""
        names, ids = self.topics()
        return text(pa.array(names, pa.binary())), pa.array(ids)

    def is_of_topics(self, topics: Collection[str]) -> Mask:
        """Return a mask of the records that belong to any of the topics."""
        names, ids = self.topics()
        mask: Mask = np.array([str(name, "utf-8", "replace") in topics for name in names], bool)[ids]
        return mask

    def _numbered(self, hashes: npt.NDArray[np.uint64]) -> tuple[Positions, int]:
        """As in RecordWindow, but faster."""
        encoded = pa.array(hashes).dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)

    def hosts(self, name: str, v6_flag: int) -> Any:
        begins = self.starts + self.by_host_flags(lambda flags: field_position(RECORD_FIXED, name, flags))
        sizes = self.by_host_flags(lambda flags: HOST_V6_SIZE if flags & v6_flag else HOST_SIZE)
        return slices(self.data, begins, begins + sizes)

    def timestamps_us(self, name: str) -> Positions:
        times_us: Positions = np.clip(self.fixed(name), -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX) * 1000
        return times_us

    def has_property(self, name: str) -> Mask:
        """Return a mask of the records that have a property."""
        begins, _ = self.property_spans(name.encode())
        found: Mask = begins >= 0
        return found

    def property_column(self, name: str) -> Any:
        """Return the value of one property per row, null where it is absent."""
        begins, ends = self.property_spans(name.encode())
        absent = begins < 0
        if not absent.any():
            return text(slices(self.data, begins, ends))
        begins, ends = np.where(absent, self.properties_begins, begins), np.where(absent, self.properties_begins, ends)
        return text(slices(self.data, begins, ends, absent))

    @cached_property
    def properties(self) -> PropertyTable:
        return PropertyTable(self.data, self.properties_begins - 1, self.properties_ends)

    def crc_ok(self) -> Any:
        ok = np.ones(len(self), bool)
        ok[self._bad_crc()] = False
        return pa.array(ok)

    def offset_msg_ids(self) -> Any:
        """Return the upper-case hex of store host and physical offset, as Java's MessageDecoder.createMessageId does."""
        own = pa.Array.from_buffers(pa.binary(8), len(self), [None, pa.py_buffer(self.physical_offsets.astype(">i8"))])
        hosts = self.hosts("store_host", STOREHOSTADDRESS_V6_FLAG)
        _, offsets, raw = pc.binary_join_element_wise(hosts, own.cast(pa.binary()), b"").buffers()
        ends = np.frombuffer(offsets, np.int32, len(self) + 1)
        digits = HEX_PAIRS[np.frombuffer(raw, np.uint8, int(ends[-1]))]
        return pa.Array.from_buffers(pa.string(), len(self), [None, pa.py_buffer(2 * ends), pa.py_buffer(digits)])


def _host_texts(records: Records, field: str, v6_flag: int) -> Any:
    headers = records.headers
    if headers is None:
        packed = records.hosts(field, v6_flag).dictionary_encode()
        return _texts_of(packed.dictionary.to_pylist()).take(packed.indices)
    # Viewed as integers, which Arrow compares and hashes faster than bytes.
    numbers = np.ascontiguousarray(headers.view(_HOSTS)[field])
    if (numbers == numbers[0]).all():  # a broker has one host
        return pa.repeat(host_text(numbers[0].tobytes()), len(records))
    packed = pa.array(numbers).dictionary_encode()
    return _texts_of([number.tobytes() for number in packed.dictionary.to_numpy()]).take(packed.indices)


def _texts_of(hosts: list[bytes]) -> Any:
    return pa.array([host_text(host) for host in hosts], pa.string())


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its Arrow type, which tells Spark's, and the function that decodes it from records.

    Spark skips the null check of a column that is declared NOT NULL.
    """

    name: str
    arrow_type: Any
    decode: Callable[[Records], Any]
    is_nullable: bool = False

    @property
    def spark_type(self) -> str:
        """The type as `DataType.simpleString()` shows it."""
        return body_types.simple(self.arrow_type)

    @property
    def ddl(self) -> str:
        """The column's declaration in a DDL schema."""
        return f"`{self.name}` {body_types.ddl(self.arrow_type)}" + ("" if self.is_nullable else " NOT NULL")


TIMESTAMP: Final = pa.timestamp("us", "UTC")


def _number(name: str, arrow_type: Any, field: str) -> Column:
    return Column(name, arrow_type, lambda records: pa.array(records.fixed(field), arrow_type))


def _timestamp(name: str, field: str) -> Column:
    return Column(name, TIMESTAMP, lambda records: pa.array(records.timestamps_us(field)).cast(TIMESTAMP))


def _host(name: str, field: str, v6_flag: int) -> Column:
    return Column(name, pa.string(), lambda records: _host_texts(records, field, v6_flag))


def _property(name: str, key: str) -> Column:
    return Column(name, pa.string(), lambda records: records.property_column(key), is_nullable=True)


# Names as in Java's MessageExt and in rocketmq-spark; the table has its columns in this order.
COLUMNS: Final = {
    column.name: column
    for column in (
        Column("topic", pa.string(), lambda records: records.topic_column),
        _number("queueId", pa.int32(), "queue_id"),
        _number("queueOffset", pa.int64(), "queue_offset"),
        Column("physicalOffset", pa.int64(), lambda records: pa.array(records.physical_offsets)),
        _number("storeSize", pa.int32(), "total_size"),
        _number("bodyCrc", pa.int32(), "body_crc"),
        _number("sysFlag", pa.int32(), "sys_flag"),
        _number("flag", pa.int32(), "flag"),
        _timestamp("bornTimestamp", "born_timestamp_ms"),
        _timestamp("storeTimestamp", "store_timestamp_ms"),
        _host("bornHost", "born_host", BORNHOST_V6_FLAG),
        _host("storeHost", "store_host", STOREHOSTADDRESS_V6_FLAG),
        _number("reconsumeTimes", pa.int32(), "reconsume_times"),
        _number("preparedTransactionOffset", pa.int64(), "prepared_transaction_offset"),
        Column("body", pa.binary(), lambda records: records.bodies),
        Column("properties", pa.map_(pa.string(), pa.string()), lambda r: r.properties.map_array()),
        _property("tags", TAGS),
        _property("keys", KEYS),
        _property("uniqKey", UNIQ_KEY),
        Column("offsetMsgId", pa.string(), Records.offset_msg_ids),
    )
}


def record_batch(records: Records, columns: Sequence[Column]) -> Any:
    """Return columns of the records as an Arrow RecordBatch."""
    return pa.RecordBatch.from_arrays([column.decode(records) for column in columns], schema=arrow_schema(columns))


def arrow_schema(columns: Sequence[Column]) -> Any:
    return pa.schema([pa.field(column.name, column.arrow_type, column.is_nullable) for column in columns])
