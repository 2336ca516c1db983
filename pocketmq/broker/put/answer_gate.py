"""AnswerGate: holds an answer back until everything that it promises is true.

An answer may promise that

    its record is synced           SYNC_FLUSH, unless the sender set WAIT=false
    its record is at slaves        SYNC_MASTER, unless the sender set WAIT=false
    a change of a table is synced  the files of config/*.json
    its topics can be found        topics.json is written, and every reachable name server knows the topic

Answers with a condition on a record wait in an `OffsetWait` for the synced or replicated offset (`_recorded`).
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from pocketmq.broker.context import Context
from pocketmq.broker.names import WAIT
from pocketmq.broker.registration.route_barrier import RouteBarrier
from pocketmq.remoting.after_write import when_done, when_written
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.event import Event
from pocketmq.runtime.table_writer import Written
from pocketmq.runtime.timers import Timer, Timers

log = logging.getLogger("broker")


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Return whether the sender waits for disk and slaves: WAIT is absent, or `true`."""
    wait = properties.get(WAIT)
    return wait is None or wait.lower() == "true"


class Replicas(Protocol):
    """Interface to the slaves of this broker (`broker.ha`)."""

    acknowledged: Event[[]]
    """Called when a slave has acknowledged more of the log."""

    def acknowledged_offset(self, count: int = 1) -> int:
        """Return the physical offset that at least `count` slaves have acknowledged; -1 if there are not so many."""

    def has_near(self, end_offset: int) -> bool:
        """Return whether a slave is near enough to be waited for."""


class Held(Protocol):
    """An answer, or several, that wait together: `Deferred` or those of the compiled lane."""

    def complete(self, response: Response) -> None:
        """Send them: the response that was held with them, perhaps with another code, or a refusal."""


class AnswerGate:
    """Holds answers back. `is_open`: no answer to a send has to wait, whatever its topic; sends check it first.

    `waits_for_sync`: they wait for the sync of their record (SYNC_FLUSH), and for nothing else.
    """

    def __init__(self, context: Context, routes: RouteBarrier, replicas: Replicas | None = None) -> None:
        self.flushed: Event[[int]] = Event()
        """Called with the physical offset up to which the log is durable. Only with SYNC_FLUSH."""
        self._routes = routes
        self._replicas = replicas
        self._loop = context.loop
        config = context.store.config
        # Number of slaves that must have a record: one, as in 4.9.4, or 5.x's inSyncReplicas less one for the master.
        self._slaves_waited = (config.in_sync_replicas or 2) - 1
        self._fails_without_slave = config.in_sync_replicas is None
        self._replicated: OffsetWait | None = None
        if config.is_sync_master and replicas is not None and self._slaves_waited:
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT
            self._replicated = OffsetWait(context.timers, config.slave_timeout / 1000, code)
            replicas.acknowledged.subscribe(self._acknowledged)
        self._synced: OffsetWait | None = None
        if config.flush_disk_type == "SYNC_FLUSH":
            self._synced = OffsetWait(context.timers, config.sync_flush_timeout / 1000, ResponseCode.FLUSH_DISK_TIMEOUT)
            context.store.flushed.subscribe(self._on_flushed)
        self._has_record_conditions = self._replicated is not None or self._synced is not None
        self.is_open = self.waits_for_sync = False
        self._routes_changed()
        routes.changed.subscribe(self._routes_changed)

    def when_done(
        self, answer: Response, *topics: str, end_offset: int = 0, properties: Mapping[str, str] | None = None,
        written: Iterable[Written | None] = (), is_replicated: bool = True,
    ) -> Response | Deferred:  # fmt: skip
        """Return `answer`, or a deferred answer: completed when everything that it promises is true, else refused.

        `topics` are those that the request made or used, `end_offset` is the physical end of the last record put for it (0:
        none), `properties` are those of the message (WAIT counts), `written` are changes of tables (None: written already).
        `is_replicated=False`: the answer does not promise a copy at a slave.
        """
        if self.is_open and not written:
            return answer
        held: Response | Deferred = answer
        if end_offset and (properties is None or waits_for_store(properties)):
            held = self._recorded(end_offset, answer, is_replicated)
        if written:
            held = when_written(held, *written)
        return self.when_routed(held, *topics)

    def when_routed(self, answer: Response | Deferred, *topics: str) -> Response | Deferred:
        """Return an answer, deferred already or not, held back until its topics can be found. It must not be bound yet."""
        return when_done(answer, self._routes.rounds(topics))

    def _recorded(self, end_offset: int, response: Response, is_replicated: bool) -> Response | Deferred:
        held: Response | Deferred = response if self._synced is None else self._synced.add(end_offset, response)
        if not is_replicated or self._replicated is None or self._replicas is None:
            return held
        if self._fails_without_slave and not self._replicas.has_near(end_offset):
            # As Apache's broker: the message is stored, and the answer says that no slave has it.
            response.code = ResponseCode.SLAVE_NOT_AVAILABLE
            return held
        if self._replicas.acknowledged_offset(self._slaves_waited) >= end_offset:
            return held
        replicated = self._replicated.add(end_offset, response)
        return replicated if held is response else _both(held, replicated)

    def _acknowledged(self) -> None:
        assert self._replicated is not None and self._replicas is not None
        self._replicated.reached(self._replicas.acknowledged_offset(self._slaves_waited))

    def _routes_changed(self) -> None:
        self.is_open = not self._has_record_conditions and not self._routes.is_waiting
        self.waits_for_sync = self._synced is not None and self._replicated is None and not self._routes.is_waiting

    def when_synced(self, end_offset: int, response: Response, held: Held) -> None:
        """Complete `held` with `response` once the log is synced up to `end_offset`. To be called while `waits_for_sync`."""
        assert self._synced is not None
        self._synced.hold(end_offset, response, held)

    def close(self) -> None:
        """Drop the answers that still wait for a sync; the store has synced or failed by now."""
        for wait in (self._synced, self._replicated):
            if wait is not None:
                wait.close()

    # --- sync -------------------------------------------------------------------------------------------------------

    def _on_flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """Pass the result of a sync to the event loop. Called in the flush thread after each round."""
        try:
            self._loop.call_soon_threadsafe(self._flushed, flushed_offset, error)
        except RuntimeError:
            log.info("the log was synced up to %d after the event loop had ended", flushed_offset)

    def _flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """Complete the answers for the log before `flushed_offset`, which is durable or, with an error, never will be."""
        assert self._synced is not None
        refusal = None
        if error is not None:
            remark = f"service not available now. (the log cannot be synced: {error})"
            refusal = Response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)
        self._synced.reached(flushed_offset, refusal)
        if refusal is None:
            self.flushed(flushed_offset)


