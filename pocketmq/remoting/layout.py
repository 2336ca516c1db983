"""Declarations of the frame and of the binary (ROCKETMQ) header, from which `frame` and `command` derive their structs.

frame   := length i32, mark (serialise type u8, header length u24), header, body
           length is the number of bytes after it
binary  := code i16, language u8, version i16, opaque i32, flag i32, remark (i32 + bytes), ext (i32 + entries)
entry   := key (i16 + bytes), value (i32 + bytes)
"""

import struct
from typing import Final

from construct import Int8ub, Int16sb, Int24ub, Int32sb, Int32ub, Struct

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Largest frame in bytes, with its length field: the default limit of Netty's decoder in Apache's server and clients.
A broker whose maxMessageSize needs more takes larger ones."""
CLIENT_FRAME_SIZE_MAX: Final = 256 * 1024 * 1024
"""Largest frame that our clients send and read; the broker has the limit for messages."""
HEADER_SIZE_MAX: Final = 0xFFFFFF
"""Largest header in bytes: a frame has 24 bits for its length."""

FrameHead = Struct("length" / Int32ub, "serialize_type" / Int8ub, "header_length" / Int24ub)

BinaryFixed = Struct("code" / Int16sb, "language" / Int8ub, "version" / Int16sb, "opaque" / Int32sb, "flag" / Int32sb)


def struct_of(declared: Struct) -> struct.Struct:
    """Return the big-endian `struct.Struct` of a construct that has only fixed-size integers."""
    return struct.Struct(">" + "".join(field.subcon.fmtstr[1:] for field in declared.subcons))


BINARY_FIXED_STRUCT: Final = struct_of(BinaryFixed)
assert BINARY_FIXED_STRUCT.size == BinaryFixed.sizeof() == 13
