"""Options of commands that connect to servers, and the errors of their connections.

SERVER_OPTIONS are also needed for --help, so the client is imported only by the functions that run.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.runtime.command_line.commands import CommandError
from pocketmq.runtime.command_line.option_types import ADDRESSES, NAMESRV_DEFAULT
from pocketmq.runtime.error_text import reason, system_reason

if TYPE_CHECKING:
    from pocketmq.client.access import Access

_NAMESRV_CODES: Final = ("105", "106")


def option(*flags: str, **settings: Any) -> click.Option:
    """Return an option of a command."""
    return click.Option(flags, **settings)


YES: Final = option("--yes", is_flag=True, help="Do not ask for confirmation.")

SERVER_OPTIONS: Final = (
    option(
        "-n",
        "--namesrv",
        type=ADDRESSES,
        envvar="NAMESRV_ADDR",
        default=NAMESRV_DEFAULT,
        help=f"Name servers, several separated by ';' ($NAMESRV_ADDR, else {NAMESRV_DEFAULT}).",
    ),
    option(
        "--credentials",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Sign requests with accessKey and secretKey of this tools.yml ($ROCKETMQ_HOME/conf/tools.yml, if it exists).",
    ),
    option(
        "--tls",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Use TLS with the tls.client.* keys of this tls.properties (without it: plain connections).",
    ),
)
"""The options of all commands that connect to servers."""


def run(options: SimpleNamespace, work: "Callable[[Access], Coroutine[Any, Any, int | None]]") -> int | None:
    """Run `work` and return its exit code, or None for 0.

    Raises CommandError if a server refuses or cannot be reached, else UsageError.
    """
    import asyncio

    from pocketmq.remoting.dispatch import RemotingError
    from pocketmq.runtime.lifecycle import StartError

    try:
        return asyncio.run(work(access_of(options)))
    except BrokenPipeError:
        raise
    except (ValueError, StartError) as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except (OSError, TimeoutError, RemotingError) as failure:
        raise CommandError(f"{_error_text(failure, options)}{_hint(failure, options)}") from failure


def _error_text(failure: Exception, options: SimpleNamespace) -> str:
    from pocketmq.remoting.codes import ResponseCode
    from pocketmq.remoting.dispatch import RemotingError

    if not isinstance(failure, RemotingError):
        return reason(failure)
    text = str(failure).strip()
    # Only name servers serve these codes, and the commands begin with them.
    if failure.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and any(code in text for code in _NAMESRV_CODES):
        return f"{options.namesrv} is not a name server, perhaps a broker: give a name server's address with -n ({text})"
    return text or f"the server refuses with code {failure.code} and gives no reason"


def access_of(options: SimpleNamespace) -> "Access":
    """Return credentials and TLS of the files that options name. Raises ValueError or StartError."""
    from pocketmq.client.access import Access, default_tools_yml

    for option, path in (("--credentials", options.credentials), ("--tls", options.tls)):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{option} {path}: {system_reason(error)}") from None
    return Access.of_files(options.credentials or default_tools_yml(), options.tls)


def _hint(failure: BaseException, options: SimpleNamespace) -> str:
    """Return a hint about the option that may help, and its current value."""
    from pocketmq.admin.api.client import is_of_access
    from pocketmq.client.access import default_tools_yml
    from pocketmq.remoting.client import TlsMismatch

    if is_of_access(failure):
        signed = options.credentials or default_tools_yml()
        return f" (signed by {signed})" if signed else " (not signed: use --credentials FILE, with accessKey and secretKey)"
    link: BaseException | None = failure
    while link is not None and not isinstance(link, TlsMismatch):
        link = link.__cause__
    if link is None:
        return ""
    return (
        f" (TLS by {options.tls})" if options.tls else " (use --tls FILE with tls.client.*; an empty one trusts any server)"
    )
