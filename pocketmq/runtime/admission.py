"""Admission: the limit on the connections of a server.

At the limit the oldest *stranger* makes room for a new connection: one that has said nothing yet. Peers that have spoken are
never closed for a newcomer; if there are only such, the newcomer is refused.
"""

import logging
import time
from collections.abc import Callable, Hashable

from pocketmq.runtime.refusal_log import RefusalLog


class Admission:
    """Number of connections of a server on all its ports, from acceptance to end."""

    def __init__(
        self, log: logging.Logger, count_max: int, limit: str, now: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """`limit`: what sets the limit, for log lines."""
        self.count_max = count_max
        self.count = 0
        self._limit = limit
        self._strangers: dict[Hashable, tuple[str, Callable[[], object]]] = {}
        self._refused = RefusalLog(log, now=now)
        self._dropped = RefusalLog(log, now=now)

    def has_room(self, peer: str) -> bool:
        """Return whether a connection of `peer` can be accepted, if necessary after the oldest stranger was dropped."""
        if self.count < self.count_max:
            return True
        what = f"{self.count_max} connections are open ({self._limit})"
        if not self._strangers:
            self._refused.refused(None, f"closing {peer}: {what}")
            return False
        silent, drop = self._strangers.pop(next(iter(self._strangers)))
        self._dropped.refused(None, f"dropping {silent} for {peer}: {what}, and it is the oldest that has said nothing")
        drop()
        return True

    def is_stranger(self, connection: Hashable, peer: str, drop: Callable[[], object]) -> None:
        """Note a connection that has said nothing; `drop` closes it."""
        self._strangers[connection] = peer, drop

    def has_spoken(self, connection: Hashable) -> None:
        """Keep a connection from now on; also called for one that has ended."""
        self._strangers.pop(connection, None)
