"""LaneUnits: interface of the compiled lane to the store, whose queues and index take the units of its records."""

from typing import Protocol

from pocketmq.store.format.message import QueueKey


class LaneUnits(Protocol):
    """Units of records that the compiled lane made, which wait to be dispatched (`pocketmq.lane._lane.Lane`)."""

    @property
    def pending(self) -> tuple[int, int]:
        """Number of units, and of the hashes of keys for the index."""

    @property
    def last(self) -> tuple[int, int, int] | None:
        """(physical offset, size, store time in ms) of the last record."""

    @property
    def last_indexed(self) -> tuple[int, int] | None:
        """(physical offset, store time in ms) of the last record that has keys."""

    def runs(self) -> list[tuple[QueueKey, int, bytes, list[int], int, int]]:
        """Return by queue: key, first queue offset, units, tags codes, bytes of the records, end of the last record."""

    def index(self, file: memoryview, slot_count: int, header: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """Add index entries to a file; return its new (entry count, used slots, begin time, begin offset)."""

    def physical_offsets(self) -> list[int]:
        """Return the physical offsets of the records, in log order."""

    def clear(self) -> None:
        """Forget the units."""
