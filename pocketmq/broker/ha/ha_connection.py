"""HAConnection: a master's connection to one of its slaves."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from pocketmq.remoting.listener import Connection
from pocketmq.store.ha.replica import Replica, ReplicaError

if TYPE_CHECKING:
    from pocketmq.broker.ha.ha_service import HAService

log = logging.getLogger("broker")

UNSENT_MAX: Final = 512 << 10
"""Bytes in the socket's buffer above which no further frame is added."""
SENT_AT_ONCE: Final = 1 << 20
"""Bytes that are sent to one slave before other work is done."""


class ReplicaLag:
    """The time by which a slave lags behind. Offsets are physical offsets, times monotonic seconds.

    One end of the log is timed at a time: from its turn of the event loop until the slave has acknowledged it. So the cost
    does not depend on the number of records, and the lag of a slave that stands still grows from the first record that it
    lacks.
    """

    def __init__(self) -> None:
        self._end_offset = -1
        """The end that is timed; -1 if none is."""
        self._since_s = 0.0
        self._last_s = 0.0
        """How long the acknowledgement of the last timed end took."""

    def written(self, end_offset: int, acknowledged_offset: int, now_s: float) -> None:
        """Note that the log ends at `end_offset`."""
        if self._end_offset < 0 and end_offset > acknowledged_offset:
            self._end_offset, self._since_s = end_offset, now_s

    def acknowledged(self, offset: int, now_s: float) -> None:
        """Note that the slave has the log up to `offset`."""
        if 0 <= self._end_offset <= offset:
            self._last_s = now_s - self._since_s
            self._end_offset = -1

    def lag_ms(self, end_offset: int, acknowledged_offset: int, now_s: float) -> int:
        """Return 0 if the slave has everything, else how long it takes or has taken to acknowledge."""
        if acknowledged_offset >= end_offset:
            return 0
        waiting_s = now_s - self._since_s if self._end_offset >= 0 else 0.0
        return round(max(waiting_s, self._last_s) * 1000)


class HAConnection(Connection):
    """Sends the log to one slave and reads its reports."""

    def __init__(self, service: "HAService") -> None:
        self.is_open = False
        self.replica = Replica(service.files, service.transfer_size_max)
        self.address = ""
        self.sent_per_s = 0
        """Bytes of the log sent per second, at the last measurement."""
        self.lag = ReplicaLag()
        self.is_near: bool | None = None
        """Whether the slave had almost the whole log (NEAR_SIZE) at the last check; None before its first report."""
        self.last_read_s = self.last_write_s = service.now_s()
        self._sent_size = 0
        self._measured_s = self.last_read_s
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._is_paused = self._is_resting = False
        self._on_close: list[Callable[[Any], object]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        host, port = transport.get_extra_info("peername")[:2]
        self.address = f"{host}:{port}"
        transport.set_write_buffer_limits(UNSENT_MAX)
        self.is_open = True
        if not self._service.connected(self, str(host)):
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._service.disconnected(self, error)
        for callback in self._on_close:
            callback(self)

    def on_close(self, callback: Callable[..., None]) -> None:
        self._on_close.append(callback)

    def close(self, reason: str) -> None:
        """Close the connection because of `reason`, which is logged."""
        if self.is_open and self._transport is not None:
            log.warning("closing the connection of slave %s: %s", self.address, reason)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self.last_read_s = self._service.now_s()
        try:
            is_changed = self.replica.receive(data)
        except ReplicaError as error:
            self.close(str(error))
            return
        if is_changed:
            self._service.reported(self)
        self.send()

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send the part of the log written since the last frame, as far as the socket accepts it."""
        transport, size = self._transport, 0
        if transport is None or not self.is_open or self._is_resting:
            return
        while not self._is_paused and transport.get_write_buffer_size() <= UNSENT_MAX:
            if size >= SENT_AT_ONCE:
                self._is_resting = True
                asyncio.get_running_loop().call_soon(self._go_on)
                return
            frame = self.replica.next_transfer()
            if frame is None:
                return
            transport.writelines(frame)
            self.last_write_s = self._service.now_s()
            size += len(frame[1])
            self._sent_size += len(frame[1])

    def _go_on(self) -> None:
        self._is_resting = False
        self.send()

    def measure(self, now_s: float) -> None:
        """Measure the rate of sending since the last call."""
        self.sent_per_s = round(self._sent_size / max(now_s - self._measured_s, 1e-3))
        self._sent_size, self._measured_s = 0, now_s

    def heartbeat(self) -> None:
        """Send a heartbeat to the slave."""
        if self.is_open and not self._is_paused and self._transport is not None:
            self._transport.write(self.replica.heartbeat())
            self.last_write_s = self._service.now_s()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send()
