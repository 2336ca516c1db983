"""Command lines of `pocketmq produce`, `consume` and `clock`; the implementations are imported when they run."""

from types import SimpleNamespace
from typing import Any

import click

from pocketmq.cli.duration import DURATION
from pocketmq.cli.server_options import SERVER_OPTIONS, option
from pocketmq.runtime.command_line.commands import Command
from pocketmq.runtime.command_line.option_types import Number, OneOf, WholeNumber

DELAY_LEVEL_MAX = 18
_ACTIONS = OneOf(["read", "advance"])


@click.command(
    cls=Command,
    help="Send messages: those given as arguments, or each line of standard input. A topic that does not exist is created.",
    examples="""
pocketmq produce TopicTest hello --tag greeting
pocketmq produce Orders "unpaid: order-7" --key order-7 --delay 30m
pocketmq produce Lines -n 10.0.0.5:9876 < lines.txt
pocketmq produce TopicTest -- --not-an-option        a message that begins with a dash
""",
    params=[
        click.Argument(["topic"], help="The topic."),
        click.Argument(["messages"], nargs=-1, metavar="[MESSAGE]...", help="The messages' bodies."),
        *SERVER_OPTIONS,
        option("--tag", metavar="TAG", help="The messages' tag."),
        option("--key", metavar="KEYS", help="The messages' keys, separated by spaces."),
        option(
            "--delay-level",
            type=WholeNumber(0, DELAY_LEVEL_MAX),
            default=0,
            metavar="1..18",
            help="1: 1 s, 2: 5 s, ... 18: 2 h.",
        ),
        option("--delay", type=DURATION, help="Deliver after a time such as 250ms, 30m, 1h30m, 400d."),
        option("--count", type=WholeNumber(1), default=1, help="Send each message N times."),
    ],
)
def produce(**values: Any) -> None:
    """Send messages."""
    options = SimpleNamespace(**values)
    if options.delay is not None and options.delay_level:
        raise click.UsageError("--delay and --delay-level both set the delivery time: use only one of them")
    from pocketmq.cli import produce as command

    command.run(options)


@click.command(
    cls=Command,
    help="Show the messages of a topic as they arrive. Each run has a consumer group of its own, so that it shows all "
    "messages, regardless of other consumers; the group is deleted at the end. With --group, runs of the same group share "
    "the messages, and the next run continues where the last one ended.",
    examples="""
pocketmq consume TopicTest --from-start
pocketmq consume Orders --tags 'paid || refunded' --count 10 --timeout 60
pocketmq consume Orders --group billing
""",
    notes="Exit codes: 0; 1 if --count messages did not arrive in time, or for a failure; 130 Ctrl-C; 143 SIGTERM.",
    params=[
        click.Argument(["topic"], help="The topic."),
        *SERVER_OPTIONS,
        option("--group", metavar="GROUP", help="A consumer group that keeps its offsets (without it: one for this run)."),
        option("--tags", default="*", metavar="'A || B'", help="Only messages with one of these tags."),
        option("--count", type=WholeNumber(1), help="End after N messages."),
        option("--from-start", is_flag=True, help="Start at the oldest message, whatever the group has consumed."),
        option("--timeout", type=Number(0), metavar="S", help="End after S seconds without a message."),
    ],
)
def consume(**values: Any) -> int | None:
    """Show messages."""
    from pocketmq.cli import consume as command

    return command.run(SimpleNamespace(**values))


@click.command(
    cls=Command,
    help="Show the message time of each broker. `advance` moves it forward, if the servers run with --test-clock.",
    examples="""
pocketmq clock
pocketmq clock advance 30m
""",
    params=[
        click.Argument(["action"], type=_ACTIONS, metavar="[ACTION]", default="read", help="read or advance (read)."),
        click.Argument(
            ["duration"], type=DURATION, required=False, metavar="[DURATION]", help="For advance: 250ms, 30m, 1h30m, 400d."
        ),
        *SERVER_OPTIONS,
    ],
)
def clock(**values: Any) -> None:
    """Show or advance message time."""
    options = SimpleNamespace(**values)
    if options.action == "read" and options.duration is not None:
        raise click.UsageError("DURATION is for `pocketmq clock advance DURATION`")
    if options.action == "advance" and options.duration is None:
        raise click.UsageError("DURATION is missing: write `pocketmq clock advance 30m`")
    from pocketmq.cli import delay

    delay.run(options, "clock")
