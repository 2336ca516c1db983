"""Templates of answers, cut from what the broker's own encoder writes."""

from collections.abc import Sequence

from pocketmq.remoting.codes import JSON
from pocketmq.remoting.command import Buffer, Response

MARKS = ("1000000001", "1000000002", "1000000003", "1000000004")
"""Values of a template's numbers, between which it is cut."""


def encoded(response: Response, opaque: int, serialize_type: int) -> bytes:
    """Return the header of an answer."""
    out: list[Buffer] = []
    response.encode_into(out, opaque, serialize_type)
    return bytes(out[0][8:])


def pieces(response: Response, opaque: int, marks: Sequence[str]) -> list[bytes]:
    """Return the pieces of an answer in JSON around the values `marks`, which it has in this order."""
    text, found = encoded(response, opaque, JSON), []
    for mark in marks:
        piece, text = text.split(mark.encode(), 1)
        found.append(piece)
    return [*found, text]
