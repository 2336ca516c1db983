"""Find the positions of the records in a range of the log.

The position of a record follows only from the size of the one before, so the log is a chain that must be followed from the
beginning. A loop does that by sizes only; afterwards the other conditions, magic code and a physicalOffset equal to the
position, are checked for all records at once. After damage or in the middle of a file, records must be searched for by these
conditions.

`linked` follows many stretches of the chain in parallel with numpy, which is faster than the loop. Each stretch begins where
a search found a record. The result is used only if each stretch ends exactly where the next one begins; otherwise the loop
decides.
"""

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, PHYSICAL_OFFSET_POSITION, RECORD_SIZE_MIN

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

MAGIC: Final = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
MAGIC_V2: Final = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
assert MAGIC[:3] == MAGIC_V2[:3]
_SIZE: Final = struct.Struct(">i")
# Approximate number of records per stretch. Shorter stretches need more searches; longer ones leave less to do per step.
_STRETCH_RECORDS: Final = 24
_STRETCHES_MIN: Final = 16
# The last stretches are followed by the loop, so that no step passes the end of the data.
_STRETCHES_LAST: Final = 2
_STEPS: Final = 4  # between two checks whether all stretches are complete
_SAMPLE: Final = 16  # records
# Number of bytes at a record's start that identify it: they contain size, magic code and physical offset.
MARK_SIZE: Final = PHYSICAL_OFFSET_POSITION + 8
_MARK: Final = np.dtype(
    {
        "names": ["size", "magic_code", "physical_offset"],
        "formats": [">i4", ">i4", ">i8"],
        "offsets": [0, 4, PHYSICAL_OFFSET_POSITION],
        "itemsize": MARK_SIZE,
    }
)


def field_view(data: Bytes, dtype: Any) -> npt.NDArray[Any]:
    """Return a view of `data` with one `dtype` at each byte position, without a copy; indexing it gathers fields."""
    dtype = np.dtype(dtype)
    return np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))


def complete_units(data: Bytes, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a view of the complete units of `dtype` at the beginning of `data`."""
    return data[: len(data) - len(data) % np.dtype(dtype).itemsize].view(dtype)


def record_candidates(data: Bytes, physical_offset: int) -> Positions:
    """Return the positions in `data` with a record's magic code and correct offset; `data[0]` has `physical_offset`."""
    at = np.flatnonzero(data == MAGIC[0])
    at = at[(at >= 4) & (at <= len(data) - (MARK_SIZE - 4))]
    at = at[(data[at + 1] == MAGIC[1]) & (data[at + 2] == MAGIC[2])]
    version = data[at + 3]
    starts = at[(version == MAGIC[3]) | (version == MAGIC_V2[3])] - 4
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    found: Positions = starts[own == starts + physical_offset]
    return found


def chained(data: Bytes, physical_offset: int) -> tuple[Positions, Positions]:
    """Return (starts, sizes) of the consecutive complete records from data[0] on."""
    links, position, end = [], 0, len(data) - RECORD_SIZE_MIN
    # Unpacking from the array itself would be much slower, because it would request the array's buffer each time.
    view, size_at = memoryview(data), _SIZE.unpack_from  # type: ignore[arg-type]
    while position <= end:
        (size,) = size_at(view, position)
        if size < RECORD_SIZE_MIN:
            break
        links.append(position)
        position += size
    starts = np.fromiter(links, np.int64, len(links))
    ends = np.append(starts[1:], position)
    # Each has a complete mark (MARK_SIZE bytes), because no record is smaller.
    magic = field_view(data, ">i4")[starts + 4]
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    good = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good &= (own == starts + physical_offset) & (ends <= len(data))
    count = len(starts) if good.all() else int(np.argmin(good))
    return starts[:count], (ends - starts)[:count]


def linked(data: Bytes, physical_offset: int) -> tuple[Positions, Positions]:
    """Return the same as `chained`, faster for many records."""
    begins = _stretch_begins(data, physical_offset, _usual_size(data))
    starts = _in_step(data, physical_offset, begins) if len(begins) >= _STRETCHES_MIN else None
    if starts is None:
        return chained(data, physical_offset)
    # Gathering whole marks once is faster than gathering each field.
    marks = field_view(data, f"V{MARK_SIZE}")[starts].view(_MARK)
    sizes, magic = marks["size"].astype(np.int64), marks["magic_code"]
    good = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good &= marks["physical_offset"] == starts + physical_offset
    if (starts[:-1] + sizes[:-1] != starts[1:]).any() or not good.all():
        return chained(data, physical_offset)
    return starts, sizes


def _usual_size(data: Bytes) -> int:
    """Return the average size of the first few records."""
    view, position, count = memoryview(data), 0, 0  # type: ignore[arg-type]
    while count < _SAMPLE and position <= len(data) - RECORD_SIZE_MIN:
        (size,) = _SIZE.unpack_from(view, position)
        if size < RECORD_SIZE_MIN:
            break
        position, count = position + size, count + 1
    return position // count if count else max(len(data), 1)


def _stretch_begins(data: Bytes, physical_offset: int, size: int) -> Positions:
    """Return the starts of the stretches, for records of about `size` bytes; the first is 0."""
    every = _STRETCH_RECORDS * size
    if len(data) < _STRETCHES_MIN * every:
        return np.zeros(1, np.int64)
    # numpy searches each stretch up to the first match. The bytes are passed as strings, for which it has a search.
    texts = np.ndarray((len(data) // every,), f"S{2 * size}", data, strides=(every,))
    found = np.strings.find(texts, MAGIC[:3])
    begins = (np.arange(0, len(texts) * every, every) + found - 4)[found >= 0]
    begins = np.append(0, begins[begins > 0])
    own = field_view(data, ">i8")[begins + PHYSICAL_OFFSET_POSITION]
    true: Positions = begins[own == begins + physical_offset]
    return true


def _in_step(data: Bytes, physical_offset: int, begins: Positions) -> Positions | None:
    """Return the starts of the records from each of `begins` up to the next, and from the last to the end.

    Returns None if following the sizes leaves the data or takes too many steps.
    """
    size_at = field_view(data, ">u4")
    places, stops = begins[:-_STRETCHES_LAST], begins[1 : 1 - _STRETCHES_LAST]
    steps = [places]
    try:
        while (places < stops).any():
            if len(steps) > 4 * _STRETCH_RECORDS:
                return None
            for _ in range(_STEPS):
                places = places + size_at[places]
                steps.append(places)
    except IndexError:
        return None
    # Positions of a stretch after its end belong to the next one and are dropped.
    seen = np.array(steps).T
    last = int(begins[-_STRETCHES_LAST])
    rest, _ = chained(data[last:], physical_offset + last)
    return np.concatenate([seen[seen < stops[:, None]], rest + last])
