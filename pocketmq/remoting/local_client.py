"""RemotingClient for servers in the same process: frames go from channel to channel in memory, without sockets.

    client = LocalClient(turn, timers, {"127.0.0.1:10911": server})
    answer = await client.call("127.0.0.1:10911", RequestCode.PULL_MESSAGE, header)

Both ends are channels as those of a connection over the network, with the same limits, so handlers cannot tell the
difference: requests may be answered late, servers may send requests, and either end may close.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.command import Buffer
from pocketmq.remoting.dispatch import Dispatcher, Route
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn


class Served(Protocol):
    """The part of a RemotingServer that a connection in memory needs."""

    @property
    def channels(self) -> Channels: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def listeners(self) -> Sequence[object]: ...


class LocalClient(RemotingClient):
    """Connections to `servers`, by address. While it `is_costly`, its requests are served from the share of such clients."""

    def __init__(
        self,
        turn: Turn,
        timers: Timers,
        servers: Mapping[str, Served],
        table: dict[int, Route] | None = None,
        services: Any = None,
    ) -> None:
        super().__init__(turn, timers, table, services)
        self._servers = servers

    async def _connect(self, address: str) -> Channel:
        server = self._servers.get(address)
        if server is None or not server.listeners:
            raise ConnectionRefusedError(f"{address} is not served by this process")
        near = self._by_address[address] = Channel(self._channels, self._dispatcher, self._sender)
        far = Channel(server.channels, server.dispatcher)
        host, _, port = address.rpartition(":")
        ends = _End(near, (host, int(port)), self), _End(far, self._sender.peer)
        for end, other in zip(ends, reversed(ends), strict=True):
            end.other = other
            end.channel.connection_made(end)
        return near


class _End:
    """The transport of one channel: what it writes, the channel at the other end receives in the next step of the loop."""

    other: "_End"

    def __init__(self, channel: Channel, peer: tuple[str, int], client: RemotingClient | None = None) -> None:
        """`peer`: host and port of the other end; `client`: whose connection this is, at its own end."""
        self.channel, self._client = channel, client
        self.is_reading = True
        self._peer = peer
        self._written: list[bytes] = []
        self._size = self._size_max = 0
        self._is_full = self._is_closing = self._is_closed = self._is_armed = False

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        """Return the address of the other end as `peername`; there is no `socket`."""
        return self._peer if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Set the number of written bytes above which the channel is told to pause, until the other end has read them."""
        self._size_max = high

    def get_write_buffer_size(self) -> int:
        """Return the number of written bytes that the other end has not read."""
        return self._size

    def is_closing(self) -> bool:
        """Return whether `close` or `abort` was called at either end."""
        return self._is_closing

    def write(self, data: Buffer) -> None:
        """Write bytes; they are copied, because views of store files end with their files."""
        if self._is_closing:
            return
        self._written.append(bytes(data))
        self._size += len(data)
        if self._size > self._size_max and not self._is_full:
            self._is_full = True
            self.channel.pause_writing()
        self._arm()

    def writelines(self, buffers: list[Buffer]) -> None:
        """Write several buffers."""
        self.write(b"".join(buffers))

    def pause_reading(self) -> None:
        """Let the other end keep what it writes."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """Receive what the other end has kept."""
        self.is_reading = True
        self.other._arm()

    def close(self) -> None:
        """Close both ends once the other one has read what was written."""
        self._is_closing = True
        self._arm()

    def abort(self) -> None:
        """Close both ends; what was written is lost."""
        self._written.clear()
        self.close()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._is_armed = False
        if self._written and self.other.is_reading and not self.other._is_closing:
            data, self._written, self._size = b"".join(self._written), [], 0
            if self._client is not None and self._client.is_costly:
                self.other.channel.is_costly = True
            self.other.channel.data_received(data)
            if self._is_full:
                self._is_full = False
                self.channel.resume_writing()
        if self._is_closing and not (self._written and not self.other._is_closing):
            self._end()
            self.other._end()

    def _end(self) -> None:
        self._is_closing = True
        if not self._is_closed:
            self._is_closed = True
            self.channel.connection_lost(None)
