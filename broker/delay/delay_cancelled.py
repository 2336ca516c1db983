"""Messages of delay levels that are not to be delivered (any more): `config/delayCancelled.json`.

A level is a queue, from which nothing can be taken. So what is cancelled is remembered by its queue offset, until a start at
which the level has passed it. The file is ours: Apache's broker does not know it, and would deliver these messages.

A message that somebody wanted at once has a copy in its topic already. On the disk it counts as cancelled only once that
copy is synced: written earlier, a power cut could lose the message in both places.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.runtime.clock import Clock
from pocketmq.store.disk.config_file import ConfigFile


class DelayCancelled(ConfigManager):
    """By level and queue offset; each with the physical offset up to which the log must be synced before it counts."""

    def __init__(self, file: ConfigFile, clock: Clock, flushed_offset: Callable[[], int]) -> None:
        """`flushed_offset` tells how far the log is synced."""
        super().__init__(file, clock)
        self._flushed_offset = flushed_offset
        self._table: dict[int, dict[int, int]] = {}

    def end_of(self, level: int, queue_offset: int) -> int | None:
        """None: to be delivered. Else not, and progress may be written once the log is synced up to this offset."""
        rows = self._table.get(level)
        return None if rows is None else rows.get(queue_offset)

    def of(self, level: int, begin: int, end: int) -> list[int]:
        """Queue offsets in [begin, end) that are not to be delivered."""
        return [queue_offset for queue_offset in self._table.get(level, ()) if begin <= queue_offset < end]

    def cancel(self, level: int, queue_offset: int) -> None:
        """Not to be delivered, and on disk before this returns. Raises OSError, with nothing cancelled."""
        self._table.setdefault(level, {})[queue_offset] = 0
        try:
            self.file.persist(self.encode())
        except OSError:
            del self._table[level][queue_offset]
            raise

    def delivered(self, level: int, queue_offset: int, end_offset: int) -> None:
        """Its copy is in the log, before physical offset `end_offset`."""
        self._table.setdefault(level, {})[queue_offset] = end_offset

    def passed(self, progress: Mapping[int, tuple[int, int]]) -> None:
        """Forget what the levels have passed. `progress` is ScheduleMessageService's, as its file had it: a newer one may be
        lost, and the cancelled messages be met again."""
        for level, rows in self._table.items():
            next_offset, _ = progress.get(level, (0, 0))
            for queue_offset in [found for found in rows if found < next_offset]:
                del rows[queue_offset]

    def encode(self) -> dict[str, Any]:
        flushed = self._flushed_offset()
        rows = {level: sorted(at for at, end in rows.items() if end <= flushed) for level, rows in self._table.items()}
        return {"cancelled": {level: offsets for level, offsets in sorted(rows.items()) if offsets}}

    def decode(self, document: dict[str, Any]) -> None:
        for level, rows in (document.get("cancelled") or {}).items():
            self._table[int(level)] = {int(queue_offset): 0 for queue_offset in rows}
