"""A gRPC client of bytes: it sends frames as they are given, and reads what the server sends frame by frame."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from bench.hostile import http2
from tests.patience import PATIENCE_S

GOAWAY = 7


class Answer(NamedTuple):
    kind: int
    flags: int
    stream: int
    content: bytes


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def frame(self) -> Answer | None:
        """Return the next frame of the server; None once it has closed the connection."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await self._reader.readexactly(9)
                content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Answer(head[3], head[4], int.from_bytes(head[5:], "big"), content)

    async def until(self, kind: int, stream: int = 0) -> Answer:
        """Return the next frame of a kind on a stream; others before it are dropped."""
        while (answer := await self.frame()) is not None:
            if (answer.kind, answer.stream) == (kind, stream):
                return answer
        raise AssertionError(f"the connection has ended without frame {kind} on stream {stream}")

    async def end_of(self, stream: int) -> bytes:
        """Return the header block with which the call of a stream ends."""
        while True:
            answer = await self.until(http2.HEADERS, stream)
            if answer.flags & http2.END_STREAM:
                return answer.content

    async def went_away(self) -> int:
        """Wait for the end of the connection, and return the code of the server's GOAWAY."""
        code = -1
        while (answer := await self.frame()) is not None:
            if answer.kind == GOAWAY:
                code = int.from_bytes(answer.content[4:8], "big")
        return code


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """Connect to a gRPC port; nothing is sent yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()
