"""Turns: what the calls of one connection cost, and whether it must share the loop's time with other costly ones.

A call's handler runs in later turns of the loop than the frames that begin it. So a call is charged when it starts with what
calls of its connection took on average, and with the rest once it is known.
"""

from time import monotonic
from typing import Final

from pocketmq.remoting.fair_share import COSTLY_S, FairShare

CALL_S: Final = 0.0003
"""Assumed time of a connection's first call."""
CALL_MIN_S: Final = 0.0001
CALL_MAX_S: Final = 0.004
_SHARE: Final = 0.25
"""Share of the loop's time above which a connection becomes costly once it has used COSTLY_S."""
_WEIGHT: Final = 0.1
"""Weight of the newest call in the average."""


class Turns:
    """Time used by one connection."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self.call_s = CALL_S
        """Average time of a call."""
        self._used_s, self._counted_s = 0.0, monotonic()

    @property
    def is_costly(self) -> bool:
        """Whether the connection has used more than its part of the loop's time."""
        return self._used_until(monotonic()) > COSTLY_S

    def _used_until(self, now_s: float) -> float:
        return max(self._used_s - (now_s - self._counted_s) * _SHARE, 0.0)

    def used(self, seconds: float) -> None:
        """Count time that is charged by the caller."""
        now_s = monotonic()
        self._used_s, self._counted_s = min(self._used_until(now_s) + seconds, 2 * COSTLY_S), now_s

    def spend(self, seconds: float) -> None:
        """Count time, and charge it to the share if the connection is costly."""
        self.used(seconds)
        if self._used_s > COSTLY_S:
            self._share.charge(seconds)

    def ended(self, seconds: float) -> None:
        """Learn what a call took."""
        average_s = self.call_s * (1 - _WEIGHT) + seconds * _WEIGHT
        self.call_s = min(max(average_s, CALL_MIN_S), CALL_MAX_S)
