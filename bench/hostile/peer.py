"""Connections for attacks: paced, closed at a deadline, and tolerant of a server that closes them."""

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CHUNK = 16 * 1024
BURST_SECONDS = 0.05
NEIGHBOUR_TOPIC = "Neighbour"
RARE_TOPIC = "NeighbourRare"
"""Topic to which the neighbour sends five messages a second: a consumer that is not woken waits for the next one."""
BROKER_NAME = "broker-a"


@dataclass
class Peer:
    """A hostile client: addresses of the servers, its deadline, and its rate in bytes a second."""

    namesrv: str
    broker: str
    seconds: float
    rate: float
    metrics: str = ""
    """Address of the broker's metricsPort; empty if the broker has no such port."""
    grpc: str = ""
    """Address of the broker's gRPC port; without such a port, the address for remoting."""
    sent: int = 0
    calls: int = 0
    """gRPC calls that were sent whole."""
    refused: int = 0
    """Connections that could not be opened."""
    slave_p99_ms: float = 0.0
    """Latency of requests to a slave that the attack started itself."""
    _sockets: set[socket.socket] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.seconds
        self._free_at = time.monotonic()
        self.grpc = self.grpc or self.broker

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.deadline

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the deadline."""
        time.sleep(max(0.0, min(seconds, self.deadline - time.monotonic())))

    def wait_to_the_end(self, *connections: socket.socket) -> None:
        """Keep connections open until the deadline, reading all data."""
        while self.is_on:
            for connection in connections:
                self.read(connection)
            self.wait(0.1)

    def connect(self, address: str, receive_buffer: int | None = None) -> socket.socket | None:
        """Return a connection, or None if none can be opened."""
        connection = socket.socket()
        try:
            if receive_buffer is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            connection.settimeout(max(0.05, min(3.0, self.deadline - time.monotonic())))
            host, port = address.rsplit(":", 1)
            connection.connect((host, int(port)))
            connection.setblocking(False)
        except OSError:
            connection.close()
            self.refused += 1
            return None
        self._sockets.add(connection)
        return connection

    def connections(self, address: str, count: int, receive_buffer: int | None = None) -> Iterator[socket.socket]:
        """Yield up to `count` connections until the deadline."""
        for _ in range(count):
            if not self.is_on:
                return
            if (connection := self.connect(address, receive_buffer)) is not None:
                yield connection

    def close(self, connection: socket.socket) -> None:
        self._sockets.discard(connection)
        connection.close()

    def close_all(self) -> None:
        for connection in list(self._sockets):
            self.close(connection)

    def send(self, connection: socket.socket, data: bytes, reads: bool = True, waits: bool = True) -> bool:
        """Send at the rate; False if the connection is closed, the time is over or, unless `waits`, its buffer is full."""
        view = memoryview(data)
        while view:
            if not self.is_on:
                return False
            piece = view[:CHUNK]
            self._pace(len(piece))
            try:
                count = connection.send(piece)
            except BlockingIOError:
                if not waits:
                    return False
                with contextlib.suppress(ValueError, OSError):
                    select.select([connection] if reads else [], [connection], [], 0.05)
                count = 0
            except OSError:
                return False
            self.sent += count
            view = view[count:]
            if reads and not self.read(connection):
                return False
        return True

    def read(self, connection: socket.socket) -> bool:
        """Discard received data; return False if the connection is closed."""
        try:
            while data := connection.recv(1 << 20):
                if len(data) < 1 << 20:
                    return True
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def flood(self, address: str, frames: Iterable[bytes], reads: bool = True) -> None:
        """Send all frames on one connection, or on a new one if a server closes it, until the time is over."""
        connection: socket.socket | None = None
        for data in frames:
            if not self.is_on:
                return
            if connection is None:
                connection = self.connect(address)
            if connection is None:
                self.wait(0.2)
            elif not self.send(connection, data, reads):
                self.close(connection)
                connection = None
        if connection is not None:
            self.wait_to_the_end(connection)

    def ask(self, address: str, data: bytes) -> dict[str, str]:
        """Return the fields of the answer to one request; empty if there is none."""
        host, port = address.rsplit(":", 1)
        timeout_s = max(0.05, min(5.0, self.deadline - time.monotonic()))
        try:
            with socket.create_connection((host, int(port)), timeout_s) as connection:
                connection.sendall(data)
                reader = connection.makefile("rb")
                size, mark = struct.unpack(">II", reader.read(8))
                header = json.loads(reader.read(size - 4)[: mark & 0xFFFFFF])
        except (OSError, struct.error, ValueError):
            return {}
        return header.get("extFields") or {}

    def _pace(self, count: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now - BURST_SECONDS) + count / self.rate
        if self._free_at > now:
            self.wait(self._free_at - now)
