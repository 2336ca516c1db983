"""Generates the list of commands in docs/commands.md: `python -m tests.pocketmq.commands_page`."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from pocketmq.broker import __main__ as broker
from pocketmq.cli.main import TOOL
from pocketmq.cli.shutdown import mqshutdown
from pocketmq.namesrv import __main__ as namesrv
from pocketmq.proxy.__main__ import mqproxy
from pocketmq.runtime.command_line.commands import Command, Group
from pocketmq.runtime.command_line.server_command import server_command

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BEGIN, END = "<!-- commands -->\n", "<!-- end -->"
ELSEWHERE = {"pocketmq admin": "mqadmin.md"}
"""Groups whose commands have a page of their own."""


def programs() -> dict[str, click.Command]:
    """Return PocketMQ's programs by name, except mqadmin."""
    return {
        "pocketmq": TOOL,
        "mqbroker": server_command(broker.PROGRAM, broker.DESCRIPTION, is_broker=True),
        "mqnamesrv": server_command(namesrv.PROGRAM, namesrv.DESCRIPTION),
        "mqproxy": mqproxy(),
        "mqshutdown": mqshutdown,
    }


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its full name, groups before their commands."""
    for name, command in programs().items():
        yield from _with_commands(name, command)


def _with_commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, Group) and name not in ELSEWHERE:
        for below, row in command.rows.items():
            yield from _with_commands(f"{name} {below}", row.load())


def rendered() -> str:
    """Return the list in Markdown."""
    return "\n".join(_section(name, command) for name, command in every_command())


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    lines = [f"### {name}", "", _wrapped(command.help or ""), ""]
    if name in ELSEWHERE:
        return "\n".join([*lines, f"Its commands are listed in [{ELSEWHERE[name]}]({ELSEWHERE[name]}).", ""])
    if isinstance(command, Command) and command.examples:
        lines += [f"    {line}".rstrip() for line in command.examples.strip("\n").splitlines()] + [""]
    rows = [row for param in command.get_params(context) if (row := _row(param, context)) is not None]
    if isinstance(command, Group):
        rows += [(below, row.about) for below, row in command.rows.items()]
    lines += ["| | |", "|---|---|"] + [f"| `{what}` | {_escaped(help_)} |" for what, help_ in rows] + [""]
    if isinstance(command, Command) and command.notes:
        lines += [_wrapped(command.notes), ""]
    return "\n".join(lines)


def _row(param: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    if isinstance(param, click.Argument):
        return param.make_metavar(context), param.help or ""
    assert isinstance(param, click.Option)
    if param.name in ("version", "_click_default_help"):
        return None
    value = "" if param.is_flag else f" {param.make_metavar(context)}"
    return ", ".join(param.opts) + value.replace("|", "\\|"), param.help or ""


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    before, _, after = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + rendered() + END + after.partition(END)[2])
