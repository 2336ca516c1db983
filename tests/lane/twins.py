"""Two brokers with the same clock, one with the compiled lane and one without, that must do the same with the same bytes."""

import asyncio
import os
import random
import shutil
from itertools import count
from math import inf
from typing import Any

import pytest

from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.lane import lane_of
from pocketmq.lane import compiled_lane
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.layout import FRAME_SIZE_MAX
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.server import Channel
from tests.broker.data_path import DataPath

# In CI a lane that was not built though cargo is there is a failure.
IS_MISSING = compiled_lane()[0] is None and not (os.environ.get("CI") and shutil.which("cargo"))
needs_lane = pytest.mark.skipif(IS_MISSING, reason="the compiled lane is not built")
FOLDERS = ("commitlog", "consumequeue", "index")


class Transport:
    """Test double of a socket, which takes whatever is written."""

    def __init__(self, port: int) -> None:
        self.written = bytearray()
        self.is_closed = False
        self._peer = ("127.0.0.1", port)

    def get_extra_info(self, name: str) -> Any:
        return self._peer if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever buffered."""

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


class Side:
    """One of the brokers, with its connections."""

    def __init__(self, *, with_lane: bool, topics: list[TopicConfig], **store: Any) -> None:
        self.path = DataPath(**store)
        services = self.services = self.path.services
        services.delays.stop()  # timers of the real clock would deliver on one side earlier than on the other
        self._turns = count(1)
        services.turn.arm = self._arm  # type: ignore[method-assign]
        self.channels = Channels(services.turn, services.timers, limits=ConnectionLimits(), is_server=True)
        services.topics.update(*topics)
        self._dispatcher = Dispatcher(services, ROUTES)
        self._connections: dict[int, tuple[Channel, Transport]] = {}
        self.in_lane = 0
        """Number of bytes that the lane served."""
        if with_lane:
            lane, _ = compiled_lane()
            self._lane = lane_of(services, lane, FRAME_SIZE_MAX, self.channels.header_size_max)
            self.channels.lane = self._serve

    def _arm(self) -> None:
        """Begin a turn, which ends where the test says, on both sides."""
        turn = self.services.turn
        if turn.began_s == inf:
            turn.began_s = next(self._turns)

    def _serve(self, channel: Channel, data: bytes, out: list[Any]) -> int:
        used = self._lane(channel, data, out)
        self.in_lane += used
        return used

    async def receive(self, number: int, data: bytes) -> None:
        """Receive bytes over connection `number`, and serve all their requests."""
        channel, transport = self._connections.get(number) or self._connect(number)
        channel.data_received(data)
        while channel._frames_left and channel.is_open and not transport.is_closed:
            await asyncio.sleep(0)

    def _connect(self, number: int) -> tuple[Channel, Transport]:
        channel, transport = Channel(self.channels, self._dispatcher), Transport(40_000 + number)
        channel.connection_made(transport)
        self._connections[number] = channel, transport
        return channel, transport

    def end_turn(self) -> dict[int, bytes]:
        """End the turn; return what each connection got in it. Closed connections are replaced at their next use."""
        self.services.turn.run()
        got = {}
        for number, (channel, transport) in tuple(self._connections.items()):
            if transport.written:
                got[number] = bytes(transport.written)
                transport.written.clear()
            if transport.is_closed:
                channel.connection_lost(None)
                del self._connections[number]
        return got

    def state(self) -> list[Any]:
        """Return the ends of log and queues, the progress of groups, and the figures of sends and pulls."""
        services, tail = self.services, self.services.store.commit_log.tail
        totals = [(total.nums, total.size, total.times) for total in (services.stats.put_total, services.stats.get_total)]
        return [tail.end_offset, tail.queue_offsets, services.offsets.encode(), totals]

    def counts(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Return number, bytes and times of the stored messages by queue."""
        puts = self.path.services.stats.puts
        return {key: (counter.nums, counter.size, counter.times) for key, counter in puts.items()}

    def files(self) -> dict[str, bytes]:
        """Return the contents of the log, the queues and the index by path."""
        disk, found = self.path.disk, {}

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


class Twins:
    """Both sides; each step is taken by both, and compared."""

    def __init__(self, topics: list[TopicConfig] | None = None, **store: Any) -> None:
        topics = topics or [TopicConfig("Narrow", 1, 1), TopicConfig("Multi", 4, 4, topic_filter_type="MULTI_TAG")]
        self.twin, self.laned = (Side(with_lane=lane, topics=topics, **store) for lane in (False, True))
        self._seeds = random.Random(7)

    async def receive(self, number: int, data: bytes) -> None:
        """Let both sides receive bytes over a connection."""
        seed = self._seeds.random()
        for side in (self.twin, self.laned):
            random.seed(seed)  # a send to any queue chooses one by chance
            await side.receive(number, data)

    def end_turn(self) -> None:
        """End the turn of both sides, and compare what they answered and where log and queues end."""
        answers, laned = self.twin.end_turn(), self.laned.end_turn()
        assert laned == answers
        assert self.laned.state() == self.twin.state()

    def advance(self, ms: int) -> None:
        for side in (self.twin, self.laned):
            side.path.clock.set_ms(side.path.clock.message_time_ms() + ms)

    def compare_files(self) -> None:
        """Compare log, queues and index byte for byte, and what was counted by queue."""
        assert self.laned.counts() == self.twin.counts()
        files, laned = self.twin.files(), self.laned.files()
        assert laned.keys() == files.keys()
        for path, data in files.items():
            assert laned[path] == data, f"{path} differs"

    def close(self) -> None:
        self.twin.close()
        self.laned.close()
