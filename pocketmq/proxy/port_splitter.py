"""PortSplitter: plain and TLS connections on one port, as Apache's proxy and the remoting port accept them.

gRPC's library serves a port in one way only. With a certificate and `tls.server.mode=permissive` this port looks at the
first byte of a connection and passes it on to one of two ports on the loopback interface. The front learns the peer's
real address from `peers`.
"""

import asyncio
import contextlib
import logging
from typing import Final

from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("proxy")

TLS_HANDSHAKE: Final = b"\x16"
FIRST_BYTE_S: Final = 10.0
CONNECTIONS_MAX: Final = 20_000
_PIECE_SIZE: Final = 1 << 16


class PortSplitter:
    """Listens for both kinds of connections. `peers`: port of an inner connection -> address of its peer."""

    def __init__(self, plain_port: int, tls_port: int, peers: dict[int, tuple[str, int]]) -> None:
        self._plain_port, self._tls_port, self._peers = plain_port, tls_port, peers
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused = RefusalLog(log)

    async def listen(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._accepted, host, port, limit=_PIECE_SIZE)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            self._refused.refused(None, f"closing a gRPC connection: {CONNECTIONS_MAX} are open")
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner: asyncio.StreamWriter | None = None
        inner_port = 0
        try:
            first = await asyncio.wait_for(reader.readexactly(1), FIRST_BYTE_S)
            port = self._tls_port if first == TLS_HANDSHAKE else self._plain_port
            inner_reader, inner = await asyncio.open_connection("127.0.0.1", port, limit=_PIECE_SIZE)
            inner_port = inner.get_extra_info("sockname")[1]
            self._peers[inner_port] = writer.get_extra_info("peername")[:2]
            inner.write(first)
            copying = [asyncio.ensure_future(_copy(*ends)) for ends in ((reader, inner), (inner_reader, writer))]
            try:
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in copying:
                    task.cancel()
                await asyncio.gather(*copying, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the peer is gone, or said nothing
        finally:
            self._peers.pop(inner_port, None)
            for one in (writer, inner):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_SIZE):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
