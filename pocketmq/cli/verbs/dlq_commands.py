"""Command lines of `pocketmq dlq VERB`; the implementation, `cli.verbs.dlq`, is imported when they run."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import click

from pocketmq.cli.server_options import YES, option
from pocketmq.cli.verbs.options import JSON, VerbGroup, argument, verb
from pocketmq.runtime.command_line.option_types import WholeNumber

LIMIT: Final = 100
_GROUP: Final = argument("group", "The consumer group.")
_dlq: Final = partial(verb, "pocketmq.cli.verbs.dlq")


def _check_resend(options: SimpleNamespace) -> None:
    if bool(options.ids) == options.all:
        raise click.UsageError(
            "--id chooses messages and --all takes all: use only one of them"
            if options.all
            else "no dead letter is chosen: give --id ID, repeatable, or --all"
        )


ls = _dlq("ls", "List the consumer groups that have dead letters.", "pocketmq dlq ls", JSON)
show = _dlq(
    "show",
    "Show the dead letters of a consumer group, the oldest first, and whether each was sent again.",
    "pocketmq dlq show billing\npocketmq dlq show billing --limit 10 --json",
    _GROUP,
    option("--limit", type=WholeNumber(0), default=LIMIT, help=f"At most N messages ({LIMIT})."),
    JSON,
)
resend = _dlq(
    "resend",
    "Send dead letters to their original topic again, with their own body, tag, keys and properties. All groups of the "
    "topic get them, so consumers must tolerate a message twice. A dead letter is sent again once: the copy has the "
    "property DLQ_RESENT, the dead letter's id, by which another run recognises it, also after a run that was killed.",
    "pocketmq dlq resend billing --id 7F0000011D5C18B4AAC2CAFE0000\npocketmq dlq resend billing --all",
    _GROUP,
    option("--id", "ids", multiple=True, metavar="ID", help="This dead letter (unique key or message id); repeatable."),
    option("--all", is_flag=True, help="All dead letters that the group has now and that were not sent again."),
    option("--again", is_flag=True, help="Also those that were sent again before."),
    YES,
    JSON,
    check=_check_resend,
    notes="Dead letters stay in the dead-letter topic until the broker's retention deletes them, or `pocketmq dlq purge`. "
    "The brokers' index must be on (messageIndexEnable, the default). Exit code 1 if one could not be sent.",
)
export = _dlq(
    "export",
    "Write the dead letters of a consumer group to a file, one JSON object in each line, in the form of `pocketmq store "
    "export`.",
    "pocketmq dlq export billing dead.jsonl\npocketmq dlq export billing - | jq .properties.KEYS",
    _GROUP,
    argument("file", "The file, which must not exist; - is standard output.", type=click.Path(path_type=Path)),
)
purge = _dlq(
    "purge",
    "Delete the dead letters of a consumer group: its dead-letter topic, which the broker creates again for the next one. "
    "Asks for the group's name.",
    "pocketmq dlq purge billing",
    _GROUP,
    YES,
)

dlq = VerbGroup(
    "dlq",
    __name__,
    {
        "ls": "list groups with dead letters and their number",
        "show": "show dead letters",
        "resend": "send dead letters to their original topic, each once",
        "export": "write dead letters to a file as JSON lines",
        "purge": "delete dead letters",
    },
    help="Work on dead letters: messages that a consumer group could not consume after all retries.",
    examples="""
pocketmq dlq ls
pocketmq dlq show billing
pocketmq dlq resend billing --all
pocketmq dlq export billing dead.jsonl
""",
)
