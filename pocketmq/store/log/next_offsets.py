"""NextOffsets: the next offset of each queue at the log's end."""

from collections.abc import Iterator, MutableMapping

from pocketmq.store.format.lane_units import NextOffset
from pocketmq.store.format.message import QueueKey


class NextOffsets(MutableMapping[QueueKey, int]):
    """(topic, queue id) -> next offset. Each is in a cell, which the compiled lane knows and changes, too."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[QueueKey, NextOffset] = {}

    def __getitem__(self, key: QueueKey) -> int:
        return self.cells[key].value

    def __setitem__(self, key: QueueKey, value: int) -> None:
        cell = self.cells.get(key)
        if cell is None:
            self.cells[key] = NextOffset(value)
        else:
            cell.value = value

    def __delitem__(self, key: QueueKey) -> None:
        self.cells.pop(key).value = -1  # the lane looks for the key again

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)
