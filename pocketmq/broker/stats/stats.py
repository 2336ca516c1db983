"""BrokerStats: counts of stored and pulled messages, in total and per second.

The hot path updates only one row of a table (`counts`) per queue for puts (once per loop turn) and a few numbers per queue
and group for pulls, which are added to a table when it is read. So are the puts and pulls that the compiled lane counts
itself. The figures for tools (topics, groups) are sums over these rows.

Samples are kept as in Java's StatsItem. Figures are the difference between the first sample of a row and the latest sample;
Apache's end at the last sample of the row, up to an hour ago.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pocketmq.broker.stats.counts import Counts
from pocketmq.broker.stats.measurements import SampleRing
from pocketmq.broker.stats.samples import CALLS, DISK_NUMS, DISK_SIZE, NUMS, SIZE, TOOK_US, Samples
from pocketmq.runtime.clock import Clock
from pocketmq.store.format.message import Arrival, QueueKey

SAMPLE_STEP_S: Final = 10
TPS_WINDOWS_S: Final = (10, 60, 600)
_QUEUES_AT_ONCE: Final = 100
_PULLED_MAX: Final = 1024
"""Queues and groups whose pulls are counted before they are added to the table."""

PulledKey = tuple[str, str, int]
"""Group, topic and queue id."""
TakeCounts = Callable[[int], list[tuple[QueueKey, int, int]]]
"""Takes the messages counted by queue, of at most so many queues: queue, number, bytes of the records."""


@dataclass(slots=True)
class Total:
    """Number of messages, bytes and calls since the start, and what of it counts as read from the disk."""

    nums: int = 0
    size: int = 0
    times: int = 0
    disk_nums: int = 0
    disk_size: int = 0


class BrokerStats:
    """Counters and their samples."""

    def __init__(self, cluster_name: str, clock: Clock) -> None:
        self.cluster_name = cluster_name
        self.clock = clock
        self.boot_time_ms = clock.message_time_ms()
        self._puts: Counts[QueueKey] = Counts(2, group_of=lambda key: key[0])
        self._take_lane_counts: TakeCounts | None = None
        self._gets: Counts[PulledKey] = Counts(6, group_of=lambda key: (key[1], key[0]))
        self._pulled: dict[PulledKey, list[int]] = {}
        """Columns of pulls that are not in the table yet."""
        self._note_lane_pulls: Callable[[], None] = lambda: None
        self.send_backs: Counts[tuple[str, str]] = Counts(3)
        """(group, topic) -> messages sent back."""
        self.put_total, self._get_total = Total(), Total()
        """Totals over all queues and groups, also those that are deleted or not counted separately."""
        self.misses = 0
        """Number of pulls that found nothing."""
        self.put_failed_times = 0
        self._get_max_s = 0.0
        self.counted: Callable[[int], object] = lambda count: None
        """Called at the end of each turn with new messages, with their number."""
        # Totals counted elsewhere and sampled here: (statistic, key) -> function that returns the total.
        self.others: dict[tuple[str, str], Callable[[], int]] = {}
        self._tps = SampleRing(TPS_WINDOWS_S[-1] + 1, 5)
        self._days = DayTotals()
        self.samples = Samples(self)
        self.sample_tps()

    # --- the hot path -----------------------------------------------------------------------------------------------

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Count the new messages of the grown queues; called once per loop turn, which is cheaper than once per put."""
        nums = size = 0
        for arrival in arrivals:
            if not arrival.is_counted:
                count = len(arrival.tags_codes)
                self._put((arrival.topic, arrival.queue_id), count, arrival.size)
                nums += count
                size += arrival.size
        if nums:
            self.put(nums, size)

    def put(self, nums: int, size: int) -> None:
        """Count the new messages of a turn in the totals."""
        total = self.put_total
        total.nums += nums
        total.size += size
        total.times += nums
        self.counted(nums)

    def _put(self, key: QueueKey, nums: int, size: int) -> None:
        """Count new messages of a queue."""
        counts = self._puts
        if (place := counts.place(key)) >= 0:
            counts.words[place + NUMS] += nums
            counts.words[place + SIZE] += size

    def use_lane(self, take_counts: TakeCounts | None) -> None:
        """Count the messages of a compiled lane from now on, which counts them by queue itself."""
        for _ in self.count_lane():
            pass
        self._take_lane_counts = take_counts

    def count_lane(self) -> Iterator[None]:
        """Count the messages of the compiled lane by queue, in small steps."""
        while self._take_lane_counts is not None and (counts := self._take_lane_counts(_QUEUES_AT_ONCE)):
            for key, nums, size in counts:
                self._put(key, nums, size)
            yield

    @property
    def puts(self) -> Counts[QueueKey]:
        """(topic, queue id) -> stored messages; the rows of a topic belong together."""
        for _ in self.count_lane():
            pass
        return self._puts

    def get(self, key: PulledKey, nums: int, size: int, took_s: float, from_disk: bool = False) -> None:
        """Count a pull that found messages, and took `took_s` to read them."""
        counted = self._pulled.get(key)
        if counted is None:
            if len(self._pulled) >= _PULLED_MAX:
                self._add_pulled()
            counted = self._pulled[key] = [0] * 6
        counted[NUMS] += nums
        counted[SIZE] += size
        counted[CALLS] += 1
        counted[TOOK_US] += int(took_s * 1e6)
        if from_disk:
            counted[DISK_NUMS] += nums
            counted[DISK_SIZE] += size
        if took_s > self._get_max_s:
            self._get_max_s = took_s

    def use_lane_pulls(self, note: Callable[[], None]) -> None:
        """Let `note` call `got` for the pulls of the compiled lane, before figures of pulls are read."""
        self._note_lane_pulls = note

    def got(self, pulled: Iterable[tuple[PulledKey, Sequence[int]]], took_max_s: float = 0.0) -> None:
        """Count pulls by key, with values of the first columns. `took_max_s`: the longest time that one of them took."""
        counts, total = self._gets, self._get_total
        for key, values in pulled:
            total.nums += values[NUMS]
            total.size += values[SIZE]
            total.times += values[CALLS]
            if (place := counts.place(key)) >= 0:
                for column, value in enumerate(values, place):
                    counts.words[column] += value
        self._get_max_s = max(self._get_max_s, took_max_s)

    def _add_pulled(self) -> None:
        """Add the pulls counted since the last call to table and total."""
        self._note_lane_pulls()
        pulled, self._pulled = self._pulled, {}
        self.got(pulled.items())
        self._get_total.disk_nums += sum(values[DISK_NUMS] for values in pulled.values())
        self._get_total.disk_size += sum(values[DISK_SIZE] for values in pulled.values())

    @property
    def gets(self) -> Counts[PulledKey]:
        """Pulled messages; the rows of a topic and group belong together."""
        self._add_pulled()
        return self._gets

    @property
    def get_total(self) -> Total:
        """The total of pulls, like `put_total`."""
        self._add_pulled()
        return self._get_total

    @property
    def get_max_s(self) -> float:
        """The longest time that a pull took to read its messages."""
        self._note_lane_pulls()
        return self._get_max_s

    def put_failed(self) -> None:
        """Count a message that could not be stored."""
        self.put_failed_times += 1

    def send_back(self, group: str, topic: str) -> None:
        """Count a message of `topic` sent back by a consumer of `group`."""
        counts = self.send_backs
        if (place := counts.place((group, topic))) >= 0:
            counts.words[place + NUMS] += 1
            counts.words[place + CALLS] += 1

    # --- samples ----------------------------------------------------------------------------------------------------

    def sampling(self) -> Iterator[None]:
        """Take all samples in small steps, as there may be many queues and groups. Must run every 10 s."""
        now_ms = self.clock.message_time_ms()
        self._days.roll(now_ms, self.put_total.nums, self.get_total.nums)
        yield from self.count_lane()
        yield from self.samples.sampling(now_ms)

    def sample_tps(self) -> None:
        """Take a sample for the rates per second. Must run every second."""
        put, got = self.put_total, self.get_total
        self._tps.add((self.clock.monotonic(), put.nums, got.times, self.misses, got.nums))

    # --- figures for tools ------------------------------------------------------------------------------------------

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages per second that `group` pulled from `topic` in the last minute."""
        item = self.samples.group_get(topic, group)
        return 0.0 if item is None else item.minute_tps()

    def day_totals(self) -> dict[str, int]:
        """Return the six totals of `clusterList -m`."""
        self._days.roll(self.clock.message_time_ms(), self.put_total.nums, self.get_total.nums)
        return self._days.rows(self.put_total.nums, self.get_total.nums)

    def tps(self) -> dict[str, list[float]]:
        """Return rates per second of puts, pulls (found, missed, all) and pulled messages.

        Each has values over the last 10, 60 and 600 s, or the time since the start if that is shorter.
        """

        def rates(column: Callable[[Sequence[float]], float]) -> list[float]:
            found = []
            for window_s in TPS_WINDOWS_S:
                # Apache omits windows that are not full yet; clusterList then fails on the empty text.
                last, first = self._tps.before(0), self._tps.before(window_s)
                found.append((column(last) - column(first)) / max(last[0] - first[0], 1.0))
            return found

        return {
            "putTps": rates(lambda row: row[1]),
            "getFoundTps": rates(lambda row: row[2]),
            "getMissTps": rates(lambda row: row[3]),
            "getTotalTps": rates(lambda row: row[2] + row[3]),
            "getTransferedTps": rates(lambda row: row[4]),
        }

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic (autoDeleteUnusedStats)."""
        self.puts.drop([key for key in self.puts.places if key[0] == topic])
        self.gets.drop([key for key in self.gets.places if key[1] == topic])
        self.send_backs.drop([key for key in self.send_backs.places if key[1] == topic])


class DayTotals:
    """The totals at the last two midnights, in the machine's time zone (zero if before the start of this process)."""

    def __init__(self) -> None:
        self._day: int | None = None
        self._mornings = [(0, 0), (0, 0)]  # put and got at the beginning of yesterday and of today

    def roll(self, now_ms: int, put: int, got: int) -> None:
        """Record the totals if a new day has begun."""
        day = datetime.fromtimestamp(now_ms / 1000).toordinal()
        if self._day is not None and day != self._day:
            self._mornings = [self._mornings[1], (put, got)]
        self._day = day

    def rows(self, put: int, got: int) -> dict[str, int]:
        (put_yesterday, got_yesterday), (put_today, got_today) = self._mornings
        return {
            "msgPutTotalYesterdayMorning": put_yesterday,
            "msgPutTotalTodayMorning": put_today,
            "msgPutTotalTodayNow": put,
            "msgGetTotalYesterdayMorning": got_yesterday,
            "msgGetTotalTodayMorning": got_today,
            "msgGetTotalTodayNow": got,
        }
