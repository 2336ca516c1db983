"""Bytes taken apart by a declaration of `layout`, field by field, as far as they go.

The declarations are `construct`'s; each of their fields is parsed by itself here, with the fields before it at hand, so that
of a damaged unit everything in front of the damage can still be shown, and each field knows its place.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Field(NamedTuple):
    """`position` is that of its first byte in the data, `data` its bytes, `value` what they say: a number, or bytes."""

    name: str
    position: int
    data: bytes
    value: Any


def parsed(declaration: Any, data: bytes, position: int = 0) -> Iterator[Field]:
    """The fields from `position` on; ends early where the data does, or where a length is negative."""
    values: dict[str, Any] = {}
    for subcon in declaration.subcons:
        size = subcon.sizeof(**values)
        if size < 0 or position + size > len(data):
            return
        part = data[position : position + size]
        values[subcon.name] = value = subcon.parse(part, **values)
        yield Field(str(subcon.name), position, part, value)
        position += size
