"""Parsing of bytes field by field, by a declaration of `layout`.

The declarations are `construct`'s. Each field is parsed separately here, in the context of the previous ones, so that the
fields before a damaged one can still be shown, each with its position.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Field(NamedTuple):
    """A parsed field: position of its first byte in the data, its bytes, and its value (a number or bytes)."""

    name: str
    position: int
    data: bytes
    value: Any


def parsed(declaration: Any, data: bytes, position: int = 0) -> Iterator[Field]:
    """Yield the fields that begin at `position`; end early at the end of the data or at a negative length."""
    values: dict[str, Any] = {}
    for subcon in declaration.subcons:
        size = subcon.sizeof(**values)
        if size < 0 or position + size > len(data):
            return
        part = data[position : position + size]
        values[subcon.name] = value = subcon.parse(part, **values)
        yield Field(str(subcon.name), position, part, value)
        position += size
