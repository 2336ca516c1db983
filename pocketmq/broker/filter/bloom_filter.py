"""Bloom filter that records which SQL92 subscriptions want a message; identical with Apache's, bit for bit.

Each subscription, `group#topic`, has a few bit positions. The bitmap of a message has the bits of all subscriptions that
want it; a subscription with a cleared bit does not want it. Positions are derived from a murmur3 hash (x64, 128 bits, seed
0).
"""

import math
import struct
from collections.abc import Iterable
from typing import Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


class BloomFilter:
    """A Bloom filter of `bit_count` bits (a multiple of 8) with `hash_count` positions per subscription."""

    def __init__(self, error_percent: int, subscription_count: int) -> None:
        """Choose the size for `subscription_count` subscriptions at about `error_percent` (1..99) false positives."""
        error_rate = error_percent / 100.0
        self.hash_count = math.ceil(math.log(error_rate) / math.log(0.5))
        bits = math.ceil(subscription_count * (math.log(1 / error_rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.bit_count = 8 * math.ceil(bits / 8)

    def positions(self, text: str) -> list[int]:
        """Return the bit positions of a subscription."""
        value = murmur3(text.encode(errors="replace"))
        low, high = value & 0xFFFFFFFF, value >> 32
        found = []
        for number in range(1, self.hash_count + 1):
            mixed = low + number * high & 0xFFFFFFFF
            if mixed >> 31:  # negative in Java, which then takes the complement
                mixed ^= 0xFFFFFFFF
            found.append(mixed % self.bit_count)
        return found

    def bitmap(self, positions: Iterable[int]) -> bytes:
        """Return the bitmap with the bits at `positions` set; bit 0 is the lowest bit of the first byte."""
        return bit_mask(positions).to_bytes(self.bit_count // 8, "little")


def bit_mask(positions: Iterable[int]) -> int:
    """Return an integer with the bits at `positions` set."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of murmur3_128 (Guava: `asLong`, here unsigned)."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for one, other in _BLOCK.iter_unpack(data[:whole]):
        first ^= _mixed(one, _C1, 31, _C2)
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mixed(other, _C2, 33, _C1)
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    one, other = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    first ^= _mixed(one, _C1, 31, _C2) ^ len(data)
    second ^= _mixed(other, _C2, 33, _C1) ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _final(first) + _final(second) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mixed(value: int, factor: int, bits: int, other_factor: int) -> int:
    return _rotated(value * factor & _MASK, bits) * other_factor & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
