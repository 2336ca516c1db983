"""Target: whole requests to a broker, in which the held pull of another client must still be answered."""

import asyncio
import contextlib
import gc
import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pocketmq.broker.handlers import ROUTES
from pocketmq.remoting.bodies import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import decode_header
from pocketmq.remoting.frame import FrameBuffer, FrameError
from tests.broker.any_requests import AnyRequests
from tests.broker.data_path import DataPath, StubChannel, pull_header, send_header
from tests.fuzz.fuzz_mutators import Frame, grow_frames, join_frames, mutate_frames, split_frames
from tests.fuzz.fuzz_oracle import Target, Wrong
from tests.fuzz.fuzz_targets.bodies import DECLARED, sample_of
from tests.fuzz.fuzz_targets.wire import declared_frames, recorded_frames

VICTIM = "victim_7Qz"
REMARK_MAX, LOG_LINE_MAX = 1000, 2000
INPUTS_PER_BROKER = 500
FRAMES_MAX = 20
EXPIRY_EVERY = 250
SMALL = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 500,
}
CHANGES_ALL = frozenset((RequestCode.UPDATE_BROKER_CONFIG, RequestCode.ADVANCE_CLOCK))
"""Requests that may legitimately affect other clients; after one, the next input gets a new broker."""


_CHANGES_ALL = re.compile(rb'"code"\s*:\s*"?(%s)\b' % b"|".join(b"%d" % code for code in CHANGES_ALL))

_CODES_THAT_CHANGE = {(code & 0xFFFF).to_bytes(2, "big") for code in CHANGES_ALL}


class PeerChannel(StubChannel):
    """Stub connection that also accepts requests from the broker."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.remote_host, self.remote_port = "127.0.0.1", port
        self.last_active = 0.0

    def response_received(self, command: Any) -> None:
        """Ignore the response: this side has sent no request."""

    def invoke(self, code: int, header: Any = None, body: Any = b"", timeout_s: float = 1.0) -> "asyncio.Future[Any]":
        self.invoke_oneway(code, header, body)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(
            lambda: future.done() or future.set_exception(ConnectionError("the peer is silent"))
        )
        return future


class LogWatch(logging.Handler):
    """Log handler that keeps forbidden lines: unexpected exceptions, and lines whose length a peer determines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.problem: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            if not isinstance(record.exc_info[1], ConnectionError):
                self.problem = record.exc_info[1]
            return
        text = record.getMessage()
        if len(text) > LOG_LINE_MAX and self.problem is None:
            self.problem = Wrong(f"a line of {len(text)} characters is logged: {text[:80]}")

    def take(self) -> None:
        """Raise the problem that was kept, if any."""
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem


def watch_log() -> LogWatch:
    """Make a LogWatch the only handler of the root logger."""
    handler, root = LogWatch(), logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return handler


def too_long_remarks(out: list[Any]) -> Iterator[str]:
    """Yield descriptions of the answers in `out` with a too long remark."""
    for kind, header, _ in FrameBuffer().feed(b"".join(map(bytes, out))):
        remark = decode_header(kind, header).remark or ""
        if len(remark) > REMARK_MAX:
            yield f"a remark of {len(remark)} characters: {remark[:80]}"


class Neighbours:
    """A broker with a hostile client and another client whose pull is held."""

    def __init__(self, log: LogWatch) -> None:
        self.log = log
        self.path = DataPath({"enable_property_filter": True}, **SMALL)
        self.path.services.topics.update(TopicConfig(VICTIM, 1, 1))
        self.victim, self.producer = PeerChannel(41000), PeerChannel(41001)
        self.ports = itertools.count(42000)
        self.hostile = PeerChannel(next(self.ports))
        self.offset, self.inputs = 0, 0
        self.hold()
        log.problem = None

    def hold(self, timeout_ms: int = 30_000) -> None:
        header = pull_header(self.offset, topic=VICTIM, suspend_timeout_millis=timeout_ms, sys_flag=6)
        self.path.ask(RequestCode.PULL_MESSAGE, header, channel=self.victim)
        if self.victim.out:
            raise Wrong(f"the other client's pull is not held: {self.victim.take()}")

    async def attacked(self, data: bytes) -> bool:
        """Serve `data`; return whether the other client must still be served."""
        self.inputs += 1
        hostile, path = self.hostile, self.path
        changes_all = False
        try:
            for frame in FrameBuffer().feed(data)[:FRAMES_MAX]:
                changes_all |= (
                    _CHANGES_ALL.search(frame[1]) is not None or frame[0] == 1 and frame[1][:2] in _CODES_THAT_CHANGE
                )
                path.serve(frame, hostile)
        except FrameError:
            hostile.close()
        path.turn()
        await asyncio.sleep(0)
        out, hostile.out = hostile.out, []
        problem = next(too_long_remarks(out), None)
        path.clock.seconds += 0.05
        if not hostile.is_open or self.inputs % 16 == 0:
            hostile.close()
            self.hostile = PeerChannel(next(self.ports))
        self.log.take()
        if problem:
            raise Wrong(problem)
        return not changes_all

    async def victim_is_served(self) -> None:
        """Check that the held pull is answered: with a message that is sent, or sometimes by its timeout."""
        path = self.path
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic=VICTIM), b"for the other one", channel=self.producer)
        path.turn()
        (sent,) = self.producer.take() or (None,)
        if sent is None or sent.code != ResponseCode.SUCCESS:
            raise Wrong(f"the other client's send fails: {sent and (sent.code, sent.remark)}")
        answers = self.victim.take()
        if [(one.code, b"for the other one" in one.body) for one in answers] != [(ResponseCode.SUCCESS, True)]:
            raise Wrong(
                f"the other client's held pull got {[(one.code, one.remark) for one in answers]} when a message came"
            )
        self.offset += 1
        if self.inputs % EXPIRY_EVERY == 0:
            self.hold(20)
            path.clock.seconds += 0.05
            for _ in range(400):
                if self.victim.out:
                    break
                await asyncio.sleep(0.005)
                path.clock.seconds += 0.005
            if [one.code for one in self.victim.take()] != [ResponseCode.PULL_NOT_FOUND]:
                raise Wrong("the other client's held pull is not answered when its time is over")
        self.hold()
        self.log.take()

    def close(self) -> None:
        # A held request refers to its connection, and the garbage collector does not track it.
        for channel in (self.victim, self.producer, self.hostile):
            channel.close()
        services = self.path.services
        services.transactions.check.work.stop()
        services.delays.stop()
        self.path.store.shutdown()
        # References from the loop's timers must not keep the files in memory.
        self.path.disk._files.clear()
        services.pops.polling.stop()
        services.pops.notifications.stop()
        services.holds.stop()
        vars(self.path).clear()


