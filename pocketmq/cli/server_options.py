"""Which servers a command speaks to and how: its options, what they come to, and what is said when it goes wrong.

`add_to` is for a parser, which --help needs too: only what runs imports the client.
"""

import argparse
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.client.access import Access

NAMESRV_DEFAULT = "127.0.0.1:9876"


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options that every command has which asks servers."""
    parser.add_argument(
        "-n", "--namesrv", default=NAMESRV_DEFAULT, metavar="ADDR", help="HOST:PORT, several apart by ';' (%(default)s)"
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="sign with accessKey and secretKey of this tools.yml ($ROCKETMQ_HOME/conf/tools.yml, if it exists)",
    )
    parser.add_argument(
        "--tls", type=Path, metavar="FILE", help="speak TLS, with the tls.client.* of this tls.properties (plain without)"
    )


def run(options: argparse.Namespace, command: str, work: "Callable[[Access], Coroutine[Any, Any, int]]") -> int:
    """The exit code of `work`: 1 when servers refuse or cannot be reached, 2 for what the options cannot mean."""
    import asyncio

    from pocketmq.remoting.dispatch import RemotingError
    from pocketmq.runtime.lifecycle import StartError

    try:
        return asyncio.run(work(_access(options)))
    except BrokenPipeError:
        # Who reads has seen enough; nothing may be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, StartError) as wrong:
        print(f"pocketmq {command}: {wrong}", file=sys.stderr)
        return 2
    except (OSError, TimeoutError, RemotingError) as failure:
        print(f"pocketmq {command}: {failure or type(failure).__name__}{_hint(failure, options)}", file=sys.stderr)
        return 1


def _access(options: argparse.Namespace) -> "Access":
    from pocketmq.client.access import Access

    return Access.of_files(_tools_yml(options), options.tls)


def _tools_yml(options: argparse.Namespace) -> Path | None:
    if options.credentials is not None:
        return Path(options.credentials)
    home = os.environ.get("ROCKETMQ_HOME")
    found = Path(home, "conf", "tools.yml") if home else None  # where mqadmin looks
    return found if found is not None and found.is_file() else None


def _hint(failure: BaseException, options: argparse.Namespace) -> str:
    """Which option may help, and which was taken."""
    from pocketmq.remoting.client import TlsMismatch
    from pocketmq.remoting.codes import ResponseCode
    from pocketmq.remoting.dispatch import RemotingError

    # Access rules refuse with the one in 5.x, with the other in 4.9 and here.
    is_refused = isinstance(failure, RemotingError) and failure.code == ResponseCode.NO_PERMISSION
    if is_refused or "AclException" in str(failure):
        signed = _tools_yml(options)
        return f" (signed by {signed})" if signed else " (not signed: give --credentials FILE, with accessKey and secretKey)"
    link: BaseException | None = failure
    while link is not None and not isinstance(link, TlsMismatch):
        link = link.__cause__
    if link is None:
        return ""
    return (
        f" (TLS by {options.tls})" if options.tls else " (give --tls FILE, with tls.client.*; an empty one trusts anybody)"
    )
