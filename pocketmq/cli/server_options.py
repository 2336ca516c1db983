"""Options of commands that connect to servers, and the errors of their connections.

`add_to` is also needed for --help, so the client is imported only by the functions that run.
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
    """Add the options common to all commands that connect to servers."""
    parser.add_argument(
        "-n", "--namesrv", default=NAMESRV_DEFAULT, metavar="ADDR", help="HOST:PORT, several separated by ';' (%(default)s)"
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="sign with accessKey and secretKey of this tools.yml ($ROCKETMQ_HOME/conf/tools.yml, if it exists)",
    )
    parser.add_argument(
        "--tls", type=Path, metavar="FILE", help="use TLS with the tls.client.* of this tls.properties (default: plain)"
    )


def run(options: argparse.Namespace, command: str, work: "Callable[[Access], Coroutine[Any, Any, int]]") -> int:
    """Return the exit code of `work`: 1 if servers refuse or cannot be reached, 2 for invalid options."""
    import asyncio

    from pocketmq.remoting.dispatch import RemotingError
    from pocketmq.runtime.lifecycle import StartError

    try:
        return asyncio.run(work(_access(options)))
    except BrokenPipeError:
        # The reader has closed the pipe; nothing may be written at exit either.
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
    found = Path(home, "conf", "tools.yml") if home else None  # mqadmin's default
    return found if found is not None and found.is_file() else None


def _hint(failure: BaseException, options: argparse.Namespace) -> str:
    """Return a hint about the option that may help, and its current value."""
    from pocketmq.remoting.client import TlsMismatch
    from pocketmq.remoting.codes import ResponseCode
    from pocketmq.remoting.dispatch import RemotingError

    # Access rules refuse with one code in 5.x, with the other in 4.9 and here.
    is_refused = isinstance(failure, RemotingError) and failure.code == ResponseCode.NO_PERMISSION
    if is_refused or "AclException" in str(failure):
        signed = _tools_yml(options)
        return f" (signed by {signed})" if signed else " (not signed: use --credentials FILE, with accessKey and secretKey)"
    link: BaseException | None = failure
    while link is not None and not isinstance(link, TlsMismatch):
        link = link.__cause__
    if link is None:
        return ""
    return (
        f" (TLS by {options.tls})" if options.tls else " (use --tls FILE with tls.client.*; an empty one trusts any server)"
    )
