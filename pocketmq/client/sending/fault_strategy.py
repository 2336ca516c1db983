"""Latency fault tolerance (Apache's MQFaultStrategy): brokers that failed or were slow get no messages for a while."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.remoting.bodies import MessageQueue

_AVOIDED: Final = ((15_000, 600.0), (3_000, 180.0), (2_000, 120.0), (1_000, 60.0), (550, 30.0))
"""Latency in ms from which on a broker is avoided, and for how many seconds."""
FAILED_MS: Final = 30_000.0
"""Latency that a failed send counts as."""


class LatencyFaultTolerance:
    """Times until which brokers are avoided."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._avoided_until_s: dict[str, float] = {}

    def sent(self, broker_name: str, latency_ms: float) -> None:
        """Take the latency of a send into account; a fast one ends the avoidance."""
        avoid_s = next((seconds for slow_ms, seconds in _AVOIDED if latency_ms >= slow_ms), 0.0)
        self._avoided_until_s[broker_name] = self._now_s() + avoid_s

    def failed(self, broker_name: str) -> None:
        """Avoid a broker that did not store a message."""
        self.sent(broker_name, FAILED_MS)

    def usable(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return the queues of brokers that are not avoided; if all are, those of the one that is avoided least."""
        now_s = self._now_s()
        usable = [queue for queue in queues if self._until_s(queue) <= now_s]
        if usable:
            return usable
        least_s = min(map(self._until_s, queues))
        return [queue for queue in queues if self._until_s(queue) == least_s]

    def _until_s(self, queue: MessageQueue) -> float:
        return self._avoided_until_s.get(queue.broker_name, 0.0)
