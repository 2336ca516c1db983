"""DelayLevels: the table of `messageDelayLevel`, and the due times of records in SCHEDULE_TOPIC_XXXX.

Levels are numbered from 1 and level n waits in queue n - 1. The due time is fixed once, when the record is dispatched: it is
the tags code of the record's queue unit, so a later change of the table does not affect waiting messages.
"""

from typing import Final

from pocketmq.store.format.java_hash import REMEMBERED_SIZE_MAX, java_hash, tags_code
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.properties import DELAY, TAGS

DEFAULT_MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Delay that 4.9.4 uses for a level that is not in its table (ScheduleMessageService.computeDeliverTimestamp).
_UNKNOWN_LEVEL_DELAY_MS: Final = 1_000
_DELAY_MAX_MS: Final = 1 << 53  # far beyond any calendar, and still exact in a JSON number


class DelayLevels:
    """`messageDelayLevel` as a table: `delays_ms[level - 1]`."""

    def __init__(self, text: str = DEFAULT_MESSAGE_DELAY_LEVEL) -> None:
        """Parse e.g. `1s 5s 2h`. Raises ValueError naming the entry that is wrong."""
        entries = text.split()
        if not entries:
            raise ValueError("messageDelayLevel is empty: give at least one level, such as 1s")
        self.delays_ms = tuple(_parse(entry, level) for level, entry in enumerate(entries, 1))

    @property
    def level_max(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """Return `level`, limited to the last level."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """Return the delay of `level`: 1 s below level 1, the last level's delay above the last."""
        if level < 1:
            return _UNKNOWN_LEVEL_DELAY_MS
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def tags_code(self, topic: str, properties: dict[str, str], store_timestamp_ms: int) -> int:
        """Return the tags code of a record: the hash of its tags, or the due time of a record in SCHEDULE_TOPIC_XXXX.

        The level is that of the record's DELAY property, as in CommitLog.checkMessageAndReturnSize. A record without that
        property, which a client sent to that topic directly, gets the hash of its tags.
        """
        if topic == SCHEDULE_TOPIC and (delay_ms := self.record_delay_ms(properties.get(DELAY))) is not None:
            return store_timestamp_ms + delay_ms
        tags = properties.get(TAGS)
        if not tags:
            return 0
        return tags_code(tags) if len(tags) <= REMEMBERED_SIZE_MAX else java_hash(tags)

    def record_delay_ms(self, delay: str | None) -> int | None:
        """Return the delay of a record in SCHEDULE_TOPIC_XXXX with this DELAY property; None if it names no level."""
        level = _level(delay)
        return self.delay_ms(level) if level > 0 else None


def _level(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _parse(entry: str, level: int) -> int:
    number, unit = entry[:-1], entry[-1]
    if unit not in _UNIT_MS:
        raise ValueError(f"messageDelayLevel: level {level} is {entry!r}: its unit must be one of s m h d")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"messageDelayLevel: level {level} is {entry!r}: expected a whole number before {unit!r}")
    delay_ms = int(number) * _UNIT_MS[unit]
    if delay_ms > _DELAY_MAX_MS:
        raise ValueError(f"messageDelayLevel: level {level} is {entry!r}: {delay_ms} ms, at most {_DELAY_MAX_MS}")
    return delay_ms
