"""Command `pocketmq`: name server and broker in one process, simple sending and receiving, and tools for stores.

Each command imports its modules when it runs, so that `pocketmq --help` answers at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pocketmq import __version__
from pocketmq.cli import server_options
from pocketmq.runtime.command_line import TEST_CLOCK_HELP

_EPILOG = """examples:
  pocketmq up --memory                         start a RocketMQ for experiments; Ctrl-C ends it
  pocketmq up --cluster 2m-2s-sync             start two masters, each with a slave
  pocketmq produce TopicTest hello --tag a     send one message
  pocketmq consume TopicTest --from-start      show messages as they arrive
  pocketmq delay ls --to +1h                   list messages that are due within an hour
  pocketmq store verify pocketmq-store         check the consistency of a store
"""


_ANALYTICS: Final = {
    "report": "one page of volume, lateness, lag, dead letters and consistency",
    "audit": "check log, queues and offsets against each other",
    "trace": "the history of one message",
    "export": "export the log as files of a table",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pocketmq",
        description="A RocketMQ that fits in a pocket.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pocketmq {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    _add_up(commands)

    produce = commands.add_parser("produce", help="send messages given as arguments, or each line of standard input")
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("messages", nargs="*", metavar="MESSAGE")
    server_options.add_to(produce)
    produce.add_argument("--tag", help="the messages' tag")
    produce.add_argument("--key", help="the messages' keys, separated by spaces")
    produce.add_argument("--delay-level", type=int, default=0, metavar="1..18", help="1: 1 s, 2: 5 s, ... 18: 2 h")
    produce.add_argument("--delay", metavar="DURATION", help="deliver after 250ms, 30m, 1h30m, 400d")
    produce.add_argument("--count", type=int, default=1, metavar="N", help="send each message N times")

    consume = commands.add_parser("consume", help="show the messages of a topic as they arrive")
    consume.add_argument("topic", metavar="TOPIC")
    server_options.add_to(consume)
    consume.add_argument("--group", default="pocketmq-consume", help="the consumer group (%(default)s)")
    consume.add_argument("--tags", default="*", metavar="'A || B'", help="only messages with one of these tags")
    consume.add_argument("--count", type=int, metavar="N", help="end after N messages")
    consume.add_argument(
        "--from-start", action="store_true", help="start at the oldest message, whatever the group has consumed"
    )
    consume.add_argument(
        "--timeout", type=float, metavar="S", help="end after S seconds without a message; exit code 1 if --count is not met"
    )
    clock = commands.add_parser("clock", help="show message time; with `up --test-clock`: advance it")
    clock.add_argument("action", nargs="?", choices=["read", "advance"], default="read")
    clock.add_argument("duration", nargs="?", metavar="DURATION", help="30m, 1h30m, 400d, 250ms")
    server_options.add_to(clock)
    # Their arguments are parsed by pocketmq.cli.delay and pocketmq.cli.store, which are imported only when needed.
    commands.add_parser("delay", help="delayed messages: ls, show, count, cancel, now")
    commands.add_parser("store", help="work on a store's files: verify, dump, explain, repair, export, import")
    commands.add_parser("admin", help="RocketMQ's mqadmin: topics, consumer groups, brokers, name servers")
    for command, what in _ANALYTICS.items():
        commands.add_parser(command, help=f"Spark over a store: {what}")
    return parser


def _add_up(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = commands.add_parser("up", help="run a name server and a broker, or a cluster of them")
    up.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="the name server's port (default 9876; the broker's is then 10911); with another N the broker takes N + 10, "
        "with 0 both get free ports",
    )
    up.add_argument("--memory", action="store_true", help="keep the store in memory; it is lost when this ends")
    up.add_argument("--store", type=Path, metavar="DIR", help="folder of the store (./pocketmq-store)")
    up.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        help="the broker's address for clients on other machines; both servers then listen on all addresses",
    )
    up.add_argument("--test-clock", action="store_true", help=TEST_CLOCK_HELP)
    up.add_argument(
        "-c", "--config-file", type=Path, metavar="FILE", help="settings of broker and name server, key=value lines"
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting, such as enablePropertyFilter=true; repeatable",
    )
    up.add_argument(
        "--cluster",
        metavar="LAYOUT",
        help="run a process for each server of a layout of RocketMQ's tutorial: 2m-noslave, 2m-2s-async, 2m-2s-sync",
    )
    up.add_argument("--brokers", type=int, metavar="N", help="run a cluster of N masters, each in its own process")
    up.add_argument("--slaves", type=int, metavar="N", help="give each of these masters N slaves")


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["admin"]:
            sys.exit(importlib.import_module("pocketmq.admin.tool").main(arguments[1:], "pocketmq admin"))
        if arguments[:1] == ["store"]:
            sys.exit(importlib.import_module("pocketmq.cli.store").main(arguments[1:]))
        if arguments[:1] == ["delay"]:
            sys.exit(importlib.import_module("pocketmq.cli.delay").main(arguments[1:]))
        if arguments and arguments[0] in _ANALYTICS:
            sys.exit(importlib.import_module("pocketmq.spark_analytics.__main__").main(arguments))
        options = _parser().parse_args(arguments)
        sys.exit(importlib.import_module(f"pocketmq.cli.{options.command}").run(options))
    except KeyboardInterrupt:
        sys.exit(130)
