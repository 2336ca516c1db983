"""Refusals for a limit: the client is told each time, the log at once and then once a minute."""

import logging
from typing import NoReturn

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")


class LimitRefusals:
    """The refusals of one part of the broker."""

    def __init__(self, clock: Clock, what: str = "") -> None:
        """`what` begins the lines in the log."""
        self._refusals = RefusalLog(log, what, now=clock.monotonic)

    def refuse(self, remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> NoReturn:
        """Raise RemotingError with `remark`, which names the limit's key, its value, and what was asked for.

        A `code` other than the usual is logged apart.
        """
        self._refusals.refused(code, remark)
        raise RemotingError(code, remark)
