"""Command lines of `pocketmq group VERB`; the implementation, `cli.verbs.groups`, is imported when they run."""

from functools import partial
from types import SimpleNamespace
from typing import Final

import click

from pocketmq.cli.server_options import YES, option
from pocketmq.cli.verbs.options import JSON, WHERE, VerbGroup, argument, verb
from pocketmq.runtime.command_line.option_types import Checked, WholeNumber
from pocketmq.store_tools.files.value_text import parse_time_ms

RETRIES: Final = 16
_TO: Final = "earliest, latest, a queue offset such as 1200, or a time such as 2026-11-21T12:30:05"
_GROUP: Final = argument("group", "The consumer group.")
_group: Final = partial(verb, "pocketmq.cli.verbs.groups")


def _to(text: str) -> tuple[str, int]:
    """Return the kind of a reset's target, and its value: a number is an offset, unlike elsewhere. Raises ValueError."""
    if text in ("earliest", "latest"):
        return text, 0
    if text.isascii() and text.isdigit():
        return "offset", int(text)
    return "time", parse_time_ms(text)


def _check_reset(options: SimpleNamespace) -> None:
    if options.to[0] == "offset" and options.to[1] >= 1 << 63:
        raise click.UsageError(f"--to {options.to[1]}: no queue has such an offset")


ls = _group("ls", "List consumer groups.", "pocketmq group ls\npocketmq group ls --json", JSON)
create = _group(
    "create",
    "Create a consumer group at all brokers.",
    "pocketmq group create billing --retries 5",
    _GROUP,
    option(
        "--retries",
        type=WholeNumber(0, (1 << 31) - 1),
        default=RETRIES,
        help=f"Retries of a message before it becomes a dead letter ({RETRIES}).",
    ),
    option("--ordered", is_flag=True, help="Its clients that pop consume in order (5.x)."),
    *WHERE,
)
describe = _group(
    "describe",
    "Show a consumer group: its offset, lag and client in each queue, its members and their subscriptions.",
    "pocketmq group describe billing",
    _GROUP,
    JSON,
)
reset = _group(
    "reset",
    "Reset the offsets of a consumer group in a topic, also while its consumers run. Asks if this skips messages.",
    "pocketmq group reset billing Orders --to earliest --dry-run\n"
    "pocketmq group reset billing Orders --to 2026-11-21T12:30:05\n"
    "pocketmq group reset billing Orders --to 1200 --queue 3",
    _GROUP,
    argument("topic", "The topic."),
    option("--to", type=Checked("TARGET", _to, _TO), required=True, help=f"{_TO[:1].upper()}{_TO[1:]}."),
    option("--queue", type=WholeNumber(0), help="Only the queue with this id."),
    option("--broker", metavar="NAME", help="Only the queues at the broker with this name."),
    option("--dry-run", is_flag=True, help="Show the new offsets and change nothing."),
    YES,
    JSON,
    check=_check_reset,
    notes="At a broker of 4.x, --queue, --broker and offsets need a group whose consumers are stopped.",
)
delete = _group(
    "delete",
    "Delete a consumer group with its offsets, its retry topic and its dead letters. Asks for the group's name.",
    "pocketmq group delete billing",
    _GROUP,
    YES,
    notes="Stop its consumers before: while one runs, the broker may create the group again.",
)

group = VerbGroup(
    "group",
    __name__,
    {
        "ls": "list consumer groups: mode, members, lag",
        "create": "create a consumer group",
        "describe": "offsets, lag and client by queue; members and subscriptions",
        "reset": "reset offsets to the earliest, the latest, a time or an offset",
        "delete": "delete a consumer group with its offsets and dead letters",
    },
    help="Work on consumer groups, at PocketMQ's brokers or Apache's.",
    examples="""
pocketmq group ls
pocketmq group describe billing
pocketmq group reset billing Orders --to earliest --dry-run
pocketmq group delete billing
""",
)
