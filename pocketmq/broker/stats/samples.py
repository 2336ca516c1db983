"""Samples: takes the samples of all statistics, and finds a statistic by its name and key."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pocketmq.broker.stats.counts import Counts, SampleTime, SampleTimes, StatsItem

if TYPE_CHECKING:
    from pocketmq.broker.stats.stats import BrokerStats

NUMS, SIZE, CALLS, TOOK_US, DISK_NUMS, DISK_SIZE = range(6)
"""Columns of the tables. Puts have the first two, as a message counts as a call; send-backs and totals the first three."""


class _Of(NamedTuple):
    """Table and columns that hold a statistic."""

    kind: str
    column: int
    calls_column: int = CALLS
    divisor: int = 1


_STATISTICS: Final = {
    "TOPIC_PUT_NUMS": _Of("topic put", NUMS, NUMS), "TOPIC_PUT_SIZE": _Of("topic put", SIZE, NUMS),
    "QUEUE_PUT_NUMS": _Of("queue put", NUMS, NUMS), "QUEUE_PUT_SIZE": _Of("queue put", SIZE, NUMS),
    "GROUP_GET_NUMS": _Of("group get", NUMS), "GROUP_GET_SIZE": _Of("group get", SIZE),
    "QUEUE_GET_NUMS": _Of("queue get", NUMS), "QUEUE_GET_SIZE": _Of("queue get", SIZE),
    "GROUP_GET_LATENCY": _Of("queue latency", TOOK_US, divisor=1000),
    "GROUP_GET_FROM_DISK_NUMS": _Of("group disk", DISK_NUMS), "GROUP_GET_FROM_DISK_SIZE": _Of("group disk", DISK_SIZE),
    "SNDBCK_PUT_NUMS": _Of("send back", NUMS),
    "BROKER_PUT_NUMS": _Of("broker put", NUMS), "BROKER_GET_NUMS": _Of("broker get", NUMS),
    "BROKER_GET_FROM_DISK_NUMS": _Of("broker disk", NUMS), "BROKER_GET_FROM_DISK_SIZE": _Of("broker disk", SIZE),
}  # fmt: skip


class Samples:
    """The samples of all statistics. The tables of queues and groups belong to `stats`."""

    def __init__(self, stats: "BrokerStats") -> None:
        self._stats = stats
        self._times = SampleTimes()
        self._totals: Counts[tuple[str, ...]] = Counts(3)
        """(kind, cluster), or the name and key of another statistic."""

    def sampling(self, now_ms: int) -> Iterator[None]:
        """Take a sample of everything in small steps, as there may be many queues and groups."""
        stats, before = self._stats, self._times.latest.number
        sample, cluster_name = SampleTime(before + 1, now_ms), self._stats.cluster_name
        for kind, total in (("broker put", stats.put_total), ("broker get", stats.get_total)):
            self._totals.set_totals((kind, cluster_name), (total.nums, total.size, total.times))
        if (read := stats.get_total).disk_nums:
            self._totals.set_totals(("broker disk", cluster_name), (read.disk_nums, read.disk_size, read.times))
        for key, count in stats.others.items():
            total_count = count()
            self._totals.set_totals(key, (total_count, 0, total_count))
        tables: tuple[Counts[Any], ...] = (stats.puts, stats.gets, stats.send_backs, self._totals)
        for table in tables:
            yield from table.sampling(sample, before)
        self._times.add(sample)
        for table in tables:
            table.keep(self._times.numbers())

    def item(self, name: str, key: str) -> StatsItem | None:
        """Return a statistic, or None before its first sample. Must be cheap: tools ask for many that do not exist."""
        of, stats = _STATISTICS.get(name, _Of("other", NUMS)), self._stats
        if of.kind == "topic put":
            return self._item(of, stats.puts, stats.puts.groups.get(key))
        if of.kind in ("group get", "group disk"):
            topic, _, group = key.partition("@")
            item = self._item(of, stats.gets, stats.gets.groups.get((topic, group)))
            return item if item is not None and (of.kind == "group get" or item.latest()) else None
        if of.kind == "other":
            return self._row(of, self._totals, (name, key))
        if of.kind.startswith("broker"):
            return self._row(of, self._totals, (of.kind, key))
        return self._counted(of, key)

    def group_get(self, topic: str, group: str) -> StatsItem | None:
        """Return the number of messages that a group has pulled from a topic."""
        return self._item(_STATISTICS["GROUP_GET_NUMS"], self._stats.gets, self._stats.gets.groups.get((topic, group)))

    def _counted(self, of: _Of, key: str) -> StatsItem | None:
        """Return the statistic of a queue or of a send-back; its key has topic, queue and group as in Apache's."""
        stats, parts = self._stats, key.split("@", 1 if of.kind in ("queue put", "send back") else 2)
        if of.kind == "send back" and len(parts) == 2:
            return self._row(of, stats.send_backs, (parts[1], parts[0]))
        if of.kind == "queue put" and len(parts) == 2 and (queue_id := _queue_id(parts[1])) is not None:
            return self._row(of, stats.puts, (parts[0], queue_id))
        if of.kind == "queue get" and len(parts) == 3 and (queue_id := _queue_id(parts[1])) is not None:
            return self._row(of, stats.gets, (parts[2], parts[0], queue_id))
        if of.kind == "queue latency" and len(parts) == 3 and (queue_id := _queue_id(parts[0])) is not None:
            return self._row(of, stats.gets, (parts[2], parts[1], queue_id))
        return None

    def _row(self, of: _Of, counts: Counts[Any], key: object) -> StatsItem | None:
        place = counts.places.get(key)
        return None if place is None else self._item(of, counts, (place,))

    def _item(self, of: _Of, counts: Counts[Any], places: Sequence[int] | None) -> StatsItem | None:
        if places is None or counts.created(places) is None:
            return None
        return StatsItem(self._times, counts, places, of.column, of.calls_column, of.divisor)


def _queue_id(text: str) -> int | None:
    """Parse a queue id of at most nine digits without leading zeros. Returns None for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and text == str(int(text)) else None
