"""The members of a batch, as SEND_BATCH_MESSAGE and SEND_MESSAGE_V2 have them in their body.

member := total size i32, magic code i32, body CRC i32, flag i32, body (i32 + bytes), properties (u16 + bytes)
"""

import struct
from collections.abc import Iterator
from typing import Final

from pocketmq.broker.put.put import split_properties
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError

Member = tuple[int, memoryview, tuple[dict[str, str], str]]
"""Flag, body, and the result of `split_properties`."""

_MEMBER_HEAD: Final = struct.Struct(">iiiii")  # total size, magic code, body CRC, flag, body size
_INT16: Final = struct.Struct(">H")


def batch_members(body: bytes) -> Iterator[Member]:
    """Decode the members of a batch one by one. Raises RemotingError naming an invalid member."""
    view, position, end = memoryview(body), 0, len(body)
    index = 0
    while position < end:
        try:
            size, _, _, flag, body_size = _MEMBER_HEAD.unpack_from(view, position)
            start = position + _MEMBER_HEAD.size
            (properties_size,) = _INT16.unpack_from(view, start + body_size) if body_size >= 0 else (0,)
        except struct.error:
            raise _bad_member(index, f"it is cut off after {end - position} bytes") from None
        properties_start = start + body_size + _INT16.size
        member_end = properties_start + properties_size
        if body_size < 0 or member_end > end or size != member_end - position:
            sizes = f"total size {size}, body size {body_size} and properties size {properties_size}"
            raise _bad_member(index, f"{sizes} are inconsistent")
        text = str(view[properties_start:member_end], "utf-8", "replace")
        yield flag, view[start : start + body_size], split_properties(text)
        position = member_end
        index += 1
    if not index:
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: the batch is empty")


def _bad_member(index: int, problem: str) -> RemotingError:
    return RemotingError(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: message {index} of the batch: {problem}")
