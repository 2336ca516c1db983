"""Limits of memory and time per connection and for all connections of a server together.

The config classes of the servers inherit the keys. The bytes that peers pin in a server are counted by two `PinnedBytes`:
one for unfinished frames, one for unread answers.
"""

import resource
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pocketmq.remoting.layout import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from pocketmq.runtime.config import setting

DESCRIPTORS_KEPT: Final = 128
"""Descriptors reserved for listeners, small files and connections to other servers."""
_KEPT_SHARE: Final = 7 / 8
"""Share of a limit to which the total is reduced, so that the search for victims is not repeated soon."""
_AGE_MIN_S: Final = 0.01

K = TypeVar("K", bound=Hashable)


@dataclass
class ConnectionLimits:
    """PocketMQ's own config keys; Apache has no such limits."""

    max_connections: int = setting(100_000, low=1)
    """Connections of a server. The descriptors of the process may allow fewer."""
    max_header_bytes: int = setting(256 << 10, low=64 << 10, high=HEADER_SIZE_MAX)
    """Size of one header: it is decoded in one step, while the other connections wait."""
    max_unfinished_frame_bytes: int = setting(64 << 20, low=FRAME_SIZE_MAX)
    """Bytes of unfinished frames of all connections."""
    max_unsent_bytes: int = setting(512 << 20, low=FRAME_SIZE_MAX)
    """Bytes of unread answers of all connections."""
    max_unsent_bytes_per_connection: int = setting(64 << 20, low=FRAME_SIZE_MAX)
    min_connection_bytes_per_second: int = setting(1024, low=0)
    """Rate of an unfinished frame, or of unread answers, below which a connection is closed."""
    slow_connection_seconds: int = setting(30, low=1)
    """Period over which that rate is measured; also the maximum silence of a new connection."""

    def frame_size(self, body_size: int) -> int:
        """Return the size of the largest frame of a server that takes bodies of `body_size` bytes."""
        return max(FRAME_SIZE_MAX, 8 + self.max_header_bytes + body_size)

    def connection_count_max(self, descriptors_kept: int = DESCRIPTORS_KEPT) -> int:
        """Return `max_connections`, or fewer, so that `descriptors_kept` remain for other uses."""
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft_limit == resource.RLIM_INFINITY:
            return self.max_connections
        # Even with very few descriptors a quarter of them is for connections.
        return min(self.max_connections, max(soft_limit - descriptors_kept, soft_limit // 4, 1))


class _Row:
    __slots__ = ("began_s", "checked_s", "checked_size", "size")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self.began_s = self.checked_s = now
        self.checked_size = size


class PinnedBytes(Generic[K]):
    """Bytes pinned by each connection, their total, and the choice of connections to drop when the total is too large.

    The connections with the largest product of bytes and seconds are dropped first: a healthy peer's frame is large only for
    a moment.
    """

    def __init__(self, size_max: int, bytes_per_second_min: int, window_s: float, *, is_draining: bool) -> None:
        """`is_draining`: progress of the peer decreases its bytes (unread answers); else it increases them."""
        self._size_max = size_max
        self._bytes_per_second_min = bytes_per_second_min
        self._window_s = window_s
        self._is_draining = is_draining
        self._rows: dict[K, _Row] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._rows)

    def connections(self) -> list[K]:
        """Return the connections that pin bytes."""
        return list(self._rows)

    @property
    def is_too_much(self) -> bool:
        return self.total > self._size_max

    def update(self, key: K, size: int, now: float, *, is_new: bool = False) -> None:
        """Set the bytes pinned by `key`; `is_new`: other bytes than before, so that age and rate are measured anew."""
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = _Row(size, now)
            self.total += size
            return
        self.total += size - row.size
        row.size = size
        if is_new:
            row.began_s = row.checked_s = now
            row.checked_size = size

    def forget(self, key: K) -> None:
        """Remove `key`, which pins nothing any more."""
        row = self._rows.pop(key, None)
        if row is not None:
            self.total -= row.size

    def too_slow(self, now: float) -> list[K]:
        """Return the connections that moved too few bytes since their last check, at least one window ago."""
        slow = []
        for key, row in self._rows.items():
            elapsed_s = now - row.checked_s
            if elapsed_s < self._window_s:
                continue
            moved = row.checked_size - row.size if self._is_draining else row.size - row.checked_size
            if moved < max(self._bytes_per_second_min * elapsed_s, 1):
                slow.append(key)
            row.checked_s, row.checked_size = now, row.size
        return slow

    def excess(self, now: float) -> list[K]:
        """Return the connections to drop so that the total is below its limit; none if it is already."""
        if not self.is_too_much:
            return []
        rows = sorted(self._rows.items(), key=lambda item: item[1].size * (now - item[1].began_s + _AGE_MIN_S))
        left, chosen = self.total, []
        while left > self._size_max * _KEPT_SHARE and rows:
            key, row = rows.pop()
            left -= row.size
            chosen.append(key)
        return chosen
