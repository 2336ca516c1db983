"""A broker's data path without sockets: real parts on a memory disk, clocks set by tests, connections that keep frames."""

import asyncio
import itertools
from typing import Any

from pocketmq.broker import wiring
from pocketmq.broker.handlers import ROUTES
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode_header, encode_request
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.frame import Frame, FrameBuffer
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from pocketmq.remoting.hosts import pack_host
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.record import Record, bounds, decode_record
from tests.broker import built
from tests.patience import PATIENCE_S

STORE_HOST = pack_host("127.0.0.1", built.PORT)
TOPIC = "T"


class SteppedClock(VirtualClock):
    """A virtual clock whose monotonic time is also set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class AtOnce:
    """Test double of the event loop: calls from the flush thread run at once."""

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> None:
        callback(*args)


class StubChannel:
    """Test double of a connection. Keeps the sent frames in `out`; `take()` decodes them."""

    def __init__(self, port: int = 40000) -> None:
        self.remote_address = f"127.0.0.1:{port}"
        self.host_bytes = pack_host("127.0.0.1", port)
        self.attachments: dict[str, Any] = {}
        self.out: list[Any] = []
        self.is_open = self.is_writable = True
        self.is_suspended = False
        self.is_closed_by_peer = True
        self.deferred_count = 0
        self.throttle_s = 0.0
        self._callbacks: list[Any] = []
        self._frames = FrameBuffer()

    def respond(self, response: Any, opaque: int, serialize_type: int) -> None:
        if self.is_open:
            response.encode_into(self.out, opaque, serialize_type)

    def deferred_added(self) -> None:
        self.deferred_count += 1

    def deferred_removed(self) -> None:
        self.deferred_count -= 1

    def invoke_oneway(self, code: int, header: Any = None, body: Any = b"") -> None:
        self.out += encode_request(code, header, body, 0, oneway=True)

    def suspend_reading(self, seconds: float) -> None:
        self.is_suspended = True

    def throttle(self, seconds: float) -> None:
        self.throttle_s += seconds

    def pause_requests(self, is_paused: bool) -> None:
        self.is_suspended = is_paused

    def abort(self) -> None:
        self.close()

    def on_close(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            for callback in self._callbacks:
                callback(self)

    def take(self) -> list[RemotingCommand]:
        """Return the frames since the last call, in order."""
        data = b"".join(map(bytes, self.out))
        self.out.clear()
        commands = []
        for serialize_type, header, body in self._frames.feed(data):
            command = decode_header(serialize_type, header)
            command.body = body
            commands.append(command)
        return commands


class DataPath:
    """The parts of a broker. Tests end a turn by `turn()`; only timers run by themselves."""

    def __init__(
        self,
        broker: dict[str, Any] | None = None,
        disk: MemoryDisk | None = None,
        clock: SteppedClock | None = None,
        **store: Any,
    ) -> None:
        self.clock = clock = clock or SteppedClock()
        self.disk = disk = disk or MemoryDisk()
        # A turn here lasts as long as a test wants, so no send may be refused because it waited in the turn.
        broker = {"broker_fast_failure_enable": False} | (broker or {})
        settings = {"mapped_file_size_commit_log": 32 << 20, "max_hash_slot_num": 1000, "max_index_num": 5000} | store
        self.services = built.build(disk, clock, settings, broker)
        self.store = self.services.store
        self.services.topics.update(TopicConfig(TOPIC, 4, 4))
        wiring.recover(self.services)
        wiring.start(self.services)
        self._dispatcher = Dispatcher(self.services, ROUTES)
        self._opaque = itertools.count(1)
        self.channel = StubChannel()

    def turn(self) -> None:
        """End a loop turn: dispatch, flush, wake."""
        self.services.turn.run()

    def serve(self, frame: Frame, channel: StubChannel) -> None:
        self._dispatcher.serve(channel, frame, channel.out)

    def ask(self, code: int, header: Any = None, body: bytes = b"", channel: StubChannel | None = None, **how: Any) -> None:
        """Send a request; its answer goes to the channel."""
        channel = channel or self.channel
        data = b"".join(encode_request(code, header, body, next(self._opaque), **how))
        for frame in FrameBuffer().feed(data):
            self.serve(frame, channel)

    def call(self, code: int, header: Any = None, body: bytes = b"", channel: StubChannel | None = None) -> RemotingCommand:
        """Send a request that is answered at once, or when its work in slices has ended; end the turn and return the answer.
        Other frames are dropped."""
        channel = channel or self.channel
        channel.take()
        self.ask(code, header, body, channel)
        while not channel.out and not (slices := self.services.slices).is_idle:
            slices._pause_end_s = float("-inf")
            slices._go_on()
        answers = [command for command in channel.take() if command.is_response]
        self.turn()
        assert len(answers) == 1, f"code {code} got {len(answers)} answers at once"
        return answers[0]

    def send(self, properties: str | None = None, body: bytes = b"hello", **fields: Any) -> RemotingCommand:
        return self.call(RequestCode.SEND_MESSAGE_V2, send_header(properties, **fields), body)

    def pull(self, queue_offset: int = 0, **fields: Any) -> RemotingCommand:
        return self.call(RequestCode.PULL_MESSAGE, pull_header(queue_offset, **fields))

    def stored(self, topic: str = TOPIC, queue_id: int = 0, queue_offset: int = 0) -> list[Record]:
        """Return the records of a queue."""
        result = self.store.reader.get_message(topic, queue_id, queue_offset, 32)
        return records(b"".join(map(bytes, result.views)))


def records(body: bytes) -> list[Record]:
    """Return the records in the body of an answer."""
    view, position, found = memoryview(body), 0, []
    while position < len(view):
        found.append(decode_record(view, position))
        position += bounds(view, position)[0]
    return found


def send_header(properties: str | None = None, long: bool = False, **fields: Any) -> SendMessageRequestHeader:
    settings = {
        "producer_group": "pg",
        "topic": TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_600_000_000_000,
        "flag": 0,
        "properties": properties,
    } | fields
    return (SendMessageRequestHeader if long else SendMessageRequestHeaderV2)(**settings)


def pull_header(queue_offset: int = 0, **fields: Any) -> PullMessageRequestHeader:
    settings = {
        "consumer_group": "cg",
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
        "expression_type": "TAG",
    } | fields
    return PullMessageRequestHeader(**settings)


async def until(condition: Any, deadline_s: float = PATIENCE_S) -> None:
    """Run loop turns until a condition holds; fail after a deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end, f"the condition does not hold after {deadline_s} s"
        await asyncio.sleep(0.001)
