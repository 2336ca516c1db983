"""Options and types of values that several of `pocketmq topic|group|dlq VERB` have. Nothing here imports the client."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import click

from pocketmq.cli.server_options import SERVER_OPTIONS, option
from pocketmq.runtime.command_line.commands import Command, Group, Lazy

JSON: Final = option("--json", is_flag=True, help="One JSON document, for scripts.")
OTHER_WORDS: Final = {
    "list": "ls",
    "add": "create",
    "info": "describe",
    "edit": "set",
    "alter": "set",
    "seek": "reset",
    "rm": "delete",
    "replay": "resend",
}
"""Words of rpk, nats and others, with ours. Each works in a group that has ours."""
WHERE: Final = (
    option("--cluster", metavar="NAME", help="Only at the brokers of this cluster."),
    option("--broker", metavar="NAME", help="Only at the broker with this name."),
)


class VerbGroup(Group):
    """Commands that also answer to OTHER_WORDS. They are in the module `place`, each under its own name."""

    def __init__(self, name: str, place: str, abouts: dict[str, str], **named: Any) -> None:
        """`abouts`: verb -> what it does."""
        super().__init__(name, {verb: Lazy(f"{place}:{verb}", about) for verb, about in abouts.items()}, **named)
        known = [f"{other} ({word})" for other, word in OTHER_WORDS.items() if word in abouts]
        self.notes = f"Other words for them: {', '.join(known)}."

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name if cmd_name in self.rows else OTHER_WORDS.get(cmd_name, cmd_name))


def argument(name: str, help: str, **settings: Any) -> click.Argument:
    """Return an argument of a command."""
    return click.Argument([name], help=help, **settings)


def verb(
    place: str,
    name: str,
    help: str,
    examples: str,
    *params: click.Parameter,
    check: Callable[[SimpleNamespace], None] | None = None,
    notes: str = "",
) -> click.Command:
    """Return a command. `place`: the module with the table VERBS, whose function gets the options.

    `check` may refuse the options before a connection is made.
    """
    callback = partial(_run, place, name, check)
    return Command(name, callback=callback, params=[*params, *SERVER_OPTIONS], help=help, examples=examples, notes=notes)


def _run(place: str, action: str, check: Callable[[SimpleNamespace], None] | None, **values: Any) -> int | None:
    options = SimpleNamespace(**values)
    if check is not None:
        check(options)
    import importlib

    from pocketmq.cli.verbs import running

    return running.run(options, importlib.import_module(place).VERBS[action])
