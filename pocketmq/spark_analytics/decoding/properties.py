"""Decoder for the property strings of many records at once, into Arrow arrays.

All strings of a window are concatenated, each preceded by a 0x02. Every entry then lies between two 0x02 (or the end), and
the first 0x01 in it separates name and value; both are found by one scan over the bytes. Valid entries are those of
`properties.decode_properties`: a name, 0x01, a value; if a name occurs twice, the last entry counts.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pocketmq.store.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from pocketmq.store.format.record_chain import Bytes, Positions

NAME_VALUE: Final = ord(NAME_VALUE_SEPARATOR)
PROPERTY: Final = ord(PROPERTY_SEPARATOR)
NAMES_USUAL: Final = 48


def slices(data: Bytes, begins: Positions, ends: Positions, absent: Any = None) -> Any:
    """Return the byte strings data[begins[i]:ends[i]] as an Arrow BinaryArray; the slices must be ascending and disjoint.

    `absent` marks the null rows; their slices are empty.
    """
    # Built as a BinaryArray of slice, gap, slice, gap, ...; `take` of the even elements copies just the slices, which is
    # faster than gathering bytes with numpy.
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = begins
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if count else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    mixed = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return mixed.take(pa.array(np.arange(0, 2 * count, 2), mask=absent))


def text(values: Any) -> Any:
    """Return a BinaryArray as strings; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else str(value, "utf-8", "replace") for value in values.to_pylist()], pa.string()
        )


class PropertyTable:
    """The entries of `count` property strings: entry i has `names[i]` and `values[i]` and belongs to row `rows[i]`."""

    def __init__(self, data: Bytes, begins: Positions, ends: Positions) -> None:
        """`begins` are the positions of the byte *before* each string (the low byte of its length)."""
        self._count = len(begins)
        joined = slices(data, begins, ends)
        first = np.frombuffer(joined.buffers()[1], np.int32, self._count + 1)
        self._data = np.array(np.frombuffer(joined.buffers()[2], np.uint8, int(first[-1])))
        self._data[first[:-1]] = PROPERTY
        at = np.flatnonzero(self._data <= PROPERTY)
        codes = self._data[at]
        marks = at[codes == PROPERTY]
        dividers = at[codes == NAME_VALUE]
        entry_begins, entry_ends = marks + 1, np.append(marks[1:], len(self._data))
        divider, valid = self._dividers(dividers, entry_begins, entry_ends)
        # Each string begins with 0x02.
        is_first = np.zeros(len(self._data), bool)
        is_first[first[:-1]] = True
        rows = np.cumsum(is_first[marks]) - 1
        self._begins, self._dividers_at, self._ends = entry_begins[valid], divider[valid], entry_ends[valid]
        self.rows = rows[valid]
        self._keep_last()

    @staticmethod
    def _dividers(dividers: Positions, begins: Positions, ends: Positions) -> tuple[Positions, Any]:
        """Return (position of the 0x01 of each entry, mask of the valid entries)."""
        if len(dividers) == len(begins) and bool(((dividers > begins) & (dividers < ends - 1)).all()):
            return dividers, slice(None)
        before = np.searchsorted(dividers, begins)
        within = np.searchsorted(dividers, ends) - before
        divider = np.append(dividers, -1)[before]
        return divider, (within >= 1) & (divider > begins) & (divider < ends - 1)

    def _keep_last(self) -> None:
        """Drop all but the last entry of each name within a row."""
        if not len(self.rows):
            return
        codes = self._codes
        count = int(codes.max()) + 1
        if count <= NAMES_USUAL:
            # One bit per name: if no name occurs twice in a row, the sum of the row's bits equals their bitwise or.
            bits = np.left_shift(1, codes)
            starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
            if (np.add.reduceat(bits, starts) == np.bitwise_or.reduceat(bits, starts)).all():
                return
        pair = self.rows * count + codes
        if len(np.unique(pair)) == len(pair):
            return
        _, reversed_first = np.unique(pair[::-1], return_index=True)
        keep = np.sort(len(pair) - 1 - reversed_first)
        self._begins, self._dividers_at, self._ends = self._begins[keep], self._dividers_at[keep], self._ends[keep]
        self.rows = self.rows[keep]
        del self._dictionary

    @cached_property
    def _dictionary(self) -> Any:
        return slices(self._data, self._begins, self._dividers_at).dictionary_encode()

    @property
    def _codes(self) -> Positions:
        return np.asarray(self._dictionary.indices.to_numpy(zero_copy_only=False), np.int64)

    @cached_property
    def names(self) -> Any:
        return text(self._dictionary.dictionary).take(self._dictionary.indices)

    @cached_property
    def values(self) -> Any:
        return text(slices(self._data, self._dividers_at + 1, self._ends))

    def map_array(self) -> Any:
        """Return one map<string,string> per row; a row without entries has an empty map."""
        offsets = np.searchsorted(self.rows, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), self.names, self.values)
