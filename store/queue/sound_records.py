"""Whether records are what a queue says they are, before they are handed out.

A client goes from record to record by their sizes: one whose sizes are wrong would hide the sound ones behind it. What this
process wrote needs no look; what an earlier one left may be damaged where no start had a reason to read.
"""

import struct
from collections.abc import Iterable, Sequence

from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE
from pocketmq.store.format.record import HOST_FLAGS, SHAPE_OF, SHAPE_SIZE, UINT16_OF, BadRecordError, bounds


def is_sound(view: memoryview, position: int, size: int) -> bool:
    """Whether a record of `size` bytes is at `position`, all inner sizes adding up. Its contents are not looked at."""
    return _are_sound_in(view, position, (size,))


def are_sound(views: Sequence[memoryview], sizes: Iterable[int]) -> bool:
    """The same for records of these sizes, one after another, in views that each end with a record."""
    if len(views) == 1:
        return _are_sound_in(views[0], 0, sizes)
    rest = iter(views)
    position, view = 0, next(rest)
    for size in sizes:
        if position >= len(view):
            position, view = 0, next(rest)
        if not is_sound(view, position, size):
            return False
        position += size
    return True


def _are_sound_in(view: memoryview, position: int, sizes: Iterable[int]) -> bool:
    for size in sizes:
        end = position + size
        try:
            total_size, magic_code, host_bits, body_size = SHAPE_OF(view, position)
            if total_size != size:
                return False
            if magic_code == MESSAGE_MAGIC_CODE and not host_bits & HOST_FLAGS:
                # What nearly every record is, without the detours of `bounds`.
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
