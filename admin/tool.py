"""Command `mqadmin`: Apache's admin tool, for PocketMQ's servers and Apache's.

`mqadmin help` lists the sub-commands, `mqadmin help COMMAND` shows its options. A sub-command's module is imported when it
is used; how to add one is described in `admin/command.py`.

Shell completion: eval "$(_MQADMIN_COMPLETE=bash_source mqadmin)", or zsh_source, fish_source.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem

from pocketmq import __version__
from pocketmq.admin.command import EXIT_FAILED
from pocketmq.admin.commands import FAMILIES

SUMMARIES: Final = {name: summary for family in FAMILIES.values() for name, summary in family.items()}
"""Summary by name of sub-command."""
_MODULES: Final = {name: f"pocketmq.admin.commands.{family}" for family, names in FAMILIES.items() for name in names}
_BY_LOWER: Final = {name.lower(): name for name in SUMMARIES}


class Tool(click.Group):
    """The sub-commands, imported when they are used. Names are matched without regard to case, as Apache does."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all sub-commands."""
        return ["help", *sorted(SUMMARIES)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a sub-command."""
        if cmd_name == "help":
            return show_help
        name = _BY_LOWER.get(cmd_name.lower())
        return None if name is None else declared(name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the sub-command; one that does not exist is reported as Apache does, with exit code 0."""
        found = self.get_command(ctx, args[0])
        if found is None:
            _refuse_unknown(args[0])
        return args[0], found, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of sub-commands by family."""
        for family, names in FAMILIES.items():
            with formatter.section(family.capitalize()):
                formatter.write_dl(list(names.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names that begin with `incomplete`."""
        names = [name for name in self.list_commands(ctx) if name.lower().startswith(incomplete.lower())]
        return [CompletionItem(name, help=SUMMARIES.get(name)) for name in names]


def declared(name: str) -> click.Command:
    """Return the sub-command declared under a name in its family's module."""
    module = importlib.import_module(_MODULES[name])
    return next(value for value in vars(module).values() if isinstance(value, click.Command) and value.name == name)


def _refuse_unknown(name: str) -> None:
    click.echo(f"The sub command {name} not exist.")
    near = difflib.get_close_matches(name.lower(), _BY_LOWER, 3)
    if near:
        click.echo(f"Similar: {', '.join(_BY_LOWER[one] for one in near)}", err=True)
    sys.exit(0)


@click.command("help", short_help="Show the options of a sub-command", add_help_option=False)
@click.argument("name", required=False)
@click.pass_context
def show_help(ctx: click.Context, name: str | None) -> None:
    """Show the options of a sub-command, or the list of sub-commands."""
    assert ctx.parent is not None
    if name is None:
        click.echo(ctx.parent.get_help())
        return
    tool = ctx.parent.command
    assert isinstance(tool, Tool)
    found = tool.get_command(ctx.parent, name)
    if found is None:
        _refuse_unknown(name)
    else:
        click.echo(found.get_help(click.Context(found, ctx.parent, found.name, **found.context_settings)))


@click.pass_context
def _begin(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


TOOL: Final = Tool(
    "mqadmin",
    help="Administer RocketMQ: topics, consumer groups, brokers and name servers.",
    epilog="See 'mqadmin help COMMAND' for the options of a sub-command.",
    no_args_is_help=False,
    invoke_without_command=True,
    callback=_begin,
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, prog_name="mqadmin", message="%(prog)s of PocketMQ %(version)s")(TOOL)


def main(arguments: Sequence[str] | None = None, prog_name: str = "mqadmin") -> None:
    """Run a sub-command and end the process with its exit code: 1, as Apache's, for wrong options."""
    try:
        TOOL.main(None if arguments is None else list(arguments), prog_name=prog_name, standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(EXIT_FAILED)
    except click.Abort:
        sys.exit(130)
