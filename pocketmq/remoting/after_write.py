"""Answers that are sent later: once their changes are on disk, or once work that is done in slices has ended.

They become refusals if a write or the work fails.
"""

import asyncio
from collections.abc import Generator, Set
from typing import TYPE_CHECKING, Any

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, failure
from pocketmq.runtime.config import ConfigError, KeyRefused
from pocketmq.runtime.config_updates import ConfigUpdates, parse_changes
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.table_writer import Written
from pocketmq.runtime.work_slices import WorkSlices

if TYPE_CHECKING:
    from pocketmq.remoting.channel import Channel

Work = Generator[None, None, Response | Deferred | None]
"""Work that does a small piece per step and returns its answer; None: success without content."""


def not_written(error: Exception) -> str:
    """Return the remark for a change that could not be written."""
    if isinstance(error, OSError):
        name = str(error.filename or "a file of config/").removesuffix(".tmp")
        return f"the change is refused: {name} cannot be written ({error.strerror or error})"
    return f"the change is refused: a file of config/ cannot be written ({error})"


def when_written(answer: Response | Deferred, *written: Written | None) -> Response | Deferred:
    """Return `answer`, sent once all of `written` are on disk, or a refusal if one fails. None is not waited for."""
    return when_done(answer, {change for change in written if change is not None})


def when_done(answer: Response | Deferred, waited: "Set[asyncio.Future[Any]]") -> Response | Deferred:
    """Return `answer`, sent once all of `waited` are done, or a refusal if one of them has a problem.

    The result of each is None, the text of the problem, or the error of a write.
    """
    if not waited:
        return answer
    outer, open_count = Deferred(), len(waited) + 1
    problems: list[str] = []
    stored = Response()

    def one_done(problem: Exception | str | None = None) -> None:
        nonlocal open_count
        open_count -= 1
        if problem is not None:
            problems.append(not_written(problem) if isinstance(problem, Exception) else problem)
        if not open_count:
            outer.complete(Response(ResponseCode.SYSTEM_ERROR, remark=problems[0]) if problems else stored)

    def answered(response: Response) -> None:
        nonlocal stored
        stored = response
        one_done()

    if isinstance(answer, Response):
        answered(answer)
    else:
        answer.hand_to(answered)
    for one in waited:
        one.add_done_callback(lambda done: one_done(done.result()))
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


def while_open(channel: "Channel", work: Work) -> Work:
    """Do `work`, which changes nothing, as long as its peer is connected."""
    while channel.is_open:
        try:
            next(work)
        except StopIteration as end:
            answer: Response | Deferred | None = end.value
            return answer
        yield
    return None


def answer_in_slices(slices: WorkSlices, request: Request[Any], work: Work) -> Response | Deferred:
    """Return the answer to `request`, which is complete after the last step of `work`.

    An exception of `work` becomes the answer's code and remark. Short work is done before this function returns. During
    longer work no further request of the connection is served: requests stay in order, and a peer cannot pile up work.
    """
    held, channel = Deferred(), request.channel
    ended: list[Response | Deferred] = []
    is_paused = False

    def steps() -> Generator[None]:
        answer: Response | Deferred
        try:
            answer = (yield from work) or Response()
        except Exception as error:
            answer = failure(request, error)
        ended.append(answer)
        if not is_paused:
            return
        if isinstance(answer, Deferred):
            answer.hand_to(held.complete)
        else:
            held.complete(answer)
        channel.pause_requests(False)

    slices.start(steps())
    if ended:
        return ended[0]
    is_paused = True
    channel.pause_requests(True)
    return held
