"""Options and types of values that several of `pocketmq topic|group|dlq VERB` have. Nothing here imports the client."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import click

from pocketmq.cli.server_options import SERVER_OPTIONS, option
from pocketmq.runtime.command_line.commands import Command

JSON: Final = option("--json", is_flag=True, help="One JSON document, for scripts.")
YES: Final = option("--yes", is_flag=True, help="Do not ask for confirmation.")
WHERE: Final = (
    option("--cluster", metavar="NAME", help="Only at the brokers of this cluster."),
    option("--broker", metavar="NAME", help="Only at the broker with this name."),
)


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
    """Return a command. `place`: the module with the function `run` that gets the options, with the verb as `action`.

    `check` may refuse the options before a connection is made.
    """
    callback = partial(_run, place, name, check)
    return Command(name, callback=callback, params=[*params, *SERVER_OPTIONS], help=help, examples=examples, notes=notes)


def _run(place: str, action: str, check: Callable[[SimpleNamespace], None] | None, **values: Any) -> int:
    options = SimpleNamespace(action=action, **values)
    if check is not None:
        check(options)
    import importlib

    code: int = importlib.import_module(place).run(options)
    return code
