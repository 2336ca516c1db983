"""Samples: takes the samples of all statistics, and finds a statistic by its name and key.

The histories of queues are kept with their counters. Those of topics and groups are sums over the counters, computed when a
sample is taken.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pocketmq.broker.stats.stats_item import Counter, History, SampleTime, SampleTimes, StatsItem

if TYPE_CHECKING:
    from pocketmq.broker.stats.stats import BrokerStats

_NUMS, _SIZE, _, _TOOK_MS = range(4)
"""Columns of the histories, besides CALLS_COLUMN; those of reads from the disk have the first three, those of queues that
are pulled all."""
# Statistic -> kind of its history, column.
_STATISTICS: Final = {
    "TOPIC_PUT_NUMS": ("topic put", _NUMS), "TOPIC_PUT_SIZE": ("topic put", _SIZE),
    "QUEUE_PUT_NUMS": ("queue put", _NUMS), "QUEUE_PUT_SIZE": ("queue put", _SIZE),
    "BROKER_PUT_NUMS": ("broker put", _NUMS),
    "GROUP_GET_NUMS": ("group get", _NUMS), "GROUP_GET_SIZE": ("group get", _SIZE),
    "QUEUE_GET_NUMS": ("queue get", _NUMS), "QUEUE_GET_SIZE": ("queue get", _SIZE),
    "GROUP_GET_LATENCY": ("queue latency", _TOOK_MS),
    "BROKER_GET_NUMS": ("broker get", _NUMS),
    "GROUP_GET_FROM_DISK_NUMS": ("group disk", _NUMS), "GROUP_GET_FROM_DISK_SIZE": ("group disk", _SIZE),
    "BROKER_GET_FROM_DISK_NUMS": ("broker disk", _NUMS), "BROKER_GET_FROM_DISK_SIZE": ("broker disk", _SIZE),
    "SNDBCK_PUT_NUMS": ("send back", _NUMS),
}  # fmt: skip
_OF_TOPICS: Final = ("topic put", "group get", "group disk")
_OF_COUNTERS: Final = ("queue put", "queue get", "queue latency", "send back")

Key = tuple[str, ...]
"""Kind of a history, and the names that it is for: a topic, a topic and a group, the cluster, or a statistic and its key."""


class Samples:
    """The histories of all statistics. The counters belong to `stats`."""

    def __init__(self, stats: "BrokerStats") -> None:
        self._stats = stats
        self._times = SampleTimes()
        self._histories: dict[Key, History] = {}
        self._forgotten_count = 0

    # --- taking ---------------------------------------------------------------------------------------------------------

    def sampling(self, now_ms: int) -> Iterator[None]:
        """Take a sample of everything in small steps, as there may be many queues and groups."""
        stats, cluster_name = self._stats, self._stats.cluster_name
        sample, forgotten_count = SampleTime(self._times.latest.number + 1, now_ms), self._forgotten_count
        sums: dict[Key, tuple[int, ...]] = {}
        for kind, total in (("broker put", stats.put_total), ("broker get", stats.get_total)):
            sums[kind, cluster_name] = total.nums, total.size, total.times
        if (read := stats.get_total).disk_nums:
            sums["broker disk", cluster_name] = read.disk_nums, read.disk_size, read.times
        for (topic, _), counter in tuple(stats.puts.items()):
            values = counter.nums, counter.size, counter.times
            self._add_to(counter, sample, values)
            _sum(sums, ("topic put", topic), values)
            yield
        for (group, topic, _), counter in tuple(stats.gets.items()):
            values = counter.nums, counter.size, counter.times
            self._add_to(counter, sample, (*values, round(counter.took_s * 1000)))
            _sum(sums, ("group get", topic, group), values)
            if counter.disk_nums:
                _sum(sums, ("group disk", topic, group), (counter.disk_nums, counter.disk_size, counter.times))
            yield
        for counter in tuple(stats.send_backs.values()):
            self._add_to(counter, sample, (counter.nums, 0, counter.times))
            yield
        for key, count in stats.others.items():
            total_count = count()
            sums["other", *key] = total_count, 0, total_count
        is_new_allowed = forgotten_count == self._forgotten_count  # else a topic deleted since would get a history again
        for of, summed in sums.items():
            history = self._histories.get(of)
            if history is None:
                if not is_new_allowed and of[0] in _OF_TOPICS:
                    continue
                history = self._histories[of] = History(sample, len(summed))
            history.add(sample.number, summed, self._times)
            yield
        self._times.add(sample)

    def _add_to(self, counter: Counter, sample: SampleTime, values: tuple[int, ...]) -> None:
        if counter.history is None:
            counter.history = History(sample, len(values))
        counter.history.add(sample.number, values, self._times)

    def forget_topic(self, topic: str) -> None:
        """Drop the histories of a deleted topic that are not kept with counters."""
        self._forgotten_count += 1
        for key in [key for key in self._histories if key[1] == topic and key[0] in _OF_TOPICS]:
            del self._histories[key]

    # --- finding --------------------------------------------------------------------------------------------------------

    def item(self, name: str, key: str) -> StatsItem | None:
        """Return a statistic, or None before its first sample. Must be cheap: tools ask for many that do not exist."""
        kind, column = _STATISTICS.get(name, ("other", _NUMS))
        if kind in _OF_COUNTERS:
            counter = self._counter(kind, key)
            history = None if counter is None else counter.history
        else:
            names = (name, key) if kind == "other" else key.split("@", 1) if kind.startswith("group") else (key,)
            history = self._histories.get((kind, *names))
        return None if history is None else StatsItem(self._times, history, column)

    def group_get(self, topic: str, group: str) -> StatsItem | None:
        """Return the number of messages that a group has pulled from a topic."""
        history = self._histories.get(("group get", topic, group))
        return None if history is None else StatsItem(self._times, history, _NUMS)

    def _counter(self, kind: str, key: str) -> Counter | None:
        """Return the counter of a queue or of a send-back; its key has the topic, the queue and the group as in Apache's."""
        parts = key.split("@", 1 if kind in ("queue put", "send back") else 2)
        if kind == "send back" and len(parts) == 2:
            return self._stats.send_backs.get((parts[1], parts[0]))
        if kind == "queue put" and len(parts) == 2 and (queue_id := _queue_id(parts[1])) is not None:
            return self._stats.puts.get((parts[0], queue_id))
        if kind == "queue get" and len(parts) == 3 and (queue_id := _queue_id(parts[1])) is not None:
            return self._stats.gets.get((parts[2], parts[0], queue_id))
        if kind == "queue latency" and len(parts) == 3 and (queue_id := _queue_id(parts[0])) is not None:
            return self._stats.gets.get((parts[2], parts[1], queue_id))
        return None


def _sum(sums: dict[Key, tuple[int, ...]], key: Key, values: tuple[int, ...]) -> None:
    """Add `values` to the sum of a key."""
    before = sums.get(key)
    sums[key] = values if before is None else tuple(map(int.__add__, before, values))


def _queue_id(text: str) -> int | None:
    """Parse a queue id of at most nine digits without leading zeros. Returns None for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and text == str(int(text)) else None
