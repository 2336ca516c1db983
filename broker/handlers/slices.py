"""Requests whose work is done in slices, so that others are served in between."""

import logging
from collections.abc import Iterator
from typing import Any

from pocketmq.broker.services import Services
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError
from pocketmq.runtime.peer_text import clipped

log = logging.getLogger("broker")


def answer_in_slices(services: Services, request: Request[Any], work: Iterator[None]) -> Deferred:
    """Return the answer to `request`, which is complete after the last step of `work`.

    An exception of `work` becomes the answer's code and remark. Short work is done before this function returns. During
    longer work no further request of the connection is served: requests stay in order, and a peer cannot pile up work. Work
    for a connection that closes is given up.
    """
    answer, channel = Deferred(), request.channel

    def steps() -> Iterator[None]:
        response = Response()
        try:
            for _ in work:
                yield
                if not channel.is_open:
                    return
        except RemotingError as error:
            response = Response(error.code, remark=error.remark)
            if error.rest_s:
                channel.rest(error.rest_s)
        except Exception as error:
            log.exception("request code %d from %s failed", request.code, channel)
            response = Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {clipped(error)}")
        answer.complete(response)
        if is_paused:
            channel.pause_requests(False)

    is_paused = False
    services.slices.start(steps())
    if not answer.is_done:
        is_paused = True
        channel.pause_requests(True)
    return answer
