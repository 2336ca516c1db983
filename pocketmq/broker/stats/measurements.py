"""Measurements: durations and counts that a broker measures, for runtime info, tools and metrics."""

from typing import Final

from pocketmq.broker.stats.recent import RecentCounts, RecentMaximum
from pocketmq.metrics.histogram import Histogram

_MS_PER_S: Final = 1000
PUT_BOUNDS_S: Final = tuple(
    bound / _MS_PER_S for bound in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
)
"""Include the bounds of Apache's putMessageDistributeTime."""
SYNC_BOUNDS_S: Final = tuple(bound / _MS_PER_S for bound in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000))
LATENESS_BOUNDS_S: Final = (
    *(bound / _MS_PER_S for bound in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)), 2, 5, 10, 30, 60, 300, 3600,
)  # fmt: skip


class Measurements:
    """Durations are in seconds and counted since the start."""

    def __init__(self) -> None:
        self.put_time = Histogram(PUT_BOUNDS_S)
        """Per stored message: from the begin of the turn of the event loop that read it, until its record is written; with
        SYNC_FLUSH until it is synced, and at a SYNC_MASTER until a slave has it."""
        self.recent_put_times = RecentCounts(self.put_time)
        """The put times of the last minute."""
        self.sync_time = Histogram(SYNC_BOUNDS_S)
        """Per sync of the CommitLog (fsync or msync); added by the flush thread."""
        self.level_lateness = Histogram(LATENESS_BOUNDS_S)
        """Per delivered message of a delay level: the time from its due time until its delivery."""
        self.timer_lateness = Histogram(LATENESS_BOUNDS_S)
        """The same for messages with a delivery time of their own."""
        self.page_wait_s = RecentMaximum()
        """The longest wait for a write of the log to the page cache, or for space, in the last minute."""
        self.dispatched_max = 0
        """The largest number of records that one turn of the event loop dispatched."""
        self.store_recovery_s = 0.0
        """Time that opening and recovering the store took at the start."""
        self.timer_recovery_s = 0.0
        """Time that recovering timers and transactions took at the start."""
        self.repairs = 0
        """Number of repairs that the start made in the store."""
        self.started_cleanly = True
        """Whether the last broker on this store had stopped cleanly."""
