"""Http2Port: the connections of one gRPC port, and the limits that hold for all of them together."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from pocketmq.proxy.http2 import frames
from pocketmq.proxy.http2.call import WINDOW, Rpc
from pocketmq.proxy.http2.connection import CONNECTION_WINDOW, Http2Connection
from pocketmq.proxy.http2.frames import ErrorCode, Setting
from pocketmq.remoting.fair_share import FairShare
from pocketmq.remoting.limits import ConnectionLimits, PinnedBytes
from pocketmq.remoting.listener import Listener
from pocketmq.remoting.tls import ServerTls
from pocketmq.runtime.admission import Admission
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timers

log = logging.getLogger("proxy")

SILENT_S: Final = 10.0
"""Time in which a new connection must say something."""
BLOCKED_MAX: Final = 512
"""Calls whose answers are not read, of all connections; one more ends the oldest one of the connection with most."""
PING_AFTER_S: Final = 60.0
PING_ANSWER_S: Final = 20.0
"""A connection that was silent for so long is asked whether its peer is there, and how long the answer may take."""
REAP_S: Final = 5.0
MADE_AT_ONCE: Final = 8
"""Connections made in one turn of the loop: each costs more than a call, and a TLS handshake several times that."""


@dataclass(frozen=True)
class CallLimits:
    """Limits on calls."""

    streams_max: int
    calls_max: int
    metadata_size_max: int
    message_size_max: int
    connections_max: int


class Http2Port:
    """A port for gRPC. `rpcs`: the methods by path; `share`: the part of the loop's time for costly connections."""

    def __init__(
        self,
        rpcs: Mapping[str, Rpc],
        calls: CallLimits,
        timers: Timers,
        share: FairShare,
        limits: ConnectionLimits,
        tls: ServerTls | None = None,
    ) -> None:
        self.rpcs, self.share = rpcs, share
        self.streams_max, self.calls_max = calls.streams_max, calls.calls_max
        self.metadata_size_max, self.message_size_max = calls.metadata_size_max, calls.message_size_max
        self.open: set[Http2Connection] = set()
        self.call_count = self.blocked_count = 0
        announced = (
            (Setting.MAX_CONCURRENT_STREAMS, self.streams_max),
            (Setting.INITIAL_WINDOW_SIZE, WINDOW),
            (Setting.MAX_HEADER_LIST_SIZE, self.metadata_size_max),
        )
        self.greeting = frames.settings(announced) + frames.window_update(0, CONNECTION_WINDOW - frames.WINDOW_DEFAULT)
        """The frames that a client is sent first."""
        self._limits, self._timers, self._tls = limits, timers, tls
        count_max = min(limits.connection_count_max(), calls.connections_max)
        self._admission = Admission(log, count_max, "grpcMaxClients, maxConnections, RLIMIT_NOFILE")
        size_max = max(limits.max_unfinished_frame_bytes, 2 * self.message_size_max)
        self._held: PinnedBytes[Http2Connection] = PinnedBytes(
            size_max, 0, limits.slow_connection_seconds, is_draining=False
        )
        self._unwritten: list[Http2Connection] = []
        self._refused = RefusalLog(log)
        self._listener: Listener | None = None
        self._reaper = timers.every(REAP_S, self._reap)

    async def listen(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError."""
        self._listener = _Listener(lambda: Http2Connection(self), self._timers, self._admission, SILENT_S, self._tls)
        return await self._listener.listen(host, port)

    async def close(self, seconds: float) -> None:
        """Take no more calls, give those that run some seconds, and close all connections."""
        if self._listener is not None:
            self._listener.close()
        for connection in self.open:
            connection.go_away()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while self.call_count and loop.time() < end_s:
            await asyncio.sleep(0.02)
        self._reaper.cancel()
        for connection in list(self.open):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.open):
            connection.abort()
        await asyncio.sleep(0)

    # --- called by connections --------------------------------------------------------------------------------------

    def unwritten(self, connection: Http2Connection) -> None:
        """Flush a connection at the end of this turn of the loop."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(connection)

    def _write(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for connection in connections:
            connection.flush()

    def holds(self, connection: Http2Connection) -> None:
        """Count the bytes that have arrived from a connection and cannot be served yet."""
        size = connection.held_size
        if not size:
            self._held.forget(connection)
            return
        now_s = monotonic()
        self._held.update(connection, size, now_s)
        for one in self._held.excess(now_s):
            self._drop(one, "the unfinished calls of all connections have too many bytes (maxUnfinishedFrameBytes)")

    def blocked_grew(self, connection: Http2Connection) -> None:
        """Count one more call whose answer is not read."""
        self.blocked_count += 1
        if self.blocked_count > BLOCKED_MAX:
            most = max(self.open, key=lambda one: len(one.blocked))
            self.refused(most, f"more than {BLOCKED_MAX} answers are not read: the oldest call of {most!r} ends")
            next(iter(most.blocked)).reset(ErrorCode.CANCEL)

    def refused(self, connection: Http2Connection, why: str) -> None:
        """Log what a peer is refused, once a minute for each host."""
        self._refused.refused((connection.peer[0], why[:40]), f"{connection!r}: {why}")

    def forget(self, connection: Http2Connection) -> None:
        """Remove a connection that has ended."""
        self.open.discard(connection)
        self._held.forget(connection)

    def _drop(self, connection: Http2Connection, why: str) -> None:
        self.refused(connection, f"dropped: {why}")
        self._held.forget(connection)
        connection.abort()

    def _reap(self) -> None:
        now_s = monotonic()
        slow_s, rate = self._limits.slow_connection_seconds, self._limits.min_connection_bytes_per_second
        for connection in list(self.open):
            for call in [call for call in connection.blocked if now_s - call.blocked_s > slow_s]:
                self.refused(connection, f"a call ended: its client has not read a message for {slow_s} s")
                call.reset(ErrorCode.CANCEL)
            elapsed_s = now_s - connection.progress_s
            if elapsed_s > slow_s and connection.is_unfinished and connection.progress_bytes < rate * elapsed_s:
                self._drop(connection, f"it sends its calls slower than {rate} bytes a second (slowConnectionSeconds)")
            elif connection.pinged_s is not None and now_s - connection.pinged_s > PING_ANSWER_S:
                log.info("dropping %r: it has not answered for %g s", connection, PING_ANSWER_S)
                connection.abort()
            elif connection.pinged_s is None and now_s - connection.heard_s > PING_AFTER_S:
                connection.ping()


class _Listener(Listener):
    """A listener that waits for the whole preface, and makes few connections in one turn of the loop.

    It looks for changed certificates before it makes them.
    """

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self._heard_of: deque[tuple[socket.socket, bytes]] = deque()
        """Connections that are to be made."""

    def _accepted(self, accepted: socket.socket) -> None:
        # The socket becomes readable with so many bytes, or when its peer is gone. A TLS handshake begins with more.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(frames.PREFACE))
        super()._accepted(accepted)

    def _heard(self, accepted: socket.socket, first: bytes) -> None:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._heard_of.append((accepted, first))
        if len(self._heard_of) == 1:
            self._loop.call_soon(self._make_some)

    def _make_some(self) -> None:
        if self._tls is not None:
            self._tls.certificates.reload()
        for _ in range(min(len(self._heard_of), MADE_AT_ONCE)):
            super()._heard(*self._heard_of.popleft())
        if self._heard_of:
            self._loop.call_soon(self._make_some)

    def close(self) -> None:
        super().close()
        for accepted, _ in self._heard_of:
            accepted.close()
        self._heard_of.clear()
