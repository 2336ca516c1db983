"""The columns of the table that a CommitLog is, and how each is made from a window of records.

A column is decoded for a whole window at once, and only the columns that were asked for are. Which bytes they are is
derived from the declarations in `store.layout`.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_analytics.properties import PropertyTable, slices, text
from spark_analytics.reader import Bytes, Positions, Window, field_view
from store.layout import (
    BORNHOST_V6_FLAG,
    HOST_SIZE,
    HOST_V6_SIZE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_FIXED,
    RECORD_FIXED_STRUCTS,
    STOREHOSTADDRESS_V6_FLAG,
    SYS_FLAG_POSITION,
    dtype_of,
    field_position,
)
from store.properties import KEYS, TAGS, UNIQ_KEY
from store.record import HOST_FLAGS

FIXED_DTYPES: Final = {host_flags: dtype_of(RECORD_FIXED, host_flags) for host_flags in RECORD_FIXED_STRUCTS}
# A clock that a client made up may not fit Spark's microseconds.
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
HEX_PAIRS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), "V2")

Array = npt.NDArray[Any]


class Records:
    """The records of a window, decoded on demand; one row a record."""

    def __init__(self, window: Window) -> None:
        self.data: Bytes = window.data
        self.starts: Positions = window.starts
        self._sizes = window.sizes
        self._window_physical_offset = window.physical_offset
        self.host_flags = field_view(self.data, ">i4")[self.starts + SYS_FLAG_POSITION] & HOST_FLAGS
        self._groups = [(int(flags), np.flatnonzero(self.host_flags == flags)) for flags in np.unique(self.host_flags)]

    def __len__(self) -> int:
        return len(self.starts)

    def _by_host_flags(self, value: Callable[[int], int]) -> Positions:
        """A number a record that depends on its kinds of host only."""
        if len(self._groups) == 1:
            return np.full(len(self), value(self._groups[0][0]), np.int64)
        numbers = np.empty(len(self), np.int64)
        for flags, rows in self._groups:
            numbers[rows] = value(flags)
        return numbers

    def fixed(self, name: str) -> Array:
        """A number of the fixed part, in the machine's byte order."""
        dtype = FIXED_DTYPES[0][name]
        at = self.starts + self._by_host_flags(lambda flags: field_position(RECORD_FIXED, name, flags))
        numbers: Array = field_view(self.data, dtype)[at].astype(dtype.newbyteorder("="))
        return numbers

    @cached_property
    def body_begins(self) -> Positions:
        return self.starts + self._by_host_flags(lambda flags: RECORD_FIXED_STRUCTS[flags].size)

    @cached_property
    def _lengths(self) -> tuple[Positions, Positions, Positions, Positions, npt.NDArray[np.bool_]]:
        """Ends of bodies, begins and ends of topics, begins of properties, and whether all lengths add up to the size."""
        limit = self.starts + self._sizes
        body_ends = self.body_begins + self.fixed("body_size")
        # Each length is used only after it was seen to stay within its record: the positions must be safe to read at.
        sound = (body_ends >= self.body_begins) & (body_ends + 3 <= limit)
        body_ends = np.where(sound, body_ends, self.body_begins)
        v2 = self.fixed("magic_code") == MESSAGE_MAGIC_CODE_V2
        topic_begins = body_ends + 1 + v2
        topic_sizes = self.data[body_ends].astype(np.int64)
        if v2.any():
            topic_sizes = np.where(v2, (topic_sizes << 8) | self.data[topic_begins - 1], topic_sizes)
        topic_ends = topic_begins + topic_sizes
        sound &= topic_ends + 2 <= limit
        topic_ends = np.where(sound, topic_ends, topic_begins)
        at = np.minimum(topic_ends, len(self.data) - 2)
        sound &= topic_ends + 2 + field_view(self.data, ">u2")[at] == limit
        return body_ends, topic_begins, topic_ends, topic_ends + 2, sound

    def damaged(self) -> Positions:
        """Physical offsets of the records whose lengths do not add up."""
        return self._window_physical_offset + self.starts[~self._lengths[4]]

    def rows(self, keep: npt.NDArray[np.bool_]) -> "Records":
        """Only the rows that `keep` marks."""
        if keep.all():
            return self
        window = Window(self.data, self._window_physical_offset, self.starts[keep], self._sizes[keep])
        return Records(window)

    def sound(self) -> "Records":
        """Without the damaged rows."""
        return self.rows(self._lengths[4])

    @property
    def physical_offsets(self) -> Positions:
        return self._window_physical_offset + self.starts

    @property
    def sizes(self) -> Positions:
        return self._sizes

    @property
    def bodies(self) -> Any:
        return slices(self.data, self.body_begins, self._lengths[0])

    @cached_property
    def topics(self) -> Any:
        # A window holds few topics and many messages: each is checked and made text once.
        return _encoded(slices(self.data, self._lengths[1], self._lengths[2]), text)

    def hosts(self, name: str, v6_flag: int) -> Any:
        begins = self.starts + self._by_host_flags(lambda flags: field_position(RECORD_FIXED, name, flags))
        sizes = self._by_host_flags(lambda flags: HOST_V6_SIZE if flags & v6_flag else HOST_SIZE)
        return slices(self.data, begins, begins + sizes)

    def timestamps_us(self, name: str) -> Positions:
        return np.clip(self.fixed(name), -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX).astype(np.int64) * 1000

    @cached_property
    def properties(self) -> PropertyTable:
        begins = self._lengths[3]
        return PropertyTable(self.data, begins - 1, self.starts + self._sizes)

    def offset_msg_ids(self) -> Any:
        """Upper-case hex of store host and physical offset, as Java's MessageDecoder.createMessageId makes it."""
        hosts = self.hosts("store_host", STOREHOSTADDRESS_V6_FLAG)
        sizes = self._by_host_flags(lambda flags: HOST_V6_SIZE if flags & STOREHOSTADDRESS_V6_FLAG else HOST_SIZE)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes + 8)])
        raw = np.empty(int(offsets[-1]), np.uint8)
        host_data = np.frombuffer(hosts.buffers()[2], np.uint8, int(sizes.sum()))
        own = self.physical_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
        own_at = (offsets[1:, None] - 8) + np.arange(8)
        raw[own_at] = own
        is_host = np.ones(len(raw), bool)
        is_host[own_at] = False
        raw[is_host] = host_data
        digits = HEX_PAIRS[raw]
        return pa.Array.from_buffers(
            pa.string(), len(self), [None, pa.py_buffer((2 * offsets).astype(np.int32)), pa.py_buffer(digits)]
        )


