"""Command lines of `pocketmq delay ...`; the implementation, `cli.delay`, is imported when they run."""

from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import click

from pocketmq.cli.duration import parse_duration_ms
from pocketmq.cli.server_options import SERVER_OPTIONS, YES, option
from pocketmq.runtime.command_line.commands import Command, Group, Lazy
from pocketmq.runtime.command_line.option_types import Checked, WholeNumber
from pocketmq.store_tools.files.value_text import TIME_FORMS, parse_time_ms

_ACTIONS: Final = {
    "ls": ("list pending messages by due time", "pocketmq delay ls --topic Orders --to +1h"),
    "show": ("show all properties and the body of messages", "pocketmq delay show 7F0000011D5C18B4AAC2CAFE0000"),
    "count": ("number of messages due in each hour", "pocketmq delay count --from 2026-11-21 --to 2026-11-22"),
    "cancel": ("cancel messages: they are never delivered", "pocketmq delay cancel --key order-7 --yes"),
    "now": ("deliver messages now instead of at their due time", "pocketmq delay now 7F0000011D5C18B4AAC2CAFE0000"),
}
"""Meaning of each action, with an example."""


def _time(text: str) -> str:
    """Check a TIME; one that begins with `+` is relative to the time of each broker. Raises ValueError."""
    if text.startswith("+"):
        parse_duration_ms(text[1:])
    else:
        parse_time_ms(text)
    return text


_TIME: Final = Checked("TIME", _time, f"{TIME_FORMS}, or +30m")


def _command(action: str, *own: click.Option) -> click.Command:
    """Return `pocketmq delay ACTION`, with the options that all actions have, and its own."""
    about, example = _ACTIONS[action]
    params = [
        click.Argument(["ids"], nargs=-1, metavar="[ID]...", help="Unique keys or message ids."),
        *SERVER_OPTIONS,
        option("--key", metavar="KEY", help="Messages with this key (KEYS)."),
        option("--topic", metavar="TOPIC", help="Messages for this topic."),
        option("--from", "begin", type=_TIME, help="Due at TIME or later."),
        option("--to", "end", type=_TIME, help="Due before TIME: ISO 8601, epoch ms, or +30m."),
        *own,
    ]
    if action == "count":
        params = [param for param in params if param.name not in ("ids", "key")]
    return Command(action, callback=partial(_run, action), params=params, help=f"{about.capitalize()}.", examples=example)


def _run(action: str, **values: Any) -> int | None:
    options = SimpleNamespace(**values)
    if action in ("show", "cancel", "now") and not (options.ids or options.key or options.topic):
        raise click.UsageError("no message is chosen: give an ID, --key or --topic")
    from pocketmq.cli import delay as command

    return command.run(options, action)


_JSON: Final = option("--json", is_flag=True, help="JSON lines.")
ls = _command("ls", _JSON, option("--limit", type=WholeNumber(0), default=100, help="At most N messages (100)."))
show, count = _command("show", _JSON), _command("count", _JSON)
cancel, now = _command("cancel", YES), _command("now", YES)

delay = Group(
    "delay",
    {action: Lazy(f"{__name__}:{action}", about) for action, (about, _) in _ACTIONS.items()},
    help="Work on delayed messages: those that brokers hold until they are due.",
    examples="\n".join(example for _, example in _ACTIONS.values()),
)
