"""Pending delayed messages by hour, by time until due and by topic, counted in parts between which the event loop runs."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pocketmq.broker.delay.pending import DelayQuery
from pocketmq.store.timer.timer_log import Numbers

HOUR_MS: Final = 3_600_000
HOURS: Final = 24
"""Hours counted one by one; messages due later are counted together."""
BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""5.x's bounds of the time until due: a message counts at the smallest bound within which it is due."""


@dataclass
class Pending:
    """Counts of pending messages. A message that moves while they are counted may count twice, or not at all."""

    by_hour: list[int] = field(default_factory=lambda: [0] * (HOURS + 1))
    """Index 0: due in this hour of the clock, or overdue; the last one: later than all these hours."""
    by_bound: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """Messages with a delivery time of their own, by BOUNDS_S."""
    overdue: int = 0
    """Number of these that should have been delivered already."""
    by_topic_hash: Counter[int] = field(default_factory=Counter)
    """The same by Java's hash code of the topic."""

    def add(self, dues_ms: Numbers, now_ms: int) -> None:
        hours = np.clip(dues_ms // HOUR_MS - now_ms // HOUR_MS, 0, HOURS)
        for hour, count in enumerate(np.bincount(hours, minlength=HOURS + 1).tolist()):
            self.by_hour[hour] += count

    def add_timers(self, dues_ms: Numbers, topic_hashes: Numbers, now_ms: int) -> None:
        self.add(dues_ms, now_ms)
        bounds = np.searchsorted(np.array(BOUNDS_S) * 1000, dues_ms - now_ms)
        for bound, count in enumerate(np.bincount(bounds, minlength=len(BOUNDS_S) + 1).tolist()):
            self.by_bound[bound] += count
        self.overdue += int(np.count_nonzero(dues_ms <= now_ms))
        hashes, counts = np.unique(topic_hashes, return_counts=True)
        self.by_topic_hash.update(dict(zip(hashes.tolist(), counts.tolist(), strict=True)))


def counting(query: DelayQuery, now_ms: int) -> Generator[None, None, Pending]:
    """Count all pending messages."""
    found = Pending()
    for source in query.sources:
        for dues_ms, topic_hashes in source.parts():
            if topic_hashes is None:
                found.add(dues_ms, now_ms)
            else:
                found.add_timers(dues_ms, topic_hashes, now_ms)
            yield
    return found
