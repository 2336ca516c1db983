"""The one place where an answer is held back until everything that it promises is true.

An answer may promise that

    its record is synced           SYNC_FLUSH, unless the sender set WAIT=false
    its record is at a slave       SYNC_MASTER, unless the sender set WAIT=false; there are no slaves yet
    a change of a table is synced  the files of config/*.json
    its topics can be found        topics.json is written, and every reachable name server knows the topic

A condition on records, such as replication, is added in `_recorded`: an `OffsetWait` that is told how far it has come.
"""

import logging
from collections.abc import Iterable, Mapping

from pocketmq.broker.context import Context
from pocketmq.broker.names import WAIT
from pocketmq.broker.put.offset_wait import OffsetWait
from pocketmq.broker.registration.route_barrier import RouteBarrier
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.remoting.durable import when_done, when_written
from pocketmq.runtime.table_writer import Written

log = logging.getLogger("broker")


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Return whether the sender waits for disk and slaves: WAIT is absent, or `true`."""
    wait = properties.get(WAIT)
    return wait is None or wait.lower() == "true"


class AnswerGate:
    """Holds answers back. `is_open`: no answer to a send has to wait, whatever its topic; sends check it first."""

    def __init__(self, context: Context, routes: RouteBarrier) -> None:
        self._routes = routes
        self._loop = context.loop
        config = context.store.config
        self._is_sync_master = config.broker_role == "SYNC_MASTER"
        self._synced: OffsetWait | None = None
        if config.flush_disk_type == "SYNC_FLUSH":
            self._synced = OffsetWait(context.timers, config.sync_flush_timeout / 1000, ResponseCode.FLUSH_DISK_TIMEOUT)
            context.store.on_flushed = self._on_flushed
        self._has_record_conditions = self._is_sync_master or self._synced is not None
        self.is_open = False
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
        """Return an answer that is under way already, held back until its topics can be found. It must not be bound yet."""
        return when_done(answer, self._routes.rounds(topics))

    def _recorded(self, end_offset: int, response: Response, is_replicated: bool) -> Response | Deferred:
        if is_replicated and self._is_sync_master:
            # As Apache's broker without a slave: the message is stored, and the answer says that no slave has it.
            response.code = ResponseCode.SLAVE_NOT_AVAILABLE
        return response if self._synced is None else self._synced.add(end_offset, response)

    def _routes_changed(self) -> None:
        self.is_open = not self._has_record_conditions and not self._routes.is_waiting

    def close(self) -> None:
        """Drop the answers that still wait for a sync; the store has synced or failed by now."""
        if self._synced is not None:
            self._synced.close()

    # --- sync -------------------------------------------------------------------------------------------------------

    def _on_flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """In the flush thread: once a round."""
        try:
            self._loop.call_soon_threadsafe(self._flushed, flushed_offset, error)
        except RuntimeError:
            log.info("synced up to %d after the loop ended", flushed_offset)

    def _flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """Everything before `flushed_offset` is durable, or, with an error, never will be."""
        assert self._synced is not None
        refusal = None
        if error is not None:
            remark = f"service not available now. (the log cannot be synced: {error})"
            refusal = Response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)
        self._synced.reached(flushed_offset, refusal)
