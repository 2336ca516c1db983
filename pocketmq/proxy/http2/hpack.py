"""Header blocks of HTTP/2 (HPACK, RFC 7541): a decoder with its dynamic table, and the encoding of a field without one."""

from collections import deque
from typing import Final

from pocketmq.proxy.http2 import huffman

Field = tuple[bytes, bytes]
_OVERHEAD: Final = 32
"""Bytes that each entry of the table counts besides its name and value."""
TABLE_SIZE: Final = 4096
_NUMBER_MAX: Final = 1 << 24
_EXCESS_MAX: Final = 16
"""A block whose fields have more bytes than so many times the limit is not decoded to its end: it may name a large field
thousands of times."""
# fmt: off
_STATIC: Final[tuple[Field, ...]] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""), (b"host", b""),
    (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""), (b"max-forwards", b""),
    (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""), (b"referer", b""), (b"refresh", b""),
    (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""), (b"strict-transport-security", b""),
    (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""), (b"via", b""), (b"www-authenticate", b""),
)
# fmt: on
_NAMES: Final = {name: number for number, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


class BadBlock(ValueError):
    """A header block cannot be decoded, so that the state of the table is unknown from now on."""


class Decoder:
    """Decoder of one connection's blocks, with the fields that it keeps for later blocks."""

    def __init__(self) -> None:
        self._kept: deque[Field] = deque()
        self._size, self._size_max = 0, TABLE_SIZE

    def decode(self, block: bytes, size_max: int) -> list[Field] | None:
        """Return the fields of a block; None if they have more than `size_max` bytes. Raises BadBlock."""
        at, end, size = 0, len(block), 0
        fields: list[Field] = []
        while at < end:
            first = block[at]
            if first & 0x80:
                number, at = _number(block, at, 0x7F)
                field = self._field(number)
            elif first & 0xE0 == 0x20:
                number, at = _number(block, at, 0x1F)
                self._resize(number)
                continue
            else:
                is_kept = first & 0x40
                number, at = _number(block, at, 0x3F if is_kept else 0x0F)
                if number:
                    name = self._field(number)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                field = name, value
                if is_kept:
                    self._keep(field)
            size += len(field[0]) + len(field[1]) + _OVERHEAD
            if size <= size_max:
                fields.append(field)
            elif size > _EXCESS_MAX * size_max:
                raise BadBlock(f"fields of more than {_EXCESS_MAX} times {size_max} bytes")
        return fields if size <= size_max else None

    def _field(self, number: int) -> Field:
        if 0 < number <= len(_STATIC):
            return _STATIC[number - 1]
        if 0 < number <= len(_STATIC) + len(self._kept):
            return self._kept[number - len(_STATIC) - 1]
        raise BadBlock(f"no field {number} in the table")

    def _keep(self, field: Field) -> None:
        self._kept.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _OVERHEAD
        self._evict()

    def _resize(self, size: int) -> None:
        if size > TABLE_SIZE:
            raise BadBlock(f"a table of {size} bytes is more than the {TABLE_SIZE} that were allowed")
        self._size_max = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._size_max:
            name, value = self._kept.pop()
            self._size -= len(name) + len(value) + _OVERHEAD


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return a number whose first bits are those of `mask` in the byte at `at`, and where it ends. Raises BadBlock."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    shift = 0
    while at < len(block):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        shift += 7
        if number > _NUMBER_MAX:
            break
        if not byte & 0x80:
            return number, at
        if shift > 28:
            break
    raise BadBlock("a number that is too large, or does not end")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a string, and where it ends. Raises BadBlock."""
    if at >= len(block):
        raise BadBlock("a field without its string")
    is_huffman = block[at] & 0x80
    length, at = _number(block, at, 0x7F)
    data, at = block[at : at + length], at + length
    if len(data) < length:
        raise BadBlock("a string longer than its block")
    if not is_huffman:
        return data, at
    try:
        return huffman.decoded(data), at
    except ValueError as error:
        raise BadBlock(str(error)) from None


def encoded(name: bytes, value: bytes) -> bytes:
    """Return a field that is not to be kept in the table. `name` is in lower case."""
    number = _NAMES.get(name)
    head = b"\0" + _encoded_string(name) if number is None else _encoded_number(number, 0x0F)
    return head + _encoded_string(value)


def _encoded_string(text: bytes) -> bytes:
    return _encoded_number(len(text), 0x7F) + text


def _encoded_number(number: int, mask: int) -> bytes:
    if number < mask:
        return bytes((number,))
    made, number = bytearray((mask,)), number - mask
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
