"""A TCP proxy that can stop forwarding, for tests of broken networks."""

import asyncio
import contextlib
import threading
from typing import Final

_CHUNK_SIZE: Final = 1 << 16


class TcpProxy:
    """A proxy on a free port of 127.0.0.1 that forwards connections to `target`, in a thread of its own.

    While it is cut, connections stay open and nothing is forwarded; new connections are accepted and stay silent. Data sent
    in the meantime arrives after `join`.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        ready: list[int] = []
        is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready, is_ready), name="tcp-proxy", daemon=True)
        self._thread.start()
        is_ready.wait()
        self.port = ready[0]

    def cut(self) -> None:
        """Stop forwarding."""
        self._loop.call_soon_threadsafe(self._is_joined.clear)

    def join(self) -> None:
        """Forward again."""
        self._loop.call_soon_threadsafe(self._is_joined.set)

    def close(self) -> None:
        """Close the port and all connections."""
        self._loop.call_soon_threadsafe(self._is_closed.set)
        self._thread.join()

    def _run(self, ready: list[int], is_ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(ready, is_ready))
        finally:
            self._loop.close()

    async def _serve(self, ready: list[int], is_ready: threading.Event) -> None:
        self._is_joined, self._is_closed = asyncio.Event(), asyncio.Event()
        self._is_joined.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        is_ready.set()
        await self._is_closed.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
