"""`mqshutdown broker|namesrv`: stops this user's running servers cleanly, like Apache's script of that name.

Unlike the script it returns once they have ended, so that a store can be backed up next. Servers are found by their pid
files. `pocketmq up` writes none, because it is stopped in its terminal.
"""

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Final, NoReturn

import click

from pocketmq.runtime import pid_file
from pocketmq.runtime.command_line.commands import Command, complain, run, say
from pocketmq.runtime.command_line.option_types import OneOf

_PROGRAMS: Final = {"broker": "mqbroker", "namesrv": "mqnamesrv"}
_ENDED_AFTER_S: Final = 120
_LOOK_EVERY_S: Final = 0.02
NOTHING_RUNS: Final = 255
"""Exit code of Apache's script when no server runs (`exit -1`)."""


@click.command(
    cls=Command,
    help="Stop your running brokers or name servers on this machine cleanly, and wait until they have ended.",
    examples="mqshutdown broker\nmqshutdown namesrv",
    notes="Exit codes: 0; 1 if a server belongs to another user, or runs on for two minutes; 255 if none runs.",
)
@click.argument("kind", type=OneOf(sorted(_PROGRAMS)), metavar="KIND", help="broker or namesrv.")
def mqshutdown(kind: str) -> int:
    """Stop servers."""
    name = _PROGRAMS[kind]
    servers = pid_file.running(name)
    if not servers:
        say(f"No {name} running.")
        return NOTHING_RUNS
    failed, stopping = False, []
    for server in servers:
        say(f"The {name}({server.pid}) is running on {server.place}...")
        try:
            if server.terminate():
                say(f"Send shutdown request to {name}({server.pid}) OK")
                stopping.append(server)
            else:
                say(f"The {name}({server.pid}) has ended by itself")
        except PermissionError:
            complain(f"{name}({server.pid}) belongs to another user")
            failed = True
    deadline_s = monotonic() + _ENDED_AFTER_S
    for server in stopping:
        while server.is_running and monotonic() < deadline_s:
            sleep(_LOOK_EVERY_S)
        if server.is_running:
            complain(f"{name}({server.pid}) has not ended after {_ENDED_AFTER_S} s; its log says what it waits for")
            failed = True
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and end the process with its exit code."""
    run(mqshutdown, "mqshutdown", argv)


if __name__ == "__main__":
    main()
