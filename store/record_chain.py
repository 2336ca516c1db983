"""Where the records in a run of bytes begin.

A record does not say where the next one begins except by its own size, so the log is a chain that must be followed from
its first link. That is a loop over the records which looks at sizes only; all that makes a record of a place, its magic and
a physicalOffset that equals the place, is then compared at once. Who comes from nowhere, behind damage or in the middle of a
file, has to search for such places.
"""

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from store.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, PHYSICAL_OFFSET_POSITION, RECORD_SIZE_MIN

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

MAGIC: Final = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
MAGIC_V2: Final = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
assert MAGIC[:3] == MAGIC_V2[:3]
_SIZE: Final = struct.Struct(">i")
# As much of a record as tells that there is one.
MARK_SIZE: Final = PHYSICAL_OFFSET_POSITION + 8


def field_view(data: Bytes, dtype: Any) -> npt.NDArray[Any]:
    """`data` seen as one `dtype` at each byte position, without a copy: indexing it gathers fields."""
    dtype = np.dtype(dtype)
    return np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))


def record_candidates(data: Bytes, physical_offset: int) -> Positions:
    """Positions in `data`, whose first byte has `physical_offset`, that carry a record's magic and their own offset."""
    at = np.flatnonzero(data == MAGIC[0])
    at = at[(at >= 4) & (at <= len(data) - (MARK_SIZE - 4))]
    at = at[(data[at + 1] == MAGIC[1]) & (data[at + 2] == MAGIC[2])]
    version = data[at + 3]
    starts = at[(version == MAGIC[3]) | (version == MAGIC_V2[3])] - 4
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    found: Positions = starts[own == starts + physical_offset]
    return found


def chained(data: Bytes, physical_offset: int) -> tuple[Positions, Positions]:
    """(starts, sizes) of the complete records that follow each other from data[0] on."""
    links, position, end = [], 0, len(data) - RECORD_SIZE_MIN
    # Asking the array itself for its buffer would take as long as all the rest.
    view, size_at = memoryview(data), _SIZE.unpack_from  # type: ignore[arg-type]
    while position <= end:
        (size,) = size_at(view, position)
        if size < RECORD_SIZE_MIN:
            break
        links.append(position)
        position += size
    starts = np.fromiter(links, np.int64, len(links))
    ends = np.append(starts[1:], position)
    # Each has a whole mark, as no record is smaller.
    magic = field_view(data, ">i4")[starts + 4]
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    good = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good &= (own == starts + physical_offset) & (ends <= len(data))
    count = len(starts) if good.all() else int(np.argmin(good))
    return starts[:count], (ends - starts)[:count]
