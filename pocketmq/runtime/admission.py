"""Limits on peers: the number of a server's connections (Admission), and a rate for each address (RateByAddress).

At the limit of connections the oldest *stranger* makes room for a new connection: one that has said nothing yet. Peers
that have spoken are never closed for a newcomer; if there are only such, the newcomer is refused.
"""

import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from pocketmq.runtime.refusal_log import RefusalLog

ADDRESSES_MAX: Final = 1000
"""Addresses that are remembered; one more replaces the one that was counted longest ago."""


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


class RateByAddress:
    """A supply of turns for each address, which grows by one each interval up to `at_once` turns.

    A turn is what peers of one address may do only so often, such as failing to sign in, or adding a client.
    """

    def __init__(self, at_once: int, interval_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._interval_s, self._now_s = at_once, interval_s, now_s
        self._full_s: OrderedDict[str, float] = OrderedDict()
        """The time at which the supply of an address is full again; the address counted longest ago comes first."""

    def take(self, address: str, wait_max_s: float = 0.0) -> float:
        """Take a turn and return the seconds until it comes; if they are more than `wait_max_s`, no turn is taken."""
        owner, now_s = _owner(address), self._now_s()
        full_s = max(self._full_s.get(owner, now_s), now_s) + self._interval_s
        wait_s = max(full_s - now_s - self._at_once * self._interval_s, 0.0)
        if wait_s > wait_max_s:
            return wait_s
        self._full_s[owner] = full_s
        self._full_s.move_to_end(owner)
        if len(self._full_s) > ADDRESSES_MAX:
            self._full_s.popitem(last=False)
        return wait_s

    def give_back(self, address: str) -> None:
        """Return a turn that was not used."""
        owner = _owner(address)
        if owner in self._full_s:
            self._full_s[owner] -= self._interval_s

    @property
    def count(self) -> int:
        """The number of addresses that are remembered."""
        return len(self._full_s)


def _owner(address: str) -> str:
    """Return the part of an address that one peer cannot choose: all of IPv4, the network of 64 bits of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), 64), strict=False))
