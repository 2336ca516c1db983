"""`mqshutdown broker|namesrv`: end the servers of this machine cleanly, as Apache's script of that name does."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")
_MODULES = {"broker": ("broker", "pocketmq.broker"), "namesrv": ("namesrv", "pocketmq.namesrv")}
_COMMANDS = {"broker": "mqbroker", "namesrv": "mqnamesrv"}


def is_server(command_line: Sequence[str], kind: str) -> bool:
    """Whether a process with this command line is our `kind` of server: `python -m broker ...` or `.../mqbroker ...`."""
    if not command_line or not os.path.basename(command_line[0]).startswith("python"):
        return False
    words = list(command_line[1:])
    while words and words[0].startswith("-") and words[0] != "-m":  # options of the interpreter
        words.pop(0)
    if words[:1] == ["-m"]:
        return len(words) > 1 and words[1] in _MODULES[kind]
    return bool(words) and os.path.basename(words[0]) == _COMMANDS[kind]


def running(kind: str, proc: Path = PROC) -> Iterator[int]:
    """Pids of the running servers of a kind."""
    for folder in sorted(proc.iterdir()):
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:  # it ended meanwhile
            continue
        if is_server(words, kind):
            yield int(folder.name)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mqshutdown", description="Ends the running brokers or name servers cleanly.")
    parser.add_argument("kind", choices=sorted(_MODULES))
    kind = parser.parse_args(argv).kind
    name = _COMMANDS[kind]
    pids = list(running(kind))
    if not pids:
        sys.exit(f"No {name} running.")
    failed = False
    for pid in pids:
        print(f"The {name}({pid}) is running...")
        try:
            os.kill(pid, signal.SIGTERM)
            print(f"Send shutdown request to {name}({pid}) OK")
        except ProcessLookupError:
            print(f"The {name}({pid}) has ended by itself")
        except PermissionError:
            print(f"{name}({pid}) belongs to another user", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
