"""Output of `explain`: a title, and a row for each field with its position, bytes, value and meaning."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.peer_text import escaped
from pocketmq.store.format import layout
from pocketmq.store_tools.explain.notes import NOTES
from pocketmq.store_tools.files.value_text import time_text

_BYTES_SHOWN: Final = 12
_TEXT_SHOWN: Final = 72
WRONG: Final = "WRONG: "


def hex_text(data: bytes) -> str:
    """Return bytes as `00 00 01 2C`; longer data is cut, with its size."""
    shown = data[:_BYTES_SHOWN].hex(" ").upper()
    return shown if len(data) <= _BYTES_SHOWN else f"{shown} .. {len(data)} B"


def preview(data: bytes) -> str:
    """Return bytes as quoted text if they are UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{len(data)} bytes that are not UTF-8 text"
    return f'"{escaped(text[:_TEXT_SHOWN])}"' + (f" .. {len(text)} characters" if len(text) > _TEXT_SHOWN else "")


def note(declaration: str, field: str) -> str:
    """Return the note about a field in NOTES, without Markdown."""
    return NOTES[declaration][field].replace("`", "")


class Field(NamedTuple):
    """A parsed field: position of its first byte in the data, its bytes, and its value (a number or bytes)."""

    name: str
    position: int
    data: bytes
    value: Any


def parsed(declaration: Any, data: bytes, position: int = 0) -> Iterator[Field]:
    """Yield the fields of a declaration of `layout` from `position` on, up to the end of the data or a negative length.

    Each is parsed separately, in the context of the previous ones, so that the fields before a damaged one can be shown.
    """
    values: dict[str, Any] = {}
    for subcon in declaration.subcons:
        size = subcon.sizeof(**values)
        if size < 0 or position + size > len(data):
            return
        part = data[position : position + size]
        values[subcon.name] = value = subcon.parse(part, **values)
        yield Field(str(subcon.name), position, part, value)
        position += size


class Drawing:
    """Table of the fields of one unit. `mark` is the requested byte of the file, which is highlighted."""

    def __init__(self, title: str, base: int, mark: int = -1) -> None:
        """`base` is the position of the unit's first byte in the file."""
        self._title = title
        self._base = base
        self._mark = mark
        self._table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for column, justify in (("byte", "right"), ("+", "right"), ("bytes", "left"), ("field", "left"), ("value", "left")):
            self._table.add_column(column, justify=justify, no_wrap=column != "value", overflow="fold")  # type: ignore[arg-type]
        self._table.add_column("meaning")
        self._below: list[Text] = []
        self.is_valid = True

    def row(self, position: int, data: bytes, name: str, value: str, meaning: str = "", wrong: str = "") -> None:
        """Add the field at `position` of the unit; `wrong` says why it is invalid."""
        if wrong:
            self.is_valid = False
        is_asked = position <= self._mark - self._base < position + len(data)
        style = "red" if wrong else "bold cyan" if is_asked else ""
        self._table.add_row(
            str(self._base + position),
            f"+{position}",
            hex_text(data),
            Text(name, style or "bold"),
            Text(value, style),
            Text(WRONG + wrong if wrong else meaning, style or "dim"),
        )

    def fields(self, name: str, data: bytes, meanings: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """Add a row for each field of `layout.NAME`; return their values. Meanings in `meanings` override those of NOTES."""
        values = {}
        for field in parsed(getattr(layout, name), data):
            values[field.name] = field.value
            meaning = meanings.get(field.name) or note(name, field.name)
            if meaning.startswith(WRONG):
                self.row(field.position, field.data, field.name, str(field.value), wrong=meaning.removeprefix(WRONG))
                continue
            if field.name.endswith(("timestamp_ms", "time_ms", "before_ms")) and field.value > 0:
                meaning = f"{time_text(field.value)}: {meaning}"
            value = "" if isinstance(field.value, bytes) else str(field.value)
            self.row(field.position, field.data, field.name, value, meaning)
        return values

    def below(self, text: str, style: str = "") -> None:
        """Add a line under the table."""
        self._below.append(Text(text, style))

    def wrong(self, text: str) -> None:
        """Add a line that says why the unit is invalid."""
        self.is_valid = False
        self.below(WRONG + text, "red")

    def print(self, console: Printer) -> None:
        console.print(Text(self._title, "bold underline"))
        console.print(self._table)
        for line in self._below:
            console.print(line)