def host_text(packed: bytes) -> str:
    """`ip:port` of a packed host; IPv6 addresses stand in brackets."""
    address, port = packed[:-4], int.from_bytes(packed[-4:], "big", signed=True)
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def _encoded(values: Any, convert: Callable[[Any], Any]) -> Any:
    """`convert` over a BinaryArray, done once for each distinct value."""
    encoded = values.dictionary_encode()
    return convert(encoded.dictionary).take(encoded.indices)


def _host_texts(values: Any) -> Any:
    return _encoded(values, lambda hosts: pa.array([host_text(host) for host in hosts.to_pylist()], pa.string()))


@dataclass(frozen=True, slots=True)
class Column:
    """`spark_type` as in a DDL string, `arrow_type` what Spark wants for it, `decode` makes the array."""

    name: str
    spark_type: str
    arrow_type: Any
    decode: Callable[[Records], Any]


TIMESTAMP: Final = pa.timestamp("us", "UTC")


def _number(name: str, spark_type: str, field: str) -> Column:
    arrow_type = {"int": pa.int32(), "bigint": pa.int64()}[spark_type]
    return Column(name, spark_type, arrow_type, lambda records: pa.array(records.fixed(field), arrow_type))


def _timestamp(name: str, field: str) -> Column:
    return Column(name, "timestamp", TIMESTAMP, lambda records: pa.array(records.timestamps_us(field)).cast(TIMESTAMP))


def _host(name: str, field: str, v6_flag: int) -> Column:
    return Column(name, "string", pa.string(), lambda records: _host_texts(records.hosts(field, v6_flag)))


def _property(name: str, key: str) -> Column:
    return Column(name, "string", pa.string(), lambda records: records.properties.value_of(key))


# Names as in Java's MessageExt and in rocketmq-spark; this order is the table's.
COLUMNS: Final = {
    column.name: column
    for column in (
        Column("topic", "string", pa.string(), lambda records: records.topics),
        _number("queueId", "int", "queue_id"),
        _number("queueOffset", "bigint", "queue_offset"),
        Column("physicalOffset", "bigint", pa.int64(), lambda records: pa.array(records.physical_offsets)),
        _number("storeSize", "int", "total_size"),
        _number("bodyCrc", "int", "body_crc"),
        _number("sysFlag", "int", "sys_flag"),
        _number("flag", "int", "flag"),
        _timestamp("bornTimestamp", "born_timestamp_ms"),
        _timestamp("storeTimestamp", "store_timestamp_ms"),
        _host("bornHost", "born_host", BORNHOST_V6_FLAG),
        _host("storeHost", "store_host", STOREHOSTADDRESS_V6_FLAG),
        _number("reconsumeTimes", "int", "reconsume_times"),
        _number("preparedTransactionOffset", "bigint", "prepared_transaction_offset"),
        Column("body", "binary", pa.binary(), lambda records: records.bodies),
        Column("properties", "map<string,string>", pa.map_(pa.string(), pa.string()), lambda r: r.properties.map_array()),
        _property("tags", TAGS),
        _property("keys", KEYS),
        _property("uniqKey", UNIQ_KEY),
        Column("offsetMsgId", "string", pa.string(), Records.offset_msg_ids),
    )
}
DDL: Final = ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS.values())


def record_batch(records: Records, names: list[str]) -> Any:
    """The named columns of the records as an Arrow RecordBatch."""
    columns = [COLUMNS[name] for name in names]
    schema = pa.schema([(column.name, column.arrow_type) for column in columns])
    return pa.RecordBatch.from_arrays([column.decode(records) for column in columns], schema=schema)
