"""Command `pocketmq`: name server and broker in one process, simple sending and receiving, and tools.

Each command imports its modules when it runs, so that `pocketmq --help` answers at once.
Shell completion: eval "$(_POCKETMQ_COMPLETE=bash_source pocketmq)", or zsh_source, fish_source (docs/commands.md).
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from pocketmq.runtime.command_line.commands import Group, Lazy, run
from pocketmq.spark_analytics.about import ABOUT

TOOL: Final = Group(
    "pocketmq",
    {
        "up": Lazy("pocketmq.cli.up_command:up", "run a name server and a broker, or a cluster of them"),
        "produce": Lazy(
            "pocketmq.cli.message_commands:produce", "send messages given as arguments, or each line of standard input"
        ),
        "consume": Lazy("pocketmq.cli.message_commands:consume", "show the messages of a topic as they arrive"),
        "clock": Lazy("pocketmq.cli.message_commands:clock", "show message time; with `up --test-clock`: advance it"),
        "delay": Lazy("pocketmq.cli.delay_commands:delay", "delayed messages: ls, show, count, cancel, now"),
        "topic": Lazy("pocketmq.cli.verbs.topic_commands:topic", "topics: ls, create, describe, set, delete"),
        "group": Lazy("pocketmq.cli.verbs.group_commands:group", "consumer groups: ls, create, describe, reset, delete"),
        "dlq": Lazy("pocketmq.cli.verbs.dlq_commands:dlq", "dead letters: ls, show, resend, export, purge"),
        "console": Lazy("pocketmq.cli.up_command:console", "look after a cluster in the browser"),
        "store": Lazy(
            "pocketmq.cli.store_commands:store", "a store's files: verify, dump, explain, repair, rejoin, export, import"
        ),
        "admin": Lazy("pocketmq.admin.tool:TOOL", "RocketMQ's mqadmin: topics, groups, brokers, name servers"),
        **{
            name: Lazy(f"pocketmq.spark_analytics.__main__:{name}", f"analytics of a store: {about}")
            for name, about in ABOUT.items()
        },
    },
    help="A RocketMQ that fits in a pocket. Options come after the command, in any order.",
    examples="""
pocketmq up --memory                         start a RocketMQ for experiments; Ctrl-C ends it
pocketmq up --cluster 2m-2s-sync             start two masters, each with a slave
pocketmq produce TopicTest hello --tag a     send one message
pocketmq consume TopicTest --from-start      show messages as they arrive
pocketmq topic create Orders --queues 8      create a topic
pocketmq group describe billing              show a consumer group's lag and members
pocketmq dlq resend billing --all            send its dead letters to their topic again
pocketmq delay ls --to +1h                   list messages that are due within an hour
pocketmq store verify pocketmq-store         check the consistency of a store
""",
    notes="`pocketmq COMMAND --help` shows the options of a command. NAMESRV_ADDR=HOST:PORT names the name servers for all "
    "commands. Exit codes: 0 success, 1 failure, 2 wrong command line, 130 Ctrl-C; those of `store` are in its help.",
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    run(TOOL, "pocketmq", argv)
