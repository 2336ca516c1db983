"""LaneUnits: interface of the compiled lane to the store, whose queues and index take the units of its records."""

from ctypes import Structure, addressof, c_int64
from typing import Any, Protocol

from pocketmq.store.format.message import QueueKey, Watched


class FileEnds(Structure):
    """Numbers of a mapped file. The compiled lane reads and changes them in place, in this layout."""

    __slots__ = ()
    _fields_ = (
        ("wrote", c_int64), ("reserved", c_int64), ("address", c_int64), ("address_start", c_int64), ("address_end", c_int64)
    )  # fmt: skip
    wrote: int
    reserved: int
    address: int
    """Address of the mapping, or the one at which it would begin if its end were the file's tail; 0 without both."""
    address_start: int
    """Start of the bytes that are at `address`, as a position in the file."""
    address_end: int
    """End of the bytes that can be written at `address`, as a position in the file."""
    __hash__ = object.__hash__


class _Numbers(Structure):
    """Numbers that the compiled lane finds by their address."""

    __slots__ = ()
    __hash__ = object.__hash__

    def address(self) -> int:
        """Return the address of these numbers."""
        return addressof(self)


class QueueEnds(_Numbers):
    """Numbers of a queue. The compiled lane reads and changes them in place, in this layout."""

    __slots__ = ()
    _fields_ = (
        ("max_offset", c_int64), ("max_physical_offset", c_int64), ("_tail_address", c_int64), ("is_dirty", c_int64)
    )  # fmt: skip
    max_offset: int
    max_physical_offset: int
    _tail_address: int
    """Address of the numbers of the file to which units are appended; 0 without one."""
    is_dirty: int
    """Whether the compiled lane added the queue to those with units that may not be synced, and it still is one of them."""


class NextOffset(_Numbers):
    """Next offset of a queue at the log's end; negative if it does not count any more. The compiled lane changes it, too,
    in place."""

    __slots__ = ()
    _fields_ = (("value", c_int64),)
    value: int


class IndexEnds(_Numbers):
    """Numbers of an index file. The compiled lane reads and changes them in place, in this layout."""

    __slots__ = ()
    _fields_ = (
        ("begin_timestamp_ms", c_int64), ("end_timestamp_ms", c_int64), ("begin_physical_offset", c_int64),
        ("end_physical_offset", c_int64), ("hash_slot_count", c_int64), ("index_count", c_int64), ("_slot_count", c_int64),
        ("_index_count_max", c_int64), ("_reserved_count", c_int64), ("_size", c_int64), ("_map_address", c_int64),
        ("_is_dirty", c_int64),
    )  # fmt: skip
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int
    _slot_count: int
    _index_count_max: int
    _reserved_count: int
    """Number of entries, with the one of number 0, for which disk space is reserved."""
    _size: int
    _map_address: int
    """Address of the mapping; 0 after `close`."""
    _is_dirty: int


class LaneUnits(Protocol):
    """Units of records that the compiled lane made, which wait to be dispatched (`pocketmq.lane._lane.Lane`).

    They are in batches of adjacent records. All methods but `seal` are about the first batch.
    """

    @property
    def last(self) -> tuple[int, int, int] | None:
        """(physical offset, size, store time in ms) of the last record."""

    @property
    def has_keys(self) -> bool:
        """Whether one of the records has keys for the index."""

    def append(
        self, queues: dict[QueueKey, Any], dirty: dict[Any, None], watched: Watched | None, index: "IndexEnds | None"
    ) -> tuple[bool, int, int, list[tuple[QueueKey, int, list[int], int]]]:
        """Append the units to `queues`, each of which is added to `dirty`, and their keys to a file of the index.

        Return whether all was appended, the number of units that were, the bytes of their records, and the arrivals at the
        watched queues (None: at all): key, max offset, tags codes, bytes of the records.
        """

    def take_counts(self, most: int) -> list[tuple[QueueKey, int, int]]:
        """Take the counts of units that `append` appended: queue, number, bytes of the records, of at most `most` queues."""

    def physical_offsets(self) -> list[int]:
        """Return the physical offsets of the records, in log order."""

    def seal(self) -> None:
        """End the last batch: a record that is not the lane's follows."""

    def clear(self) -> None:
        """Forget the units."""
