"""A run of `pocketmq topic|group|dlq VERB`: its connections, tables, JSON and questions.

A verb prints a table for people, or with `--json` one document. Requests and what they compute are in `admin/api`.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import click
from rich.table import Table

from pocketmq.admin.api.client import AdminClient, AdminError, Unreachable
from pocketmq.admin.output import Output
from pocketmq.cli import server_options
from pocketmq.client.access import Access
from pocketmq.runtime.command_line.commands import FAILURE, CommandError, say
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.peer_text import time_text

PIPE_WIDTH: Final = 240
NONE: Final = "-"
"""Shown for a value that there is not."""

Work = Callable[[AdminClient, SimpleNamespace], Awaitable[int | None]]


def run(options: SimpleNamespace, work: Work) -> int | None:
    """Run a verb and return its exit code, or None for 0. Raises CommandError or UsageError."""
    return server_options.run(options, lambda access: _run(options, access, work))


async def _run(options: SimpleNamespace, access: Access, work: Work) -> int | None:
    try:
        async with AdminClient(options.namesrv.split(";"), access) as admin:
            await _reach_a_namesrv(admin)
            return await work(admin, options)
    except AdminError as failure:
        raise CommandError(str(failure)) from failure


async def _reach_a_namesrv(admin: AdminClient) -> None:
    """Fetch the clusters, which all verbs need. Raises OSError with the addresses if no name server answers."""
    try:
        await admin.cluster_info()
    except Unreachable as failure:
        where = ";".join(admin.namesrv_addresses)
        cause = failure.__cause__
        text = reason(cause) if cause is not None else str(failure)
        check = "check that one is running there, and that the address is right"
        raise ConnectionError(f"no name server answers ({where}: {text}): {check}") from cause


def show(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers are right-aligned. Without rows nothing is printed."""
    rows = [list(row) for row in rows]
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_number = all(isinstance(row[number], int) or row[number] == NONE for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    Printer(soft_wrap=True, pipe_width=PIPE_WIDTH).print(table)


def document(value: Any) -> None:
    """Print the JSON document of `--json`."""
    Output(as_json=True).result(value)


def agree(about: str) -> None:
    """Ask whether to continue. Any other answer than yes, and the end of the input, ends the command."""
    if _answer(f"{about}: continue? [y/N] ").lower() not in ("y", "yes"):
        raise click.exceptions.Exit(FAILURE)


def agree_by_name(about: str, name: str) -> None:
    """Ask for a name to be typed, because something is lost. Another text ends the command."""
    say(about, to_errors=True)
    if _answer(f"Type {name} to continue: ") != name:
        say("nothing is changed", to_errors=True)
        raise click.exceptions.Exit(FAILURE)


def _answer(question: str) -> str:
    say(question, end="", to_errors=True)
    return sys.stdin.readline().strip()


def moment(time_ms: int) -> str:
    """Return local time to the second; NONE for 0, which means that there was nothing yet."""
    return time_text(time_ms, "%Y-%m-%d %H:%M:%S") if time_ms > 0 else NONE


def counted(number: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
