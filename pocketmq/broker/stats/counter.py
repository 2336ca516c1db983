"""Counter: counts of messages, bytes and calls, one for each queue, for each pair of group and queue, and in total."""

import msgspec

from pocketmq.broker.stats.stats_item import History


class Counter(msgspec.Struct, gc=False):
    """Number of messages, bytes and calls since the start."""

    nums: int = 0
    size: int = 0
    times: int = 0
    took_s: float = 0.0
    """Time that the calls took in total; only of pulls."""
    disk_nums: int = 0
    disk_size: int = 0
    """Messages and bytes among these that count as read from the disk."""
    history: History | None = None
    """Samples of its values, from the first sample on."""

    def count_get(self, nums: int, size: int, took_s: float, from_disk: bool) -> None:
        """Count a pull that found messages."""
        self.nums += nums
        self.size += size
        self.times += 1
        self.took_s += took_s
        if from_disk:
            self.disk_nums += nums
            self.disk_size += size
