"""Output of a command: Apache's plain layout, `rich` tables on a terminal, or one JSON document with `--json`."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.runtime.command_line.commands import say
from pocketmq.runtime.peer_text import escaped_json

if TYPE_CHECKING:
    from pocketmq.runtime.command_line.printer import Printer


class Table:
    """Columns of a list: header texts, Apache's printf layout of header and rows, and the JSON names of the columns."""

    def __init__(self, header: str, layout: str, keys: str, row_layout: str | None = None) -> None:
        """`header`: texts separated by `|`; `keys`: names separated by blanks; `row_layout`: if it differs from `layout`."""
        self.header = header.split("|")
        self.layout = layout
        self.row_layout = row_layout or layout
        self.keys = keys.split()
        assert len(self.header) == len(self.keys), f"{len(self.header)} columns, {len(self.keys)} JSON names"

    def title(self) -> str:
        """Return the header texts in Apache's layout."""
        return self.layout % tuple(self.header)

    def line(self, row: Sequence[Any]) -> str:
        """Return a row in Apache's layout."""
        return self.row_layout % tuple(row)

    def document(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row as an object."""
        return dict(zip(self.keys, row, strict=True))


class Output:
    """Prints as a command proceeds; with `--json` nothing but the command's result at its end."""

    def __init__(self, as_json: bool, terminal: "Printer | None" = None) -> None:
        """`terminal`: draw tables there; without it, on standard output if that is a terminal."""
        self.as_json = as_json
        self._terminal = terminal
        if terminal is None and not as_json and sys.stdout.isatty():
            from pocketmq.runtime.command_line.printer import Printer

            self._terminal = Printer()

    def say(self, text: object = "", nl: bool = True) -> None:
        """Print a line for people."""
        if not self.as_json:
            say(text, end="\n" if nl else "")

    def table(self, table: Table, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        """Print a table; return its rows as objects, for the result of the command."""
        rows = list(rows)
        if self._terminal is not None:
            _draw(self._terminal, table, rows)
        else:
            self.say(table.title())
            for row in rows:
                self.say(table.line(row))
        return [table.document(row) for row in rows]

    def result(self, value: Any) -> None:
        """Print the command's result, with `--json` only."""
        if self.as_json:
            say(_json(value, 2))


def _draw(terminal: "Printer", table: Table, rows: list[Sequence[Any]]) -> None:
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    for number, text in enumerate(table.header):
        is_number = all(isinstance(row[number], (int, float)) for row in rows)
        shown.add_column(text.removeprefix("#").strip(), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        cells = (f"{value:.2f}" if isinstance(value, float) else str(value) for value in row)
        shown.add_row(*cells)
    terminal.print(shown)


def pretty(value: Any) -> str:
    """Return JSON over many lines, indented by tabs and with sorted keys, as Apache's tool prints it."""
    lines = _json(value, 1).split("\n")
    return "\n".join("\t" * (len(line) - len(line.lstrip(" "))) + line.lstrip(" ").replace('": ', '":', 1) for line in lines)


def _json(value: Any, indent: int) -> str:
    """Return JSON over many lines with sorted keys."""
    import msgspec

    return escaped_json(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=indent).decode())
