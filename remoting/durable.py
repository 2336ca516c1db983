"""Answers that are sent once their changes are on disk; they become refusals if a write fails."""

import asyncio

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.table_writer import Written


def not_written(error: Exception) -> str:
    """Return the remark for a change that could not be written."""
    if isinstance(error, OSError):
        name = str(error.filename or "a file of config/").removesuffix(".tmp")
        return f"not done: {name} cannot be written ({error.strerror or error})"
    return f"not done: a file of config/ cannot be written ({error})"


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
