"""Hostile peers for any running server.

`hostile_frames` mutates recorded frames; `attack` sends them. After each batch of valid frames it checks that the server
answers a request sent behind them. Invalid bytes are sent over a new connection, which the server may only close.
"""

import asyncio
import contextlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pocketmq.remoting.codes import JSON
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.frame import FrameBuffer, FrameError, frame_head
from pocketmq.remoting.header_keys import HeaderError, opaque_and_flag
from tests.patience import PATIENCE_S
from tests.remoting.recordings import all_recorded

SENTINEL_CODE = 31_999
"""Request code that no server has; answered with 3."""
PEERS = 4
BATCH = 16

_CODE = re.compile(rb'"code":-?\d+')
_VALUE = re.compile(rb':"[^"]*"')
_ODD_VALUES = (
    b"", b"-1", b"0", b"true", b"2147483648", b"-9223372036854775809", b"9" * 400, b"NaN", b"\\u0000", b"../../x",
    b"%RETRY%", b"\xc3\xa9", b"\xff", b"a b", b"x" * 70_000, b"\\ud800", b"[]", b"1e9", b"TBW102",
)  # fmt: skip


def hostile_frames(seed: int, codes: Sequence[int]) -> Iterator[bytes]:
    """Yield endlessly: damaged recorded frames, many changed to the given codes, and random bytes."""
    rng = random.Random(seed)
    by_code: dict[int, list[bytes]] = defaultdict(list)
    for row in all_recorded():
        if len(row.data) < 20_000:
            by_code[row.read["code"]].append(row.data)
    parents = list(by_code.values())  # all codes equally often, regardless of how often each was recorded
    while True:
        yield _damaged(rng, rng.choice(rng.choice(parents)), codes)


def _damaged(rng: random.Random, parent: bytes, codes: Sequence[int]) -> bytes:
    ((kind, header, body),) = FrameBuffer().feed(parent)
    how = rng.randrange(10)
    if how == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if how == 1:
        return _flipped(rng, parent)
    if how == 2:
        return parent[: rng.randrange(len(parent))]
    # Half of them keep their code: a single odd value in an otherwise valid request gets furthest.
    is_turned = how < 8 and rng.random() < 0.5
    if is_turned and kind == JSON:
        header = _CODE.sub(b'"code":%d' % rng.choice(codes), header, count=1)
    elif is_turned and len(header) >= 2:
        header = (rng.choice(codes) & 0xFFFF).to_bytes(2, "big") + header[2:]
    if kind == JSON and how in (3, 4, 5):
        header = _VALUE.sub(lambda match: _odd_value(rng, match.group()), header)
    if how in (5, 8):
        header = _flipped(rng, header)
    if how in (6, 9):
        body = rng.choice([b"", _flipped(rng, body), body[: rng.randrange(len(body) + 1)], rng.randbytes(50), body * 3])
    if how == 9:
        kind = rng.choice([0, 1, 1, 2, 255])
    return frame_head(kind, len(header), len(body)) + header + body


def _odd_value(rng: random.Random, value: bytes) -> bytes:
    return b':"' + rng.choice(_ODD_VALUES) + b'"' if rng.random() < 0.15 else value


def _flipped(rng: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randrange(1, 5) if damaged else 0):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _is_whole(data: bytes) -> bool:
    """Return whether `data` consists of whole frames with an opaque each, for which a server keeps the connection."""
    frames = FrameBuffer()
    try:
        for kind, header, _ in frames.feed(data):
            try:
                decode_header(kind, header)
            except HeaderError:
                if opaque_and_flag(kind, header) is None:
                    return False
    except FrameError:
        return False
    return not frames._needed


class _Peer:
    """Hostile peer with one connection at a time."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._host, self._port = host, int(port)
        self._writer: asyncio.StreamWriter | None = None
        self._opaque = 0

    async def send_whole(self, frames: list[bytes]) -> None:
        """Send frames that must leave the connection open and the server able to answer."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
            self._frames = FrameBuffer()
        self._opaque += 1
        question = encode_request(SENTINEL_CODE, None, b"", self._opaque)
        self._writer.write(b"".join([*frames, *question]))
        while True:
            data = await asyncio.wait_for(self._reader.read(1 << 20), PATIENCE_S)
            assert data, f"closed after {frames!r}"
            for kind, header, _ in self._frames.feed(data):
                command = decode_header(kind, header)
                if command.opaque == self._opaque and command.remark == f" request type {SENTINEL_CODE} not supported":
                    return

    async def send_broken(self, data: bytes) -> None:
        """Send bytes after which the server must close the connection, or wait for more until this peer disconnects."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(data)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def attack(address: str, frames: Iterator[bytes], count: int) -> None:
    """Send `count` frames over PEERS connections. Raises AssertionError or TimeoutError if the server misbehaves."""
    left = count

    async def one_peer() -> None:
        nonlocal left
        peer = _Peer(address)
        batch: list[bytes] = []
        while left > 0:
            left -= 1
            data = next(frames)
            if _is_whole(data):
                batch.append(data)
            else:
                await peer.send_broken(data)
            if len(batch) == BATCH:
                await peer.send_whole(batch)
                batch = []
        await peer.send_whole(batch)
        peer.close()

    await asyncio.gather(*(one_peer() for _ in range(PEERS)))
