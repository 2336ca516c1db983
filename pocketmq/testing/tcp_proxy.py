"""A TCP proxy that can stop forwarding, for tests of broken networks."""

import asyncio
import contextlib
import socket
from typing import Final

from pocketmq.client.loop_thread import LoopThread

_CHUNK_SIZE: Final = 1 << 16


def free_port(host: str) -> int:
    """Return a port of a host's address on which nothing listens; an empty host: of all addresses."""
    with socket.socket() as listening:
        listening.bind((host, 0))
        return int(listening.getsockname()[1])


class TcpProxy:
    """A proxy on a free port of 127.0.0.1 that forwards connections to `target`, in a thread of its own.

    While it is cut, connections stay open and nothing is forwarded; new connections are accepted and stay silent. Data sent
    in the meantime arrives after `join`.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self._thread = LoopThread("tcp-proxy")
        self.port = self._thread.call(self._listen())

    def cut(self) -> None:
        """Stop forwarding."""
        self._thread.call(self._forward_while(False))

    def join(self) -> None:
        """Forward again."""
        self._thread.call(self._forward_while(True))

    def close(self) -> None:
        """Close the port and all connections."""
        self._thread.call(self._end())
        self._thread.close()

    async def _forward_while(self, is_joined: bool) -> None:
        (self._is_joined.set if is_joined else self._is_joined.clear)()

    async def _listen(self) -> int:
        self._is_joined = asyncio.Event()
        self._is_joined.set()
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        self._server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await self._is_joined.wait()
            if self.target is None:
                return
            try:
                far_reader, far_writer = await asyncio.open_connection(*self.target)
            except OSError:
                return
            with contextlib.closing(far_writer):
                both = [
                    asyncio.ensure_future(self._copy(reader, far_writer)),
                    asyncio.ensure_future(self._copy(far_reader, writer)),
                ]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in both:
                        task.cancel()
                    await asyncio.gather(*both, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_SIZE):
                await self._is_joined.wait()
                writer.write(data)
                await writer.drain()
