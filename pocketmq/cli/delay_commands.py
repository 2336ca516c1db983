"""Command lines of `pocketmq delay ...`; the implementation, `cli.delay`, is imported when they run."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import click

from pocketmq.cli.duration import parse_duration_ms
from pocketmq.cli.server_options import server_options
from pocketmq.runtime.command_line.commands import Command, Group, Lazy
from pocketmq.runtime.command_line.option_types import Checked, WholeNumber
from pocketmq.store_tools.files.value_text import TIME_FORMS, parse_time_ms

_HERE: Final = "pocketmq.cli.delay_commands"
_ABOUT: Final = {
    "ls": "list pending messages by due time",
    "show": "show all properties and the body of messages",
    "count": "number of messages due in each hour",
    "cancel": "cancel messages: they are never delivered",
    "now": "deliver messages now instead of at their due time",
}


def _time(text: str) -> str:
    """Check a TIME; one that begins with `+` is relative to the time of each broker. Raises ValueError."""
    if text.startswith("+"):
        parse_duration_ms(text[1:])
    else:
        parse_time_ms(text)
    return text


_TIME: Final = Checked("TIME", _time, f"{TIME_FORMS}, or +30m")


def _command(action: str, examples: str) -> Callable[[Callable[..., int]], click.Command]:
    """Declare `pocketmq delay ACTION` with the options that all actions have."""
    changes = action in ("cancel", "now")
    decorators = [
        click.command(action, cls=Command, help=f"{_ABOUT[action].capitalize()}.", examples=examples),
        *(
            []
            if action == "count"
            else [click.argument("ids", nargs=-1, metavar="[ID]...", help="Unique keys or message ids.")]
        ),
        server_options,
        *([] if action == "count" else [click.option("--key", metavar="KEY", help="Messages with this key (KEYS).")]),
        click.option("--topic", metavar="TOPIC", help="Messages for this topic."),
        click.option("--from", "begin", type=_TIME, help="Due at TIME or later."),
        click.option("--to", "end", type=_TIME, help="Due before TIME: ISO 8601, epoch ms, or +30m."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
        if changes
        else click.option("--json", is_flag=True, help="JSON lines."),
    ]

    def declare(function: Callable[..., int]) -> click.Command:
        made: Any = function
        for decorate in reversed(decorators):
            made = decorate(made)
        assert isinstance(made, click.Command)
        return made

    return declare


def _run(action: str, values: dict[str, Any]) -> int:
    options = SimpleNamespace(action=action, **values)
    if action in ("show", "cancel", "now") and not (options.ids or options.key or options.topic):
        raise click.UsageError("no message is chosen: give an ID, --key or --topic")
    from pocketmq.cli import delay as command

    return command.run(options)


@_command("ls", "pocketmq delay ls --topic Orders --to +1h")
@click.option("--limit", type=WholeNumber(0), default=100, help="At most N messages (100).")
def ls(**values: Any) -> int:
    """List pending messages."""
    return _run("ls", values)


@_command("show", "pocketmq delay show 7F0000011D5C18B4AAC2CAFE0000")
def show(**values: Any) -> int:
    """Show messages."""
    return _run("show", values)


@_command("count", "pocketmq delay count --from 2026-11-21 --to 2026-11-22")
def count(**values: Any) -> int:
    """Count messages by hour."""
    return _run("count", values)


@_command("cancel", "pocketmq delay cancel --key order-7 --yes")
def cancel(**values: Any) -> int:
    """Cancel messages."""
    return _run("cancel", values)


@_command("now", "pocketmq delay now 7F0000011D5C18B4AAC2CAFE0000")
def now(**values: Any) -> int:
    """Deliver messages now."""
    return _run("now", values)


delay = Group(
    "delay",
    {action: Lazy(f"{_HERE}:{action}", about) for action, about in _ABOUT.items()},
    help="Work on delayed messages: those that brokers hold until they are due.",
    examples="""
pocketmq delay ls --topic Orders --to +1h
pocketmq delay show 7F0000011D5C18B4AAC2CAFE0000
pocketmq delay count --from 2026-11-21 --to 2026-11-22
pocketmq delay cancel --key order-7 --yes
pocketmq delay now 7F0000011D5C18B4AAC2CAFE0000
""",
)
