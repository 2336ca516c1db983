"""Bodies of messages as pages show them: as text, as JSON or in hex, up to a size."""

import json
from typing import Final, NamedTuple

from pocketmq.runtime.peer_text import escaped, printable

TEXT_MAX: Final = 64 << 10
JSON_MAX: Final = 256 << 10
HEX_MAX: Final = 4 << 10
"""Limits of what a page shows of a body, in bytes."""
_INDENTED_MAX: Final = 4 * JSON_MAX
FORMS: Final = ("text", "json", "hex")
_HEX_ROW: Final = 16
_LINE_MAX: Final = 80


class Shown(NamedTuple):
    """A body in one of the forms. `is_cut`: only its beginning is in `text`."""

    form: str
    text: str
    is_cut: bool


def shown(body: bytes, form: str) -> Shown:
    """Return a body in a form; in the best one if the form is not possible, or not one of them."""
    if form not in FORMS:
        form = "json" if _begins_json(body) else "text" if _is_text(body) else "hex"
    if form == "json":
        indented = _indented(body)
        if indented is not None:
            return Shown("json", printable(indented), False)
        form = "text"
    if form == "hex":
        return Shown("hex", _dump(body[:HEX_MAX]), len(body) > HEX_MAX)
    return Shown("text", printable(body[:TEXT_MAX].decode(errors="replace")), len(body) > TEXT_MAX)


def one_line(start: bytes | None) -> str:
    """Return the beginning of a body in one line, as lists show it."""
    return "" if start is None else escaped(" ".join(start.decode(errors="replace").split()))[:_LINE_MAX]


def editable(body: bytes) -> str | None:
    """Return a body for an input of text; None if it would not come back as it is."""
    if len(body) > TEXT_MAX or not _is_text(body):
        return None
    text = body.decode()
    return None if "\r" in text or "\x00" in text else text


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _begins_json(body: bytes) -> bool:
    return body[:64].lstrip()[:1] in (b"{", b"[") and _indented(body) is not None


def _indented(body: bytes) -> str | None:
    """Return a JSON document with a line for each value; None for anything else, and for one that is too large."""
    if len(body) > JSON_MAX:
        return None
    parts, size = [], 0
    try:
        for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(json.loads(body)):
            size += len(part)
            if size > _INDENTED_MAX:  # a deep document has many blanks before each value
                return None
            parts.append(part)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def _dump(data: bytes) -> str:
    rows = []
    for begin in range(0, len(data), _HEX_ROW):
        row = data[begin : begin + _HEX_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{begin:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {letters}")
    return "\n".join(rows)
