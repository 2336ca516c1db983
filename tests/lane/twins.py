"""Two brokers with the same clock, one with the compiled lane and one without, that must do the same with the same bytes."""

import asyncio
import contextlib
import fcntl
import os
import random
import shutil
import socket
import sys
import termios
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from math import inf
from time import monotonic
from typing import Any

import pytest

from pocketmq.broker.filter.compiled_expressions import compilation
from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.lane import ordinary_sends
from pocketmq.broker.lane.copies import OrdinaryCopies
from pocketmq.broker.lane.sockets import LaneSockets
from pocketmq.broker.stats.samples import CALLS, DISK_NUMS, NUMS, SIZE
from pocketmq.lane import compiled_lane
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.frame import Frame, FrameBuffer
from pocketmq.remoting.layout import FRAME_SIZE_MAX
from pocketmq.remoting.limits import ConnectionLimits
from tests.broker.data_path import DataPath
from tests.patience import PATIENCE_S

# In CI a lane that was not built though cargo is there is a failure.
IS_MISSING = compiled_lane()[0] is None and not (os.environ.get("CI") and shutil.which("cargo"))
needs_lane = pytest.mark.skipif(IS_MISSING, reason="the compiled lane is not built")
HOST = "127.77.1.1"
"""Address of the clients, which no other process uses: they choose their ports, as these are in the records."""
FOLDERS = ("commitlog", "consumequeue", "index")


class Transport:
    """Test double of a socket, which takes whatever is written."""

    def __init__(self, port: int) -> None:
        self.written = bytearray()
        self.is_closed = self.is_paused = False
        self._peer = (HOST, port)

    def get_extra_info(self, name: str) -> Any:
        return self._peer if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever buffered."""

    def receive(self, channel: Channel, data: bytes) -> None:
        """Pass bytes of the peer to the channel."""
        channel.data_received(data)

    def ended(self, channel: Channel) -> None:
        """Report the end of the connection."""
        channel.connection_lost(None)

    def got(self, size: int) -> bytes:
        """Return what was written since the last call, whatever its size."""
        data = bytes(self.written)
        self.written.clear()
        return data

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def pause_reading(self) -> None:
        """The test waits until all is served before it sends more."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Wire:
    """A connection through the kernel whose server end the compiled lane reads and writes."""

    def __init__(self, sockets: LaneSockets, channel: Channel, port: int) -> None:
        self._sockets, self._channel = sockets, channel
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._client = socket.socket()
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._client.bind((HOST, port))
            self._client.connect(listening.getsockname())
            self._accepted, _ = listening.accept()
        for end in (self._client, self._accepted):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.connect(self._accepted, channel)

    @property
    def is_closed(self) -> bool:
        return not self._channel.is_open or self._channel._transport.is_closing()

    @property
    def is_paused(self) -> bool:
        """Whether bytes would stay in the kernel."""
        return self._channel._unread_because != 0

    def receive(self, channel: Channel, data: bytes) -> None:
        """Send bytes to the channel, and let the lane read them."""
        there = in_kernel(self._accepted)
        self._client.sendall(data)
        end_s = monotonic() + PATIENCE_S
        while in_kernel(self._accepted) < there + len(data) and monotonic() < end_s:
            """The kernel passes the bytes on."""
        self._sockets._ready()

    def ended(self, channel: Channel) -> None:
        """The loop reports the end of the connection."""
        self._client.close()

    def got(self, size: int) -> bytes:
        """Return what the server has sent since the last call: `size` bytes, unless these do not come."""
        data, end_s = b"", monotonic() + PATIENCE_S
        with contextlib.suppress(ConnectionResetError):
            while len(data) < size and monotonic() < end_s:
                with contextlib.suppress(BlockingIOError):
                    data += self._client.recv(1 << 20)
            with contextlib.suppress(BlockingIOError):
                data += self._client.recv(1 << 20)
        return data


