"""Answers that are sent once their changes are on disk; they become refusals if a write fails."""

import asyncio
from typing import Any

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.config import ConfigError, KeyRefused
from pocketmq.runtime.config_updates import ConfigUpdates, parse_changes
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.table_writer import Written


def not_written(error: Exception) -> str:
    """Return the remark for a change that could not be written."""
    if isinstance(error, OSError):
        name = str(error.filename or "a file of config/").removesuffix(".tmp")
        return f"the change is refused: {name} cannot be written ({error.strerror or error})"
    return f"the change is refused: a file of config/ cannot be written ({error})"


def when_written(answer: Response | Deferred, *written: Written | None) -> Response | Deferred:
    """Return `answer`, sent once all of `written` are on disk, or a refusal if one fails. None is not waited for."""
    waited: set[asyncio.Future[str | None]] = set()
    for change in {change for change in written if change is not None}:
        known: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        change.add_done_callback(
            lambda done, known=known: known.set_result(done.result() and not_written(done.result()))  # type: ignore[misc]
        )
        waited.add(known)
    return when_done(answer, waited)


def when_done(answer: Response | Deferred, waited: "set[asyncio.Future[str | None]]") -> Response | Deferred:
    """Return `answer`, sent once all of `waited` are done, or a refusal if one of them has a problem."""
    if not waited:
        return answer
    outer, open_count = Deferred(), len(waited) + 1
    problems: list[str] = []
    stored = Response()

    def one_done() -> None:
        nonlocal open_count
        open_count -= 1
        if not open_count:
            outer.complete(Response(ResponseCode.SYSTEM_ERROR, remark=problems[0]) if problems else stored)

    def answered(response: Response) -> None:
        nonlocal stored
        stored = response
        one_done()

    def known(done: "asyncio.Future[str | None]") -> None:
        problem = done.result()
        if problem is not None:
            problems.append(problem)
        one_done()

    if isinstance(answer, Response):
        answered(answer)
    else:
        answer.hand_to(answered)
    for one in waited:
        one.add_done_callback(known)
    return outer


def when_updated(updates: ConfigUpdates, request: Request[Any], refused_key_code: ResponseCode) -> Response | Deferred:
    """Return the answer to a request whose body has new values of config keys: sent once they are on disk and in use.

    A refusal names key and value, and has `refused_key_code` if a key may not be changed; then nothing is changed.
    """
    held, at_once = Deferred(), list[Response]()

    def done(error: Exception | None) -> None:
        answer = Response()
        if error is not None:
            code = refused_key_code if isinstance(error, KeyRefused) else ResponseCode.SYSTEM_ERROR
            answer = Response(code, remark=_refusal(error))
        at_once.append(answer)
        held.complete(answer)

    try:
        updates.submit(parse_changes(request.body), done, getattr(request.channel, "remote_address", ""))
    except ConfigError as error:
        done(error)
    return at_once[0] if at_once else held


def _refusal(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return "; ".join(error.problems)
    if isinstance(error, OSError):
        return f"nothing is changed: the config file cannot be written ({reason(error)})"
    return str(error).replace("\n", "; ")
