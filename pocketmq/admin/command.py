"""Declaration of a sub-command: its options, the run of its work, and how failures are shown.

    @command("topicStatus", option("-t", "--topic", "topic name", required=True))
    async def topic_status(run: Run, topic: str) -> object:
        ...
        return run.table(STATUS, rows)

To add a command: declare it in the module of its family in `admin/commands`, and give its name and summary in
`admin/commands/__init__.py`. Requests are functions in `admin/api`, which return values and print nothing. The command
gets each option by the snake_case of its long flag (`--brokerName` -> `broker_name`), those of `targets` as `where`, prints
for people with `run.say` and `run.table`, and returns the value that `--json` prints. It raises AdminError, or lets
RemotingError pass, when it fails. `-n`, `-h`, `--json`, `--credentials` and `--tls` are added to each command.

Exit codes are Apache's: 0, also if a server refuses (the refusal is on standard error); 1 for wrong options. With `--json`
a failure is printed as {"error": ...} and ends with 1.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from pocketmq.admin.api.client import AdminClient, AdminError, Where, described
from pocketmq.admin.output import Output
from pocketmq.client.access import Access, default_tools_yml
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.commands import FAILURE, Command, complain
from pocketmq.runtime.command_line.option_types import ADDRESS, ADDRESSES, NAMESRV_DEFAULT
from pocketmq.runtime.lifecycle import StartError


class Run(Output):
    """One run of a command: `admin` sends requests, the rest prints."""

    admin: AdminClient

    def warn(self, failure: BaseException) -> None:
        """Show a failure after which the command continues."""
        complain(described(failure))

    async def at_each(
        self,
        where: Where,
        change: Callable[[str], Awaitable[object]],
        done: Callable[[str], str] | None,
        *,
        with_slaves: bool = False,
        passes_failures: bool = False,
    ) -> list[str]:
        """Make a change at one broker after the other, and print the text `done` of each. Return the changed ones.

        `with_slaves`: also at a cluster's slaves. `passes_failures`: after a failure at one of many brokers, which is shown,
        the next follows, except with `--json`.
        """
        changed = []
        for address in await self.admin.targets(where, with_slaves):
            try:
                await change(address)
            except (RemotingError, AdminError) as failure:
                if not passes_failures or where.broker or self.as_json:
                    raise
                self.warn(failure)
                continue
            if done is not None:
                self.say(done(address))
            changed.append(address)
        return changed


Work = Callable[..., Awaitable[Any]]


def option(short: str, long: str, help: str, name: str | None = None, **settings: Any) -> click.Option:
    """Return an option with Apache's short and long flag. Its parameter is `name`, or the snake_case of the long flag.

    Without a type it is a text. `is_flag=True`: without a value. `type=bool`: true or false. An absent one is None.
    """
    name = name or re.sub(r"\W+", "_", re.sub(r"(?<!^)(?=[A-Z])", "_", long.lstrip("-")).lower())
    if not settings.get("is_flag"):
        settings.setdefault("metavar", "<arg>")
    return click.Option([short, long, name], help=help, **settings)


_BROKER, _CLUSTER = "where_broker", "where_cluster"
TOPIC = option("-t", "--topic", "topic name", required=True)


def targets(broker_help: str, cluster_help: str, cluster_flag: str = "--clusterName") -> tuple[click.Option, click.Option]:
    """Return the options -b | -c, which a command gets as its parameter `where`."""
    return option("-b", "--brokerAddr", broker_help, _BROKER, type=ADDRESS), option(
        "-c", cluster_flag, cluster_help, _CLUSTER
    )


def only_one_target(where: Where, **_: object) -> None:
    """Check that exactly one of -b and -c is given."""
    one_of({"-b": where.broker, "-c": where.cluster})


def one_of(given: dict[str, object]) -> None:
    """Check that exactly one of some options is given; `given`: flag -> value. Raises UsageError."""
    present = [flag for flag, value in given.items() if value is not None]
    if len(present) != 1:
        what = "only one of them" if present else "one of them"
        raise click.UsageError(f"{' | '.join(given)}: {what} must be given")


def command(name: str, *options: click.Option, check: Callable[..., None] | None = None) -> Callable[[Work], click.Command]:
    """Return a decorator that makes a function a sub-command. `check` may refuse the options before anything is sent."""

    def declare(work: Work) -> click.Command:
        def callback(**given: Any) -> int:
            settings = {key: given.pop(key) for key in ("namesrv_addr", "credentials", "tls", "as_json")}
            if _BROKER in given:
                given["where"] = Where(given.pop(_BROKER), given.pop(_CLUSTER))
            if check is not None:
                check(**given)
            return _run(work, given, **settings)

        return Command(name, callback=callback, params=[*options, *_common_options()], help=work.__doc__)

    return declare


def _common_options() -> list[click.Option]:
    return [
        option(
            "-n",
            "--namesrvAddr",
            "name server addresses, such as '192.168.0.1:9876;192.168.0.2:9876'",
            type=ADDRESSES,
            envvar="NAMESRV_ADDR",
            default=NAMESRV_DEFAULT,
            show_default=True,
            show_envvar=True,
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="print one JSON document; a failure ends with exit code 1"),
        click.Option(
            ["--credentials"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="accessKey and secretKey, in the form of tools.yml ($ROCKETMQ_HOME/conf/tools.yml, if it exists)",
        ),
        click.Option(
            ["--tls"], type=click.Path(path_type=Path), metavar="FILE", help="tls.client.* in the form of tls.properties"
        ),
    ]


def _run(
    work: Work,
    given: dict[str, Any],
    *,
    namesrv_addr: str,
    credentials: Path | None,
    tls: Path | None,
    as_json: bool,
) -> int:
    """Run the work and return the exit code."""
    run = Run(as_json)

    async def run_work() -> None:
        access = Access.of_files(credentials or default_tools_yml(), tls)
        async with AdminClient(namesrv_addr.split(";"), access) as run.admin:
            run.result(await work(run, **given))

    try:
        asyncio.run(run_work())
    except BrokenPipeError:
        raise
    except (AdminError, RemotingError, StartError, OSError, TimeoutError, ValueError) as failure:
        code = int(failure.code) if isinstance(failure, RemotingError) else None
        run.result({"error": {"code": code, "message": getattr(failure, "remark", None) or described(failure)}})
        complain(described(failure))
        return FAILURE if as_json else 0
    except (LookupError, TypeError, AttributeError) as failure:
        if os.environ.get("POCKETMQ_TRACEBACK"):
            raise
        text = f"a server's answer has an unexpected form, or mqadmin has an error: {type(failure).__name__}: {failure}"
        run.result({"error": {"code": None, "message": text}})
        complain(f"{text} (POCKETMQ_TRACEBACK=1 shows the traceback)")
        return FAILURE
    return 0
