"""Refusals because of a limit: each is answered to the client; they are logged at once, then once a minute."""

import logging
from typing import Final, NoReturn

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")

REFUSED_REST_S: Final = 0.05
"""How long a connection is not served after a refusal, so that a peer that repeats it cannot keep the broker busy."""


class LimitRefusals:
    """The refusals of one part of the broker."""

    def __init__(self, clock: Clock, what: str = "") -> None:
        """`what` is the prefix of the log lines."""
        self._refusals = RefusalLog(log, what, now=clock.monotonic)

    def refuse(self, remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> NoReturn:
        """Raise RemotingError with `remark`, which should name the limit's config key, its value and the request.

        Refusals are logged separately for each `code`.
        """
        self._refusals.refused(code, remark)
        raise RemotingError(code, remark, REFUSED_REST_S)