def _both(synced: Response | Deferred, replicated: Deferred) -> Deferred:
    """Return the answer for a record that is synced and replicated: a refusal of the sync, or the common response."""
    outer, answers = Deferred(), list[Response]()

    def answered(response: Response) -> None:
        answers.append(response)
        if len(answers) == 2:
            outer.complete(next((one for one in answers if one.code == ResponseCode.SERVICE_NOT_AVAILABLE), response))

    assert isinstance(synced, Deferred)
    synced.hand_to(answered)
    replicated.hand_to(answered)
    return outer


class _Waiting(NamedTuple):
    end_offset: int
    deadline_s: float
    held: Held
    response: Response


class OffsetWait:
    """Answers that wait until the log has reached a state up to their end offset: synced, or replicated.

    They are in the order of these offsets; one timer serves the oldest.
    """

    def __init__(self, timers: Timers, timeout_s: float, timeout_code: ResponseCode) -> None:
        """An answer that waited for `timeout_s` is sent with `timeout_code`: its message is stored, with its ids."""
        self._timers = timers
        self._timeout_s = timeout_s
        self._timeout_code = timeout_code
        self._waiting: deque[_Waiting] = deque()
        self._timer: Timer | None = None

    def add(self, end_offset: int, response: Response) -> Deferred:
        """Return an answer that is completed with `response` once the log has reached the state up to `end_offset`."""
        deferred = Deferred()
        self.hold(end_offset, response, deferred)
        return deferred

    def hold(self, end_offset: int, response: Response, held: Held) -> None:
        """Complete `held` with `response` once the log has reached the state up to `end_offset`."""
        deadline_s = self._timers.clock.monotonic() + self._timeout_s
        self._waiting.append(_Waiting(end_offset, deadline_s, held, response))
        if self._timer is None:
            self._timer = self._timers.after(self._timeout_s, self._time_out)

    def reached(self, offset: int, refusal: Response | None = None) -> None:
        """Complete the answers up to `offset`, with `refusal` if their records will never reach the state."""
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            row = waiting.popleft()
            row.held.complete(row.response if refusal is None else refusal)

    def close(self) -> None:
        """Drop the waiting answers."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    def _time_out(self) -> None:
        waiting, now_s = self._waiting, self._timers.clock.monotonic()
        while waiting and waiting[0].deadline_s <= now_s:
            row = waiting.popleft()
            row.response.code = self._timeout_code
            row.held.complete(row.response)
        self._timer = None
        if waiting:
            self._timer = self._timers.after(waiting[0].deadline_s - now_s, self._time_out)
