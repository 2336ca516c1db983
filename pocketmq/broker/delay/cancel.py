"""Cancelled messages: keys by which records of the timer topic cancel others, and `config/delayCancelled.json` for levels.

A timer message is cancelled by another record in its slot, or superseded by a copy of itself that was carried forward. Keys
are compared when its record is read for delivery.

Messages of a level cannot be removed from the middle of its queue. So the queue offset of a cancelled message is kept until,
at a start, the level's progress is beyond it. The file is PocketMQ's own: Apache's broker would deliver these messages.

A message delivered ahead of time on request has a copy in its topic already. It is saved as cancelled only after that copy
is synced: otherwise a power cut could lose the message in both places.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.broker.put.delivery_time import PMQ_CANCELS, PMQ_COPY_OF, TIMER_DEL_UNIQKEY, TIMER_ROLL_TIMES
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.runtime.clock import Clock
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.properties import REAL_TOPIC, UNIQ_KEY


def cancel_key(properties: dict[str, str]) -> str | None:
    """Return the key of the messages that a record cancels; None if it is a message itself.

    TIMER_DEL_UNIQKEY names messages of the record's own topic only: every client that may send to the topic can set it, and
    several topics may contain the same unique key, because clients choose it. A record of this broker's commands cancels
    one message by its place, and has the unique key for other brokers. If one of them stored the record again, the place
    does not count.
    """
    name = properties.get(TIMER_DEL_UNIQKEY)
    if name is None:
        return None
    place = properties.get(PMQ_CANCELS, "")
    if place.isdecimal() and (TIMER_ROLL_TIMES not in properties or PMQ_COPY_OF in properties):
        return _place_name(int(place))
    return _in_topic(properties.get(REAL_TOPIC, ""), name)


def _place_name(physical_offset: int) -> str:
    return f"@{physical_offset}"


def _in_topic(topic: str, name: str) -> str:
    return f"{topic}/{name}"  # no topic contains a slash


def superseded_key(physical_offset: int) -> str:
    """Return the key by which the copy of a record cancels that record."""
    return f"#{physical_offset}"


def keys_of(properties: dict[str, str], physical_offset: int) -> set[str]:
    """Return the keys that cancel a record: those of 5.5.0, 5.3 and this broker, and that of a later copy."""
    topic, unique_key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
    at = _place_name(int(properties.get(PMQ_COPY_OF, physical_offset)))
    names = (at, unique_key, f"{topic}+{unique_key}") if unique_key else (at,)
    return {at, superseded_key(physical_offset), *(_in_topic(topic, name) for name in names)}


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
