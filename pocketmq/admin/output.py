"""Output of a command: Apache's plain layout, `rich` tables on a terminal, or one JSON document with `--json`."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return a text in which control characters other than tab and line feed are `?`: a terminal would obey them."""
    return _CONTROL.sub("?", text)


class Table:
    """Columns of a list: header texts, Apache's printf layout of header and rows, and the JSON names of the columns."""

    def __init__(self, header: str, layout: str, keys: str, row_layout: str | None = None) -> None:
        """`header`: texts separated by `|`; `keys`: names separated by blanks; `row_layout`: if it differs from `layout`."""
        self.header = header.split("|")
        self.layout = layout
        self.row_layout = row_layout or layout
        self.keys = keys.split()
        assert len(self.header) == len(self.keys), f"{len(self.header)} columns, {len(self.keys)} JSON names"


class Output:
    """Prints as a command proceeds; with `--json` nothing but the command's result at its end."""

    def __init__(self, as_json: bool, terminal: "Console | None" = None) -> None:
        """`terminal`: draw tables there; without it, on standard output if that is a terminal."""
        self.as_json = as_json
        self._terminal = terminal
        if terminal is None and not as_json and sys.stdout.isatty():
            from rich.console import Console

            self._terminal = Console()

    def say(self, text: object = "", nl: bool = True) -> None:
        """Print a line for people."""
        if not self.as_json:
            click.echo(text if self._terminal is None else printable(str(text)), nl=nl)

    def table(self, table: Table, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        """Print a table; return its rows as objects, for the result of the command."""
        rows = list(rows)
        if self._terminal is not None:
            _draw(self._terminal, table, rows)
        else:
            self.say(table.layout % tuple(table.header))
            for row in rows:
                self.say(table.row_layout % tuple(row))
        return [dict(zip(table.keys, row, strict=True)) for row in rows]

    def result(self, value: Any) -> None:
        """Print the command's result, with `--json` only."""
        if self.as_json:
            import msgspec

            text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()
            click.echo(text)


def _draw(terminal: "Console", table: Table, rows: list[Sequence[Any]]) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    for number, text in enumerate(table.header):
        is_number = all(isinstance(row[number], (int, float)) for row in rows)
        shown.add_column(text.removeprefix("#").strip(), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        cells = (f"{value:.2f}" if isinstance(value, float) else printable(str(value)) for value in row)
        shown.add_row(*map(Text, cells))
    terminal.print(shown)


def pretty(value: Any) -> str:
    """Return JSON over many lines, indented by tabs and with sorted keys, as Apache's tool prints it."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1).decode()
    lines = text.split("\n")
    return "\n".join("\t" * (len(line) - len(line.lstrip(" "))) + line.lstrip(" ").replace('": ', '":', 1) for line in lines)
