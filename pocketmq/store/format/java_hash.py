"""Java's `String.hashCode`, from which the tags codes of queue units and the hashes of index keys are computed.

h = s[0]*31^(n-1) + ... + s[n-1] over UTF-16 code units, wrapped to a signed 32-bit integer. A character beyond the basic
plane is two code units, so the text is hashed in its UTF-16 form, not by code point.

Short ASCII text is read as a number in base 31, which `int` does in C: a code unit s has a low digit s % 31 and a high digit
s // 31, which counts one place higher, so the hash is number(low digits) + 31 * number(high digits).
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt


def powers(base: int, count: int) -> npt.NDArray[np.uint32]:
    """Return the powers of `base` from 0 on, modulo 2^32."""
    factors = np.full(count, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


# Longer texts are hashed in slices of this many code units, which need only this many powers of 31 (modulo 2^32).
_POWER_COUNT = 1024
_POWERS: Final = powers(31, _POWER_COUNT + 1)
# Longer texts are hashed with numpy, because `int` takes quadratic time.
_NUMBER_UNITS_MAX = 128
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_LOW_DIGITS = bytes(_DIGITS[unit % 31] for unit in range(256))
_HIGH_DIGITS = bytes(_DIGITS[unit // 31] for unit in range(256))


def java_hash(text: str) -> int:
    """Return the hash code of `text` as a signed 32-bit integer. A lone surrogate counts as one code unit."""
    if text.isascii() and 0 < len(text) <= _NUMBER_UNITS_MAX:
        units = text.encode("ascii")
        return _signed(int(units.translate(_LOW_DIGITS), 31) + 31 * int(units.translate(_HIGH_DIGITS), 31))
    return _signed(_hash_units(np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")))


def _hash_units(units: npt.NDArray[np.uint16]) -> int:
    value = 0
    for start in range(0, len(units), _POWER_COUNT):
        part = units[start : start + _POWER_COUNT]
        size = len(part)
        tail = int(np.dot(part.astype(np.uint32), _POWERS[size - 1 :: -1] if size < _POWER_COUNT else _POWERS[-2::-1]))
        value = (value * int(_POWERS[size]) + tail) & 0xFFFFFFFF
    return value


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


REMEMBERED_SIZE_MAX: Final = 200
"""Maximum number of characters of tags for `tags_code`, which caches its results. Use `java_hash` for longer tags."""


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Return the tags code of a queue unit: the hash of the whole TAGS string, 0 without tags. Cached, since tags repeat."""
    return java_hash(tags)
