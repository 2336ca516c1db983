"""Pace: new clients of one host are admitted at a limited rate, so that a flood of them leaves time for others."""

from collections.abc import Callable
from typing import Final

BURST: Final = 50
"""Clients of one host that are admitted at once."""
WAIT_MAX_S: Final = 10.0
"""A client that would wait longer is refused."""
HOSTS_MAX: Final = 10_000


class Pace:
    """The time at which the next new client of each host may be admitted, if there were no burst."""

    def __init__(self, per_second: int, now_s: Callable[[], float]) -> None:
        self._interval_s, self._now_s = 1 / per_second, now_s
        self._next_s: dict[str, float] = {}

    def wait_s(self, host: str) -> float | None:
        """Return how long a new client of a host must wait for its turn, None if it is refused."""
        now_s = self._now_s()
        if len(self._next_s) >= HOSTS_MAX:
            self._next_s = {one: next_s for one, next_s in self._next_s.items() if next_s > now_s}
        next_s = max(self._next_s.get(host, 0.0), now_s - BURST * self._interval_s)
        wait_s = max(next_s - now_s, 0.0)
        if wait_s > WAIT_MAX_S:
            return None
        self._next_s[host] = next_s + self._interval_s
        return wait_s
