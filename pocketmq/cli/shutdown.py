"""`mqshutdown broker|namesrv`: stops this user's running servers cleanly, like Apache's script of that name.

Servers are found by their pid files. `pocketmq up` writes none, because it is stopped in its terminal.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from pocketmq.runtime import pid_file

_PROGRAMS: Final = {"broker": "mqbroker", "namesrv": "mqnamesrv"}
NOTHING_RUNS: Final = 255
"""Exit code of Apache's script when no server runs (`exit -1`)."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mqshutdown", description="Stop your running brokers or name servers cleanly.")
    parser.add_argument("kind", choices=sorted(_PROGRAMS))
    name = _PROGRAMS[parser.parse_args(argv).kind]
    servers = pid_file.running(name)
    if not servers:
        print(f"No {name} running.")
        sys.exit(NOTHING_RUNS)
    failed = False
    for server in servers:
        print(f"The {name}({server.pid}) is running on {server.place}...")
        try:
            if server.terminate():
                print(f"Send shutdown request to {name}({server.pid}) OK")
            else:
                print(f"The {name}({server.pid}) has ended by itself")
        except PermissionError:
            print(f"{name}({server.pid}) belongs to another user", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
