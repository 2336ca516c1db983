"""Check that records are intact before they are sent to a client.

A client finds the next record by the size of the current one, so one record with a wrong size would hide the intact records
after it. Records written by this process need no check. Records of an earlier process may be damaged in parts of the log
that recovery had no reason to read.
"""

import struct
from collections.abc import Iterable, Sequence

from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE
from pocketmq.store.format.record import HOST_FLAGS, SHAPE_OF, SHAPE_SIZE, UINT16_OF, BadRecordError, bounds


def is_valid(view: memoryview, position: int, size: int) -> bool:
    """Return whether a record of `size` bytes with consistent inner sizes is at `position`. Its contents are not checked."""
    return _are_valid_in(view, position, (size,))


def are_valid(views: Sequence[memoryview], sizes: Iterable[int]) -> bool:
    """Return whether consecutive records with these `sizes` are intact. Each view ends at the end of a record."""
    if len(views) == 1:
        return _are_valid_in(views[0], 0, sizes)
    rest = iter(views)
    position, view = 0, next(rest)
    for size in sizes:
        if position >= len(view):
            position, view = 0, next(rest)
        if not is_valid(view, position, size):
            return False
        position += size
    return True


def _are_valid_in(view: memoryview, position: int, sizes: Iterable[int]) -> bool:
    for size in sizes:
        end = position + size
        try:
            total_size, magic_code, host_bits, body_size = SHAPE_OF(view, position)
            if total_size != size:
                return False
            if magic_code == MESSAGE_MAGIC_CODE and not host_bits & HOST_FLAGS:
                # Inlined from `bounds` for the common case: IPv4 hosts and the original magic code.
                start = position + SHAPE_SIZE + body_size
                start += view[start] + 3
                if end - start != UINT16_OF(view, start - 2)[0] or end > len(view):
                    return False
            else:
                bounds(view, position)
        except (BadRecordError, struct.error, IndexError):
            return False
        position = end
    return True
