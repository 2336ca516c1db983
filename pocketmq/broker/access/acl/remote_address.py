"""Patterns of remote addresses in ACL files.

    (empty)                                 no address
    *    *.*.*.*    *:*:*:*:*:*:*:*         every address
    192.168.1.5    2001:db8::5              one address
    192.168.1.5,192.168.2.6                 several
    192.168.1.{5,6}    2001:db8::{5,6}      several that differ in the last part
    192.168.*.*    192.168.100-200.10-20    ranges, from the second part on
    2001:db8:1:*    2001:db8::78:1-200:*    ranges in IPv6: the last part, or the last but one before an asterisk

Missing parts at the end of an IPv6 pattern count as `*`. Apache ignores the parts after the first range of an IPv4 pattern
(`192.168.*.5` is `192.168.*.*` there); here they count.
"""

import ipaddress
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

Strategy = Callable[[str], bool]
"""Returns whether an address, given as text, matches."""
HOSTS_MAX: Final = 4096
"""Number of hosts whose result is cached."""
_EVERY_ADDRESS: Final = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_Range = tuple[int, int]


def remote_address_strategy(pattern: str) -> Strategy:
    """Return the strategy of `pattern`. Raises ValueError naming an invalid pattern."""
    text = pattern.strip()
    if not text:
        return lambda host: False
    if text in _EVERY_ADDRESS:
        return lambda host: True
    try:
        if text.endswith("}"):
            head, _, tail = text[:-1].partition("{")
            if head[-1:] not in (".", ":"):
                raise ValueError("braces are allowed for the last part only")
            return _one_of(head + part.strip() for part in tail.split(",") if part.strip())
        if "," in text:
            return _one_of(part.strip() for part in text.split(","))
        if "*" in text or "-" in text:
            return _within(_ranges_v6(text) if ":" in text else _ranges_v4(text), 2 if ":" in text else 1)
        return _one_of([text])
    except ValueError as error:
        raise ValueError(f"remote address {pattern!r}: {error}") from None


def any_of(patterns: Iterable[str]) -> Strategy:
    """Return one strategy for several patterns; results are cached by host. Raises ValueError."""
    strategies = [remote_address_strategy(pattern) for pattern in patterns]

    @lru_cache(maxsize=HOSTS_MAX)
    def matches(host: str) -> bool:
        return any(strategy(host) for strategy in strategies)

    return matches


def _one_of(texts: Iterable[str]) -> Strategy:
    addresses = frozenset(ipaddress.ip_address(text) for text in texts)
    return lambda host: ipaddress.ip_address(host) in addresses


def _within(ranges: list[_Range], part_size: int) -> Strategy:
    address_size = 4 if part_size == 1 else 16

    def matches(host: str) -> bool:
        packed = ipaddress.ip_address(host).packed
        if len(packed) != address_size:
            return False
        parts = (int.from_bytes(packed[at : at + part_size], "big") for at in range(0, address_size, part_size))
        return all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=False))

    return matches


def _ranges_v4(text: str) -> list[_Range]:
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError("expected four parts")
    if not parts[0].strip().isdecimal():
        raise ValueError("the first part must be a number")
    return [_range(part.strip(), 10, 255) for part in parts]


def _ranges_v6(text: str) -> list[_Range]:
    left, gap, right = text.partition("::")
    before, behind = ([part for part in half.split(":") if part] for half in (left, right))
    missing = 8 - len(before) - len(behind)
    if "::" in right or missing < (1 if gap else 0):
        raise ValueError("expected eight parts, with one :: at most")
    parts = before + ["0"] * missing + behind if gap else before
    fixed = parts[:-2] if parts[-1] == "*" else parts[:-1]
    if not fixed or any("-" in part for part in fixed) or "*" in parts[:-1]:
        raise ValueError("a range must be the last part, or the last but one before an asterisk")
    return [_range(part, 16, 0xFFFF) for part in parts]


def _range(part: str, base: int, most: int) -> _Range:
    if part == "*":
        return 0, most
    low_text, dash, high_text = part.partition("-")
    low = int(low_text, base)
    high = int(high_text, base) if dash else low
    if not 0 <= low <= high <= most:
        raise ValueError(
            f"{part!r} is not a range within 0 to {most:x}" if base == 16 else f"{part!r} is not within 0 to {most}"
        )
    return low, high
