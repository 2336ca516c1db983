"""READ_CLOCK and ADVANCE_CLOCK: the broker's message time, which can be advanced in brokers started with `--test-clock`."""

import logging
from functools import partial
from typing import Final

from pocketmq.broker.services import Services
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.delay import AdvanceClockRequestHeader, ClockResponseHeader
from pocketmq.runtime.clock import VirtualClock

log = logging.getLogger("broker")

ADVANCE_MAX_MS: Final = 100 * 365 * 86_400_000
"""Maximum of one advance: a century."""
_POLL_S: Final = 0.001
_SETTLE_MAX_S: Final = 20.0


def read_clock(services: Services, request: Request[NoHeader]) -> Response:
    """Return the message time."""
    return _answer(services)


def advance_clock(services: Services, request: Request[AdvanceClockRequestHeader]) -> Response | Deferred:
    """Advance message time. The answer comes once all messages then due are delivered, so that tests need not wait."""
    clock, ms = services.clock, request.header.ms
    if not isinstance(clock, VirtualClock):
        remark = "the clock can be advanced only in a broker started with --test-clock"
        raise RemotingError(ResponseCode.NO_PERMISSION, remark)
    if not 0 <= ms <= ADVANCE_MAX_MS:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"ms={ms}: expected 0 to {ADVANCE_MAX_MS}")
    log.info("%s advances the clock by %d ms", request.channel.remote_address, ms)
    clock.advance(ms)
    answer = Deferred()
    services.timers.after(0, partial(_answer_when_settled, services, answer, clock.monotonic() + _SETTLE_MAX_S))
    return answer


def _answer_when_settled(services: Services, answer: Deferred, deadline_s: float) -> None:
    is_idle = services.delays.is_idle and services.transactions.check.work.is_idle
    if not is_idle and services.clock.monotonic() < deadline_s:
        services.timers.after(_POLL_S, partial(_answer_when_settled, services, answer, deadline_s))
    else:
        services.turn.run()  # dispatch to the queues and wake held requests before answering
        answer.complete(_answer(services))


def _answer(services: Services) -> Response:
    clock = services.clock
    return Response(header=ClockResponseHeader(clock.message_time_ms(), isinstance(clock, VirtualClock)))


ROUTES = routes(
    Route(RequestCode.READ_CLOCK, NoHeader, read_clock),
    Route(RequestCode.ADVANCE_CLOCK, AdvanceClockRequestHeader, advance_clock),
)
