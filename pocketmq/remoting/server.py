"""RemotingServer: accepts connections, each of which is a `Channel`, and closes them."""

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any, Final

from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.dispatch import Dispatcher, Route
from pocketmq.remoting.limits import DESCRIPTORS_KEPT
from pocketmq.remoting.listener import Listener, admission_of
from pocketmq.remoting.tls import ServerTls

log = logging.getLogger("remoting")

CLOSE_MAX_S: Final = 1.0
"""Maximum time for which a closing server waits until its answers are sent."""


class RemotingServer:
    """Server on one or more ports; a port may refuse some codes (the VIP port does not serve pulls)."""

    def __init__(
        self,
        services: Any,
        table: dict[int, Route],
        channels: Channels,
        tls: ServerTls | None = None,
        descriptors_kept: int = DESCRIPTORS_KEPT,
    ) -> None:
        """`channels`: the server's connections. `descriptors_kept`: descriptors that they may not use."""
        self._services, self._table, self.dispatcher = services, table, Dispatcher(services, table)
        self.channels = channels
        self._admission = admission_of(channels.limits, channels.timers, descriptors_kept)
        self._tls = tls
        self.listeners: list[Listener] = []

    async def listen(self, host: str, port: int, refused: frozenset[int] = frozenset()) -> int:
        """Listen on `host` and `port` (0: the kernel chooses). Returns the port. Raises OSError if it is in use."""
        dispatcher = Dispatcher(self._services, self._table, refused) if refused else self.dispatcher
        make, timers = partial(Channel, self.channels, dispatcher), self.channels.timers
        silent_s = min(self.channels.idle_s, self.channels.limits.slow_connection_seconds)
        connect = None if self.channels.sockets is None else self.channels.sockets.connect
        listener = Listener(make, timers, self._admission, silent_s, self._tls, connect)
        port = await listener.listen(host, port)
        self.listeners.append(listener)
        return port

    async def close(self) -> None:
        """Stop listening, send what is ready, for at most CLOSE_MAX_S to peers that do not read; close all connections."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()
        left, all_gone = set(self.channels.open), asyncio.Event()

        def gone(channel: Channel) -> None:
            left.discard(channel)
            if not left:
                all_gone.set()

        for channel in left:
            channel.on_close(gone)
        self.channels.close()
        if left:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_gone.wait(), CLOSE_MAX_S)
        for channel in tuple(left):
            log.info("dropping %s: it did not read its remaining answers within %g s", channel, CLOSE_MAX_S)
            channel.abort()
        await asyncio.sleep(0)
        if self.channels.sockets is not None:
            self.channels.sockets.close()
