"""Cancelled messages of delay levels: `config/delayCancelled.json`.

Messages cannot be removed from the middle of a level's queue. So the queue offset of a cancelled message is kept until, at a
start, the level's progress is beyond it. The file is PocketMQ's own: Apache's broker would deliver these messages.

A message delivered ahead of time on request has a copy in its topic already. It is saved as cancelled only after that copy
is synced: otherwise a power cut could lose the message in both places.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.runtime.clock import Clock
from pocketmq.store.disk.config_file import ConfigFile


class DelayCancelled(ConfigManager):
    """Table of level and queue offset -> physical offset up to which the log must be synced before the entry is saved."""

    def __init__(self, file: ConfigFile, clock: Clock, flushed_offset: Callable[[], int]) -> None:
        """`flushed_offset` returns the physical offset up to which the log is synced."""
        super().__init__(file, clock)
        self._flushed_offset = flushed_offset
        self._table: dict[int, dict[int, int]] = {}

    def end_of(self, level: int, queue_offset: int) -> int | None:
        """Return None if the message is to be delivered, else the offset up to which the log must be synced before the
        level's progress beyond the message may be written."""
        rows = self._table.get(level)
        return None if rows is None else rows.get(queue_offset)

    def of(self, level: int, begin: int, end: int) -> list[int]:
        """Return the cancelled queue offsets in [begin, end)."""
        return [queue_offset for queue_offset in self._table.get(level, ()) if begin <= queue_offset < end]

    def cancel(self, level: int, queue_offset: int) -> None:
        """Cancel a message durably. Raises OSError if that fails; the message is then not cancelled."""
        self._table.setdefault(level, {})[queue_offset] = 0
        try:
            self.file.persist(self.encode())
        except OSError:
            del self._table[level][queue_offset]
            raise

    def delivered(self, level: int, queue_offset: int, end_offset: int) -> None:
        """Cancel a message whose copy is in the log, before physical offset `end_offset`."""
        self._table.setdefault(level, {})[queue_offset] = end_offset

    def passed(self, progress: Mapping[int, tuple[int, int]]) -> None:
        """Forget messages that the levels have passed, and those that the store lost in a power cut: new messages get their
        queue offsets.

        `progress` is that of LevelSource as read from its file: newer progress may be lost, and the cancelled
        messages would be reached again.
        """
        for level, rows in self._table.items():
            next_offset, max_offset = progress.get(level, (0, 0))
            for queue_offset in [found for found in rows if not next_offset <= found < max_offset]:
                del rows[queue_offset]

    def encode(self) -> dict[str, Any]:
        flushed = self._flushed_offset()
        rows = {level: sorted(at for at, end in rows.items() if end <= flushed) for level, rows in self._table.items()}
        return {"cancelled": {level: offsets for level, offsets in sorted(rows.items()) if offsets}}

    def decode(self, document: dict[str, Any]) -> None:
        for level, rows in (document.get("cancelled") or {}).items():
            self._table[int(level)] = {int(queue_offset): 0 for queue_offset in rows}
