"""Refusals for a limit: the client is told each time, the log at once and then once a minute."""

import logging
from typing import NoReturn

from remoting.codes import ResponseCode
from remoting.dispatch import RemotingError
from runtime.clock import Clock
from runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")


class LimitRefusals:
    """The refusals of one part of the broker."""

    def __init__(self, clock: Clock, what: str = "") -> None:
        """`what` begins the lines in the log."""
        self._refusals = RefusalLog(log, what, now=clock.monotonic)

    def refuse(self, remark: str) -> NoReturn:
        """Raise RemotingError with `remark`, which names the limit's key, its value, and what was asked for."""
        self._refusals.refused(None, remark)
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
