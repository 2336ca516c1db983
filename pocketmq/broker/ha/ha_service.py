"""HAService: a master's port for its slaves, and their progress in its log (Apache: HAService, GroupTransferService).

At the end of each turn of the event loop the records of the turn are sent to every slave that has received everything before
them. A slave that does not read, or that lags, is sent frames as its socket takes them.
"""

import ipaddress
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.ha.ha_connection import HAConnection
from pocketmq.remoting.allow_list import networks
from pocketmq.remoting.listener import Listener
from pocketmq.remoting.tls import ServerTls
from pocketmq.runtime.admission import Admission
from pocketmq.runtime.event import Event
from pocketmq.runtime.lifecycle import listening
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer
from pocketmq.runtime.turn import Phase

log = logging.getLogger("broker")

CONNECTIONS_MAX: Final = 64
LOOK_S: Final = 1.0
"""Interval of the checks for due heartbeats and silent slaves."""
NEAR_SIZE: Final = 1 << 20
"""A slave that lags by more than this many bytes is reported as behind."""


@dataclass(frozen=True)
class ReplicaStatus:
    """State of a slave, for tools. `acknowledged_offset` is -1 before its first report."""

    address: str
    acknowledged_offset: int
    lag_size: int
    lag_ms: int
    is_near: bool
    """Whether it lags by less than haSlaveFallbehindMax."""
    sent_per_s: int
    next_offset: int


class HAService:
    """Connections to the slaves of a master."""

    def __init__(self, context: Context) -> None:
        config = context.store.config
        self.files = context.store.commit_log.mapped_files
        self.transfer_size_max = config.ha_transfer_batch_size
        self.acknowledged: Event[[]] = Event()
        """Called when a slave has acknowledged more of the log."""
        self.port = 0
        self.has_successor = False
        """Whether this master stops, and a slave had almost the whole log when that began."""
        self._context = context
        self._config = config
        self._connections: list[HAConnection] = []
        self._networks = networks("haAllowedHosts", config.ha_allowed_hosts)
        self._strangers = RefusalLog(log)
        self._admission = Admission(log, CONNECTIONS_MAX, "the limit of haListenPort")
        self._listener: Listener | None = None
        self._timer: Timer | None = None
        self._sending = context.turn.add(Phase.FLUSH, self._end_turn, is_always_due=False)

    def now_s(self) -> float:
        return self._context.clock.monotonic()

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> None:
        """Listen at `port` (0: any free one; see `port`), also or only for TLS connections. Raises StartError."""
        timers = self._context.timers
        # Apache's slaves send their first bytes only after haSendHeartbeatInterval.
        silent_s = None if tls is None else self._config.ha_housekeeping_interval / 1000
        self._listener = Listener(lambda: HAConnection(self), timers, self._admission, silent_s, tls)
        with listening(host, port, "haListenPort"):
            self.port = await self._listener.listen(host, port)
        self._timer = timers.every(LOOK_S, self._look)

    def begin_stop(self) -> None:
        """Set `has_successor`: whether a slave can serve consumers in place of this master."""
        nearest = self.acknowledged_offset()
        self.has_successor = nearest >= 0 and self.files.max_offset - nearest <= NEAR_SIZE

    def stop(self) -> None:
        """Close the port and the connections. Records written before the last turn have been sent to the slaves."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.close("the broker stops")

    # --- progress of the slaves -------------------------------------------------------------------------------------

    def acknowledged_offset(self, count: int = 1) -> int:
        """Return the physical offset that at least `count` slaves have acknowledged; -1 if there are not so many."""
        reported = sorted((one.replica.reported_offset for one in self._connections), reverse=True)
        return reported[count - 1] if len(reported) >= count else -1

    def has_near(self, end_offset: int) -> bool:
        """Return whether a slave lags behind `end_offset` by less than haSlaveFallbehindMax."""
        nearest = self.acknowledged_offset()
        return nearest >= 0 and end_offset - nearest < self._config.ha_slave_fallbehind_max

    def replicas(self) -> list[ReplicaStatus]:
        """Return the states of the connected slaves."""
        end, now_s, near_max = self.files.max_offset, self.now_s(), self._config.ha_slave_fallbehind_max
        states = []
        for one in self._connections:
            reported = one.replica.reported_offset
            lag_size, lag_ms = end - max(reported, 0), one.lag.lag_ms(end, reported, now_s)
            is_near = reported >= 0 and lag_size < near_max
            states.append(
                ReplicaStatus(one.address, reported, lag_size, lag_ms, is_near, one.sent_per_s, one.replica.next_offset)
            )
        return states

    # --- events -----------------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Send the records of this turn of the loop."""
        end, now_s = self.files.max_offset, self.now_s()
        for connection in self._connections:
            connection.lag.written(end, connection.replica.reported_offset, now_s)
            connection.send()

    def connected(self, connection: HAConnection, host: str) -> bool:
        """Register a connection; return False if its host is not allowed."""
        address = ipaddress.ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        if self._networks and not any(address in network for network in self._networks):
            reason = f"{host} may not copy the log: haAllowedHosts={self._config.ha_allowed_hosts}"
            self._strangers.refused(host, reason)
            return False
        self._connections.append(connection)
        self._sending.set_due(True)
        why = "its place is needed, and it has reported nothing"
        self._admission.is_stranger(connection, connection.address, partial(connection.close, why))
        log.info("slave %s connected", connection.address)
        return True

    def disconnected(self, connection: HAConnection, error: Exception | None) -> None:
        self._admission.has_spoken(connection)
        if connection in self._connections:
            self._connections.remove(connection)
            self._sending.set_due(bool(self._connections))
            why = f" ({error})" if error else ""
            log.warning(
                "slave %s disconnected; it had acknowledged the log up to %d%s",
                connection.address,
                connection.replica.reported_offset,
                why,
            )

    def reported(self, connection: HAConnection) -> None:
        """Handle a slave's report of a new end of its log."""
        self._admission.has_spoken(connection)
        connection.lag.acknowledged(connection.replica.reported_offset, self.now_s())
        self._log_state(connection)
        self.acknowledged()

    def _log_state(self, connection: HAConnection) -> None:
        lag = self.files.max_offset - connection.replica.reported_offset
        is_near = lag <= NEAR_SIZE if connection.is_near is not True else lag <= 2 * NEAR_SIZE
        if is_near is not connection.is_near:
            connection.is_near = is_near
            log.info("slave %s %s: it lacks %d bytes", connection.address, "has caught up" if is_near else "is behind", lag)

    def _look(self) -> None:
        now_s = self.now_s()
        for connection in tuple(self._connections):
            connection.measure(now_s)
            if connection.is_near is not None:  # a slave that makes no progress sends no reports
                self._log_state(connection)
            if now_s - connection.last_read_s > self._config.ha_housekeeping_interval / 1000:
                connection.close(f"silent for {now_s - connection.last_read_s:.0f} s (haHousekeepingInterval)")
            elif now_s - connection.last_write_s >= self._config.ha_send_heartbeat_interval / 1000:
                connection.heartbeat()