class Attack:
    """Sends inputs to one broker after another; each has its own event loop, so that its timers end with it."""

    def __init__(self) -> None:
        self.log = watch_log()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pair: Neighbours | None = None

    def __call__(self, data: bytes) -> None:
        if self.pair is None or self.pair.inputs >= INPUTS_PER_BROKER:
            self._begin()
        assert self.loop is not None
        try:
            self.loop.run_until_complete(self._one(data))
        except BaseException:
            self._end()
            raise

    def _begin(self) -> None:
        self._end()
        self.loop = asyncio.new_event_loop()
        self.pair = self.loop.run_until_complete(self._made())

    async def _made(self) -> Neighbours:
        return Neighbours(self.log)

    def _end(self) -> None:
        if self.loop is not None:
            with contextlib.suppress(Exception):
                if self.pair is not None:
                    self.pair.close()
            self.loop.close()
            self.log.problem = None
        self.loop = self.pair = None
        gc.collect()

    async def _one(self, data: bytes) -> None:
        assert self.pair is not None
        if await self.pair.attacked(data):
            await self.pair.victim_is_served()
        else:
            self.pair.inputs = INPUTS_PER_BROKER


def _seeds() -> list[bytes]:
    seeds = [frame for frames in recorded_frames().values() for frame in frames if split_frames(frame)[0][0] == 0]
    seeds += declared_frames(ROUTES)  # type: ignore[arg-type]
    seeds += _with_bodies()
    seeds += _attacks()
    for seed in range(3):
        drawn: list[Frame] = [frame for _, (_, frame) in zip(range(60), AnyRequests(seed), strict=False)]
        seeds += [join_frames(drawn[at : at + 4]) for at in range(0, len(drawn), 4)]
    return [seed for seed in seeds if len(seed) <= 4_000]


def _attacks() -> list[bytes]:
    """Return inputs that once harmed other clients."""
    pull = {"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6",
    "commitOffset": "0",
            "suspendTimeoutMillis": "20", "subVersion": "0", "subscription": "*", "expressionType": "TAG"}  # fmt: skip
    send = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}

    def frame(code: int, ext: dict[str, str], body: bytes = b"", **more: Any) -> Frame:
        header = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401, **more}
        return 0, msgspec.json.encode(header), body

    attacks = [[frame(11, pull, **more), frame(310, send, b"x")] for more in (
        {"~type": 300}, {"~type": -1}, {"~channel": 1}, {"~body": "YQ=="}, {"~raw": "YQ=="}, {"opaque": 2**31},
        {"opaque": 2**63}, {"opaque": -(2**40)},
    )]  # fmt: skip
    attacks += [[(0, frame(code, {})[1][:-1] + b',"code":10}', b"{}")] for code in (310, 34, 309)]
    attacks += [
        [frame(code, {}, body)]
        for code in (34, 41, 46, 200051)
        for body in (b'{"' + b'\\"' * 900, b"[" * 2000, b"{0:" * 600)
    ]
    attacks += [[frame(310, send | {"i": "K\1" + "x" * 3000}, b"x")], [frame(11, pull | {"subscription": "x" * 2500})]]
    attacks += [[frame(11, pull | {"expressionType": "SQL92", "subscription": "a=" + "-" * 2000})]]
    return [join_frames(frames) for frames in attacks]


def _with_bodies() -> Iterator[bytes]:
    """Yield a request of each code with a JSON body, for each body class."""
    codes = (34, 41, 42, 46, 200051, 40, 45, 52, 215, 217, 220, 221, 222, 307, 208, 206, 400, 401, 402)
    samples = [msgspec.json.encode(sample_of(declared)) for declared in DECLARED]
    frames = [
        frame
        for frame in declared_frames(ROUTES)
        if split_frames(frame)[0][1].startswith(tuple(b'{"code":%d,' % c for c in codes))
    ]  # type: ignore[arg-type]
    for frame in frames:
        ((kind, header, _),) = split_frames(frame)
        for body in samples[::6]:
            yield join_frames([(kind, header, body)])


TARGETS = (
    Target(
        "broker_requests", Attack, _seeds, (), mutate_frames, grow_frames, (4_096, 16_384), ns_per_byte=20_000, base_ms=100,
        size_max=4_096, weight=1.0, inputs_per_process=15_000,
    ),
)  # fmt: skip
