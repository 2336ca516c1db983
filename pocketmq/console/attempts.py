"""Limit of failed sign-ins, by the address of the client."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 5
"""Failed sign-ins that an address may have at once."""
INTERVAL_S: Final = 5.0
"""Time after which it may have one more."""
ADDRESSES_MAX: Final = 1000
"""Addresses that are remembered; one more replaces the one whose last attempt is oldest."""


class FailedAttempts:
    """Counts failed sign-ins of each address, so that secret keys cannot be guessed by trying.

    An address has a supply of AT_ONCE attempts, which grows by one each INTERVAL_S. An attempt takes one before the brokers
    are asked, so that attempts at the same time count, too; a sign-in that does not fail gives it back.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._full_s: OrderedDict[str, float] = OrderedDict()
        """The time at which the supply of an address is full again; the oldest attempt comes first."""

    def begin(self, address: str) -> int:
        """Take an attempt. Return 0 if the address has one left, else the seconds until it gets the next."""
        owner, now_s = _owner(address), self._now_s()
        full_s = max(self._full_s.get(owner, now_s), now_s) + INTERVAL_S
        wait_s = full_s - now_s - AT_ONCE * INTERVAL_S
        if wait_s > 0:
            return math.ceil(wait_s)
        self._full_s[owner] = full_s
        self._full_s.move_to_end(owner)
        if len(self._full_s) > ADDRESSES_MAX:
            self._full_s.popitem(last=False)
        return 0

    def give_back(self, address: str) -> None:
        """Return the attempt of a sign-in that succeeded, or that no broker could check."""
        owner = _owner(address)
        if owner in self._full_s:
            self._full_s[owner] -= INTERVAL_S

    @property
    def count(self) -> int:
        """The number of addresses that are remembered."""
        return len(self._full_s)


def _owner(address: str) -> str:
    """Return the part of an address that one client cannot choose: all of IPv4, the network of 64 bits of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), 64), strict=False))
