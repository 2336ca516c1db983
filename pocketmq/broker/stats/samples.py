"""Samples: takes the samples of all statistics, and finds a statistic by its name and key.

The histories of queues are kept with their counters. Those of topics and groups are sums over the counters, computed when a
sample is taken.
"""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from pocketmq.broker.stats.stats_item import Counter, History, SampleTime, SampleTimes, StatsItem

if TYPE_CHECKING:
    from pocketmq.broker.stats.stats import BrokerStats

K = TypeVar("K", bound=Hashable)

_NUMS, _SIZE, _TIMES, _TOOK_MS = range(4)
"""Columns of the histories; those of reads from the disk have the first three, those of queues that are pulled all."""
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


class Samples:
    """The histories of all statistics. The counters belong to `stats`."""

    def __init__(self, stats: "BrokerStats") -> None:
        self._stats = stats
        self._times = SampleTimes()
        self._topic_puts: dict[str, History] = {}
        # By (topic, group).
        self._group_gets: dict[tuple[str, str], History] = {}
        self._group_disk_gets: dict[tuple[str, str], History] = {}
        self._broker_disk_gets: dict[str, History] = {}
        self._other_histories: dict[tuple[str, str], History] = {}
        self._forgotten_count = 0

    # --- taking ---------------------------------------------------------------------------------------------------------

    def sampling(self, now_ms: int) -> Iterator[None]:
        """Take a sample of everything in small steps, as there may be many queues and groups."""
        sample, forgotten_count = SampleTime(self._times.latest.number + 1, now_ms), self._forgotten_count
        topics: dict[str, tuple[int, ...]] = {}
        groups: dict[tuple[str, str], tuple[int, ...]] = {}
        disk_reads: dict[tuple[str, str], tuple[int, ...]] = {}
        for counter in (self._stats.put_total, self._stats.get_total):
            self._add_to(counter, sample, (counter.nums, counter.size, counter.times))
        for (topic, _), counter in tuple(self._stats.puts.items()):
            values = counter.nums, counter.size, counter.times
            self._add_to(counter, sample, values)
            _sum(topics, topic, values)
            yield
        for (group, topic, _), counter in tuple(self._stats.gets.items()):
            values = counter.nums, counter.size, counter.times
            self._add_to(counter, sample, (*values, round(counter.took_s * 1000)))
            _sum(groups, (topic, group), values)
            if counter.disk_nums:
                _sum(disk_reads, (topic, group), (counter.disk_nums, counter.disk_size, counter.times))
            yield
        for counter in tuple(self._stats.send_backs.values()):
            self._add_to(counter, sample, (counter.nums, 0, counter.times))
            yield
        is_new_allowed = forgotten_count == self._forgotten_count  # else a topic deleted since would get a history again
        yield from self._add_all(self._topic_puts, topics, sample, is_new_allowed)
        yield from self._add_all(self._group_gets, groups, sample, is_new_allowed)
        yield from self._add_all(self._group_disk_gets, disk_reads, sample, is_new_allowed)
        read = self._stats.get_total
        if read.disk_nums:
            values = read.disk_nums, read.disk_size, read.times
            yield from self._add_all(self._broker_disk_gets, {self._stats.cluster_name: values}, sample, True)
        others: dict[tuple[str, str], tuple[int, ...]] = {
            key: (total := count(), 0, total) for key, count in self._stats.others.items()
        }
        yield from self._add_all(self._other_histories, others, sample, True)
        self._times.add(sample)

    def _add_to(self, counter: Counter, sample: SampleTime, values: tuple[int, ...]) -> None:
        if counter.history is None:
            counter.history = History(sample, len(values))
        counter.history.add(sample.number, values, self._times)

    def _add_all(
        self, histories: dict[K, History], values_by_key: dict[K, tuple[int, ...]], sample: SampleTime, is_new_allowed: bool
    ) -> Iterator[None]:
        for key, values in values_by_key.items():
            history = histories.get(key)
            if history is None:
                if not is_new_allowed:
                    continue
                history = histories[key] = History(sample, len(values))
            history.add(sample.number, values, self._times)
            yield

    def forget_topic(self, topic: str) -> None:
        """Drop the histories of a deleted topic that are not kept with counters."""
        self._forgotten_count += 1
        self._topic_puts.pop(topic, None)
        for histories in (self._group_gets, self._group_disk_gets):
            for key in [key for key in histories if key[0] == topic]:
                del histories[key]

    # --- finding --------------------------------------------------------------------------------------------------------

    def item(self, name: str, key: str) -> StatsItem | None:
        """Return a statistic, or None before its first sample. Must be cheap: tools ask for many that do not exist."""
        kind, column = _STATISTICS.get(name, ("other", _NUMS))
        history = self._other_histories.get((name, key)) if kind == "other" else self._history(kind, key)
        return None if history is None else StatsItem(self._times, history, column, _TIMES)

    def group_get(self, topic: str, group: str) -> StatsItem | None:
        """Return the number of messages that a group has pulled from a topic."""
        history = self._group_gets.get((topic, group))
        return None if history is None else StatsItem(self._times, history, _NUMS, _TIMES)

    def _history(self, kind: str, key: str) -> History | None:
        if kind == "topic put":
            return self._topic_puts.get(key)
        if kind.startswith("broker"):
            return self._broker_history(kind) if key == self._stats.cluster_name else None
        if kind == "group get":
            topic, _, group = key.partition("@")
            return self._group_gets.get((topic, group))
        if kind == "group disk":
            topic, _, group = key.partition("@")
            return self._group_disk_gets.get((topic, group))
        counter = self._counter(kind, key)
        return None if counter is None else counter.history

    def _broker_history(self, kind: str) -> History | None:
        if kind == "broker disk":
            return self._broker_disk_gets.get(self._stats.cluster_name)
        return (self._stats.put_total if kind == "broker put" else self._stats.get_total).history

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


def _sum(sums: dict[K, tuple[int, ...]], key: K, values: tuple[int, ...]) -> None:
    """Add `values` to the sum of a key."""
    before = sums.get(key)
    sums[key] = values if before is None else tuple(map(int.__add__, before, values))


def _queue_id(text: str) -> int | None:
    """Parse a queue id of at most nine digits without leading zeros. Returns None for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and text == str(int(text)) else None
