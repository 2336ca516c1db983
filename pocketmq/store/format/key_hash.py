"""Hashing of many index keys at once.

The hash of a key is |String.hashCode(topic#key)|; the keys of a large dispatch are hashed together. Java's sum over the
characters of one key, c[i] * 31^(last - i), is 31^last times the sum of c[i] * 31^-i; and 31 is odd, so it has an inverse
modulo 2^32. The weight of a character therefore depends only on its position in the concatenated text of all keys, and the
hashes take one product, one `reduceat` and one factor per key, whatever the lengths of the keys.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.java_hash import java_hash, powers

Hashes = npt.NDArray[np.uint32]
_INVERSE_OF_31: Final = pow(31, -1, 1 << 32)
# Initial number of code units in the tables of weights; longer texts extend them permanently (8 bytes per unit).
_UNITS_AT_FIRST: Final = 8192
# Up to this many keys are hashed one by one, because of the fixed cost of numpy calls.
_SINGLY_MAX: Final = 10


def _tables(count: int) -> tuple[Hashes, Hashes]:
    """Return two tables: 31^-i and 31^(i - 1), for i from 0 on."""
    return powers(_INVERSE_OF_31, count), powers(31, count) * np.uint32(_INVERSE_OF_31)


_STRETCH_SIZE_MAX: Final = 128
_POWERS_OF_31: Final = powers(31, _STRETCH_SIZE_MAX + 1)
_POWER_1, _POWER_2, _POWER_4, _POWER_8 = (np.uint64(31**count & 0xFFFFFFFF) for count in (1, 2, 4, 8))
_SHIFT_8, _SHIFT_16, _SHIFT_32 = (np.uint64(bits) for bits in (8, 16, 32))
_LOW_8, _LOW_16, _LOW_32 = (np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0xFFFFFFFF))
_NON_ASCII: Final = np.uint64(0x8080808080808080)
# Masks that clear the first n bytes of a word, those before the range, by n.
_KEPT: Final = np.array([(2**64 - 1) << 8 * count & (2**64 - 1) for count in range(9)], np.uint64)

_weights_by_place, _factors_by_end = _tables(_UNITS_AT_FIRST)


def key_hashes(keys: Sequence[str]) -> list[int]:
    """Return the hash of each of `keys`, none of which may be empty: |hashCode|, or 0 for the smallest integer."""
    if len(keys) <= _SINGLY_MAX:
        return [abs(java_hash(key)) & 0x7FFFFFFF for key in keys]
    text = "".join(keys)
    units: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
    if text.isascii():
        units = np.frombuffer(text.encode("ascii"), np.uint8)
        sizes = map(len, keys)
    else:
        # Java hashes UTF-16 code units: a character beyond the basic plane counts as two.
        units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
        sizes = map(len, (key.encode("utf-16-le", "surrogatepass")[::2] for key in keys))
    bounds = np.array((0, *accumulate(sizes)), np.intp)
    size = len(units)
    if size >= len(_factors_by_end):
        _grow(size)
    sums = np.add.reduceat(units * _weights_by_place[:size], bounds[:-1], dtype=np.uint32)
    # In the concatenated text a key's last character has the weight 31^-(end - 1); the factor makes it 1.
    sums *= _factors_by_end[bounds[1:]]
    codes: list[int] = as_key_hashes(sums).tolist()
    return codes


def stretch_hashes(
    text: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Return (unsigned Java hash code of each text[begins[i]:ends[i]], mask of those that cannot be hashed here).

    Ranges with non-ASCII bytes, and those longer than 128 bytes, cannot. At least 8 bytes must precede each range.

    Eight characters are hashed together in the lanes of a 64-bit number: two neighbours become one as 31 * a + b, then
    these again with 31^2 and 31^4.
    """
    elsewhere = ends - begins > _STRETCH_SIZE_MAX
    words = np.ndarray((max(len(text) - 7, 0),), "<u8", text, strides=(1,))
    hashes, seen = np.zeros(len(begins), np.uint64), np.zeros(len(begins), np.uint64)
    size_max = int((ends - begins)[~elsewhere].max(initial=0))
    for behind in range((size_max - 1) // 8 * 8, -1, -8):
        at = ends - (behind + 8)
        # A range may begin within a word; leading zeros do not change the hash.
        part = words[np.maximum(at, 0)] & _KEPT[np.clip(begins - at, 0, 8)]
        seen |= part
        part = (part & _LOW_8) * _POWER_1 + (part >> _SHIFT_8 & _LOW_8)
        part = (part & _LOW_16) * _POWER_2 + (part >> _SHIFT_16 & _LOW_16)
        part = (part & _LOW_32) * _POWER_4 + (part >> _SHIFT_32)
        hashes *= _POWER_8
        hashes += part
    return hashes.astype(np.uint32), elsewhere | (seen & _NON_ASCII != 0)


def joined(prefix_hashes: Hashes, hashes: Hashes, sizes: npt.NDArray[np.int64]) -> Hashes:
    """Return hash codes of texts that consist of a prefix and a rest; `hashes` and `sizes` are those of the rests."""
    return prefix_hashes * _POWERS_OF_31[np.minimum(sizes, _STRETCH_SIZE_MAX)] + hashes


def as_key_hashes(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Return |hashCode| of unsigned hash codes, or 0 for the smallest integer."""
    # The absolute value of the smallest integer is itself, which the mask makes 0.
    found: npt.NDArray[np.int32] = np.abs(hashes.view(np.int32)) & 0x7FFFFFFF
    return found


def _grow(size: int) -> None:
    global _weights_by_place, _factors_by_end
    _weights_by_place, _factors_by_end = _tables(1 << (size + 1).bit_length())
