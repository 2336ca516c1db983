"""Refusals for a limit: the client is told each time, the log once and then each minute with the number of them."""

import logging
from typing import NoReturn

from remoting.codes import ResponseCode
from remoting.dispatch import RemotingError
from runtime.clock import Clock

log = logging.getLogger("broker")

_PERIOD_S = 60.0


class Refusals:
    """The refusals for one limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._told_s = float("-inf")

    def refuse(self, remark: str) -> NoReturn:
        """Raises RemotingError with `remark`, which names the limit's key, its value, and what there is."""
        self._count += 1
        now_s = self._clock.monotonic()
        if now_s - self._told_s >= _PERIOD_S:
            log.warning("%s (%d refused since it was last said)", remark, self._count)
            self._told_s, self._count = now_s, 0
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
