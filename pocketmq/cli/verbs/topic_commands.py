"""Command lines of `pocketmq topic VERB`; the implementation, `cli.verbs.topics`, is imported when they run."""

from functools import partial
from types import SimpleNamespace
from typing import Final

import click

from pocketmq.cli.server_options import YES, option
from pocketmq.cli.verbs.options import JSON, WHERE, VerbGroup, argument, verb
from pocketmq.runtime.command_line.option_types import Checked, OneOf, WholeNumber

QUEUES: Final = 4
QUEUES_MAX: Final = 65_536
PERMS: Final = ("rw", "r", "w", "none")
_KIND: Final = OneOf(["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"])
_KIND_HELP: Final = "Kind of its messages: NORMAL, FIFO, DELAY, TRANSACTION, MIXED or PRIORITY"
_NAME: Final = argument("name", "The topic.")
_topic: Final = partial(verb, "pocketmq.cli.verbs.topics")


def _perm(text: str) -> str:
    if text not in PERMS:
        raise ValueError
    return text


def _check_change(options: SimpleNamespace) -> None:
    if options.queues is None and options.perm is None and options.kind is None:
        raise click.UsageError("nothing is to be changed: give --queues, --perm or --type")


ls = _topic(
    "ls",
    "List topics.",
    "pocketmq topic ls\npocketmq topic ls --all --json",
    option("--all", "with_special", is_flag=True, help="Also retry topics, dead-letter topics and those of the system."),
    JSON,
)
create = _topic(
    "create",
    "Create a topic at all brokers.",
    "pocketmq topic create Orders --queues 8\npocketmq topic create Payments --type FIFO",
    _NAME,
    option("--queues", type=WholeNumber(1, QUEUES_MAX), default=QUEUES, help=f"Queues at each broker ({QUEUES})."),
    option("--type", "kind", type=_KIND, metavar="TYPE", default="NORMAL", help=f"{_KIND_HELP} (NORMAL)."),
    *WHERE,
)
describe = _topic(
    "describe",
    "Show a topic's queues with their first and next offset, its permissions, and its consumer groups with their lag.",
    "pocketmq topic describe Orders",
    _NAME,
    JSON,
)
delete = _topic(
    "delete",
    "Delete a topic with its messages at all brokers and name servers. Asks for the topic's name.",
    "pocketmq topic delete Orders",
    _NAME,
    YES,
)
set = _topic(
    "set",
    "Change settings of a topic; the others stay as they are.",
    "pocketmq topic set Orders --queues 16\npocketmq topic set Orders --perm r",
    _NAME,
    option(
        "--queues", type=WholeNumber(1, QUEUES_MAX), help="Queues at each broker. Messages in queues above are not read."
    ),
    option("--perm", type=Checked("PERM", _perm, "one of rw, r, w, none"), metavar="PERM", help="rw, r, w or none."),
    option("--type", "kind", type=_KIND, metavar="TYPE", help=f"{_KIND_HELP}."),
    *WHERE,
    YES,
    check=_check_change,
)

topic = VerbGroup(
    "topic",
    __name__,
    {
        "ls": "list topics: type, queues, messages, brokers",
        "create": "create a topic",
        "describe": "queues with offsets, permissions, consumer groups with lag",
        "set": "change number of queues, permission or type",
        "delete": "delete a topic with its messages",
    },
    help="Work on topics, at PocketMQ's brokers or Apache's.",
    examples="""
pocketmq topic ls
pocketmq topic create Orders --queues 8 --type FIFO
pocketmq topic describe Orders
pocketmq topic set Orders --perm r
pocketmq topic delete Orders
""",
)
