"""Command `mqadmin`: Apache's admin tool, for PocketMQ's servers and Apache's.

`mqadmin help` lists the sub-commands, `mqadmin help COMMAND` shows the options of one. How to add one is described in
`admin/command.py`.

Shell completion: eval "$(_MQADMIN_COMPLETE=bash_source mqadmin)", or zsh_source, fish_source.
"""

import importlib
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from pocketmq.admin.commands import FAMILIES
from pocketmq.runtime.command_line.commands import Command, Group, Lazy, complain, nearest, run, say

EXIT_USAGE: Final = 1
"""For wrong options, as Apache's tool."""
_ROWS: Final = {
    name: Lazy(f"pocketmq.admin.commands.{family}:{name}", summary)
    for family, names in FAMILIES.items()
    for name, summary in names.items()
}
_BY_LOWER: Final = {name.lower(): name for name in _ROWS}


class Tool(Group):
    """The sub-commands, imported when they are used. Names are matched without regard to case, as Apache does."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a sub-command."""
        if cmd_name == "help":
            return show_help
        name = _BY_LOWER.get(cmd_name.lower())
        return None if name is None else declared(name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the sub-command; one that does not exist is reported as Apache does, with exit code 0."""
        found = self.get_command(ctx, args[0])
        if found is None and not ctx.resilient_parsing:
            _refuse_unknown(ctx, args[0])
        return None if found is None else found.name, found, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sub-commands by family."""
        for family, names in FAMILIES.items():
            with formatter.section(f"Commands: {family}"):
                formatter.write_dl(list(names.items()))


def declared(name: str) -> click.Command:
    """Return the sub-command of a name from its family's module."""
    module = importlib.import_module(_ROWS[name].place.partition(":")[0])
    return next(value for value in vars(module).values() if isinstance(value, click.Command) and value.name == name)


def _refuse_unknown(ctx: click.Context, name: str) -> NoReturn:
    say(f"The sub command {name} not exist.")
    with ctx:
        complain(f"unknown command {name!r}{nearest(name, _ROWS)}")
    raise click.exceptions.Exit(0)


@click.command("help", cls=Command, help="Show the sub-commands, or the options of one.")
@click.argument("name", required=False)
@click.pass_context
def show_help(ctx: click.Context, name: str | None) -> None:
    """Show the sub-commands, or the options of one."""
    assert ctx.parent is not None
    if name is None:
        say(ctx.parent.get_help())
        return
    found = TOOL.get_command(ctx.parent, name)
    if found is None:
        _refuse_unknown(ctx, name)
    say(found.get_help(click.Context(found, ctx.parent, found.name)))


@click.pass_context
def _begin(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


TOOL: Final = Tool(
    "mqadmin",
    _ROWS,
    help="Administer RocketMQ: topics, consumer groups, brokers and name servers.",
    examples="mqadmin topicList -n 127.0.0.1:9876\nmqadmin help updateTopic          the options of a command",
    invoke_without_command=True,
    callback=_begin,
    usage_exit_code=EXIT_USAGE,
)


def main(arguments: Sequence[str] | None = None, program: str = "mqadmin") -> NoReturn:
    """Run a sub-command and end the process with its exit code."""
    run(TOOL, program, arguments)