def in_kernel(end: socket.socket) -> int:
    """Return the number of bytes that have arrived and are not read."""
    return int.from_bytes(fcntl.ioctl(end.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def _frames(data: bytes) -> list[Frame]:
    return FrameBuffer().feed(data)


def _differences(expected: list[Frame], got: list[Frame]) -> str:
    """Return the frames that only one side has, shortened."""
    missing, surplus = Counter(expected), Counter(got)
    sides = ("missing", missing - surplus), ("surplus", surplus - missing)
    return "; ".join(f"{side}: {[(*frame[:2], len(frame[2])) for frame in list(found)[:3]]}" for side, found in sides)


class Side:
    """One of the brokers, with its connections. `with_sockets`: they are those of the lane."""

    def __init__(
        self, *, with_lane: bool, topics: list[TopicConfig], with_sockets: bool = False, **store: Any
    ) -> None:  # fmt: skip
        self.path = DataPath(broker={"enable_property_filter": True}, **store)
        services = self.services = self.path.services
        services.delays.stop()  # timers of the real clock would deliver on one side earlier than on the other
        self._turns = count(1)
        services.turn.arm = self._arm  # type: ignore[method-assign]
        self.channels = Channels(services.turn, services.timers, limits=ConnectionLimits(), is_server=True)
        services.topics.update(*topics)
        self._dispatcher = Dispatcher(services, ROUTES)
        self._connections: dict[int, tuple[Channel, Transport | Wire]] = {}
        self.in_lane = 0
        """Number of bytes that the lane served."""
        self.in_sockets = 0
        """Bytes of the records of requests that came through no channel."""
        self.copied = 0
        """Number of due messages that the lane delivered."""
        if with_lane:
            lane, _ = compiled_lane()
            self._sends = ordinary_sends(services, lane, self.channels, FRAME_SIZE_MAX)
            self.channels.lane = self._serve
            self._copies = OrdinaryCopies(services, self._sends)
            services.delays.sink.put_together = self._copy
            if with_sockets:
                self._sockets = LaneSockets(self._serve_ready, lane.Sockets, services.turn, services.clock)
                self.channels.use(self._sockets)

    def _arm(self) -> None:
        """Begin a turn, which ends where the test says, on both sides."""
        turn = self.services.turn
        if turn.began_s == inf:
            turn.began_s = next(self._turns)

    def _serve(self, channel: Channel, data: bytes, start: int, out: list[Any]) -> int:
        used = self._sends.serve(channel, data, start, out)
        self.in_lane += used
        return used

    def _copy(self, physical_offsets: Sequence[int], now_ms: int) -> int:
        count = self._copies.put(physical_offsets, now_ms)
        self.copied += count
        return count

    def _serve_ready(self, sockets: Any, now_s: float) -> Any:
        tail = self.services.store.commit_log.tail
        before = tail.end_offset
        found = self._sends.serve_ready(sockets, now_s)
        self.in_sockets += tail.end_offset - before
        return found

    async def receive(self, number: int, data: bytes) -> None:
        """Receive bytes over connection `number`, and serve all their requests. One that is closed receives nothing more."""
        channel, transport = self._connections.get(number) or self._connect(number)
        if transport.is_closed:
            return
        transport.receive(channel, data)
        while (channel._has_left or transport.is_paused) and channel.is_open and not transport.is_closed:
            await asyncio.sleep(0)

    def _connect(self, number: int) -> tuple[Channel, Transport | Wire]:
        channel, port = Channel(self.channels, self._dispatcher), 40_000 + number
        transport: Transport | Wire
        if self.channels.sockets is None:
            transport = Transport(port)
            channel.connection_made(transport)
        else:
            transport = Wire(self._sockets, channel, port)
        self._connections[number] = channel, transport
        return channel, transport

    def end_turn(self, expected: dict[int, bytes] | None = None) -> dict[int, bytes]:
        """End the turn; return what each connection got in it. Closed connections are replaced at their next use.

        `expected`: what each gets; one of the kernel waits until so much has arrived.
        """
        self.services.turn.run()
        got = {}
        for number, (channel, transport) in tuple(self._connections.items()):
            if data := transport.got(len((expected or {}).get(number, b""))):
                got[number] = data
            if transport.is_closed:
                transport.ended(channel)
                del self._connections[number]
        return got

    def state(self) -> list[Any]:
        """Return the ends of log and queues, the committed offsets, and the number of sends."""
        services, tail = self.services, self.services.store.commit_log.tail
        return [tail.end_offset, tail.queue_offsets, services.offsets.encode(), services.stats.put_total]

    def counts(self) -> list[Any]:
        """Return what was counted of the stored messages by queue, and of the pulled ones by group and queue; the pulls, and
        where the groups pull next."""
        services, found = self.path.services, []
        for table in (services.stats.puts, services.stats.gets):
            places, words = table.copied()
            columns = [NUMS, SIZE, CALLS, DISK_NUMS] if table is services.stats.gets else [NUMS, SIZE]
            found.append({key: [words[place + column] for column in columns] for key, place in places})
        return [*found, services.stats.get_total, services.offsets.pull_offsets]

    def files(self) -> dict[str, bytes]:
        """Return the contents of the log, the queues and the index by path."""
        disk, found = self.path.disk, {}
        self.services.store.queues.flush()  # units of files that are not mapped wait in memory

        def walk(folder: str) -> None:
            for name in disk.listdir(folder):
                path = f"{folder}/{name}"
                if disk.is_dir(path):
                    walk(path)
                else:
                    found[path] = bytes(disk.read_file(path))

        for name in FOLDERS:
            walk(f"/store/{name}")
        return found

    def close(self) -> None:
        self.channels.close()
        if self.channels.sockets is not None:
            self.channels.sockets.close()
            for channel, wire in self._connections.values():
                wire.ended(channel)


class Twins:
    """Both sides; each step is taken by both, and compared."""

    def __init__(
        self,
        topics: list[TopicConfig] | None = None,
        *,
        with_sockets: bool = False,
        expressions: Iterable[str] = (),
        **store: Any,
    ) -> None:
        """`expressions` are compiled in advance, as that takes a time which differs: requests wait for it."""
        for text in expressions:
            for _ in compilation(text):
                pass
        topics = topics or [TopicConfig("Narrow", 1, 1), TopicConfig("Multi", 4, 4, topic_filter_type="MULTI_TAG")]
        self.twin = Side(with_lane=False, topics=topics, **store)
        self.laned = Side(with_lane=True, topics=topics, with_sockets=with_sockets, **store)
        self._seeds = random.Random(7)

    async def receive(self, number: int, data: bytes) -> None:
        """Let both sides receive bytes over a connection."""
        seed = self._seeds.random()
        for side in (self.twin, self.laned):
            random.seed(seed)  # a send to any queue chooses one by chance
            await side.receive(number, data)

    def end_turn(self) -> dict[int, bytes]:
        """End the turn of both sides, compare what they answered and where log and queues end, and return the answers."""
        answers = self.twin.end_turn()
        laned = self.laned.end_turn(answers)
        if self.laned.channels.sockets is None:
            assert laned == answers
        else:  # the lane's own answers of a turn come before the channel's; a broker reads a socket once in a turn
            for number in answers.keys() | laned.keys():
                expected, got = sorted(_frames(answers.get(number, b""))), sorted(_frames(laned.get(number, b"")))
                assert got == expected, f"connection {number}: {_differences(expected, got)}"
        assert self.laned.state() == self.twin.state()
        return answers

    def advance(self, ms: int) -> None:
        for side in (self.twin, self.laned):
            side.path.clock.set_ms(side.path.clock.message_time_ms() + ms)

    def compare_files(self) -> None:
        """Compare log, queues and index byte for byte, and what was counted."""
        assert self.laned.counts() == self.twin.counts()
        files, laned = self.twin.files(), self.laned.files()
        assert laned.keys() == files.keys()
        for path, data in files.items():
            assert laned[path] == data, f"{path} differs"

    def close(self) -> None:
        self.twin.close()
        self.laned.close()
