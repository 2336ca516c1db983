"""The healthy load: a producer, a long-polling consumer, and small requests to both servers.

    python -m bench.hostile.neighbour --namesrv ADDR --broker ADDR --out FILE

Sends messages of 1 KiB at a steady rate, and a few to a second topic; a push consumer with its own connection receives them.
Every 20 ms both servers get a small request, and ten times a second a pull of a quiet queue is held for 300 ms: the delay of
its answer beyond that is measured. With `--grpc` a gRPC producer sends a message every 20 ms, too. It prints `ready` when
messages arrive, runs until SIGTERM, and then writes FILE: kind and time of each request (the machine's monotonic clock), and
duration until the answer. A message that never arrived counts with the time from its send to the end.
"""

import argparse
import asyncio
import gc
import itertools
import json
import signal
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.grpc.client import GrpcClient
from bench.hostile.peer import NEIGHBOUR_TOPIC, RARE_TOPIC
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.producer import Producer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.offset import QueueRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader

QUEUES = 4
RARE_SECONDS = 0.2
HOLD_SECONDS, HOLD_EVERY_SECONDS = 0.3, 0.1
HOLD_SLACK_SECONDS = 0.1
"""Brokers check the deadlines of held requests no more often than this."""
QUIET_TOPIC = "NeighbourQuiet"
GRPC_TOPIC = "NeighbourGrpc"
KINDS = ("send", "receive", "hold", "broker", "namesrv", "own", "grpc")
PROBE_SECONDS = 0.02
LAST_WAIT_SECONDS = 3.0
TIMEOUT_SECONDS = 10.0
IN_FLIGHT_MAX = 3_000
_STAMP = struct.Struct(">Id")


class Neighbour:
    """The healthy load, with the latencies and failures of its requests."""

    def __init__(self, namesrv: str, broker: str, size: int) -> None:
        self.namesrv, self.broker = namesrv, broker
        self._numbers = itertools.count(1)
        self._padding = bytes(max(0, size - _STAMP.size))
        self.samples: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        self.failures: list[tuple[float, str]] = []
        self._due: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_on = True
        self.has_received = asyncio.Event()

    def receive(self, message: MessageExt) -> None:
        """Record the latency of a received message."""
        number, began = _STAMP.unpack_from(message.body)
        if self._due.pop(number, None) is not None:  # otherwise it is a duplicate
            self.samples["receive"].append((began, time.monotonic() - began))
            self.has_received.set()

    async def produce(self, producer: Producer, topic: str, every_s: float) -> None:
        """Send at the rate, whether or not earlier messages are answered."""

        async def send(number: int) -> None:
            began = time.monotonic()
            self._due[number] = began
            body = _STAMP.pack(number, began) + self._padding
            await producer.send(Message(topic, body), timeout_s=TIMEOUT_SECONDS)

        while self.is_on:
            number = next(self._numbers)
            self._start("send", lambda number=number: send(number))  # type: ignore[misc]
            await self._until(every_s)

    async def probe(self, kind: str, ask: Callable[[], Awaitable[None]], every_s: float = PROBE_SECONDS) -> None:
        """Send requests at a rate, whether or not earlier ones are answered."""
        while self.is_on:
            self._start(kind, ask)
            await self._until(every_s)

    def lost(self) -> None:
        """Count messages that have not arrived, from their send until now."""
        now = time.monotonic()
        for began in self._due.values():
            self.samples["receive"].append((began, now - began))
            self.failures.append((began, "a message was not received"))

    async def last(self) -> None:
        """Stop sending, wait a short time for requests in flight, and cancel the remaining ones."""
        self.is_on = False
        end = time.monotonic() + LAST_WAIT_SECONDS
        while (self._due or self._tasks) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for task in self._tasks:
            task.cancel()

    async def _until(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        await asyncio.sleep(seconds)
        self.samples["own"].append((due, time.monotonic() - due))

    def _start(self, kind: str, ask: Callable[[], Awaitable[None]]) -> None:
        if len(self._tasks) < IN_FLIGHT_MAX:
            task = asyncio.create_task(self._timed(kind, ask))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.failures.append((time.monotonic(), f"{kind}: {IN_FLIGHT_MAX} are under way already"))

    async def _timed(self, kind: str, ask: Callable[[], Awaitable[None]]) -> None:
        began = time.monotonic()
        try:
            await ask()
        except asyncio.CancelledError:
            self.failures.append((began, f"{kind}: no answer until the end"))
            raise
        except Exception as failure:
            self.failures.append((began, f"{kind}: {type(failure).__name__}: {failure}"[:300]))
        finally:
            seconds = time.monotonic() - began
            self.samples[kind].append(
                (began, max(0.0, seconds - HOLD_SECONDS - HOLD_SLACK_SECONDS) if kind == "hold" else seconds)
            )


async def _run(options: argparse.Namespace) -> None:
    neighbour = Neighbour(options.namesrv, options.broker, options.size)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    consumer = PushConsumer(options.namesrv, "NeighbourGroup", "first")
    consumer.subscribe(NEIGHBOUR_TOPIC, neighbour.receive)
    consumer.subscribe(RARE_TOPIC, neighbour.receive)
    async with Producer(options.namesrv, "NeighbourProducer") as producer:
        await producer.create_topic(NEIGHBOUR_TOPIC, QUEUES)
        await producer.create_topic(RARE_TOPIC, 1)
        await producer.create_topic(QUIET_TOPIC, 1)
        remoting = producer.instance.remoting

        async def ask_broker() -> None:
            header = QueueRequestHeader(NEIGHBOUR_TOPIC, 0)
            await remoting.call(options.broker, RequestCode.GET_MAX_OFFSET, header, timeout_s=TIMEOUT_SECONDS)

        async def ask_held() -> None:
            header = PullMessageRequestHeader(
                "NeighbourGroup", QUIET_TOPIC, 0, 0, 32, 2 | 4, 0, round(HOLD_SECONDS * 1000), 0, "*", "TAG"
            )
            await remoting.invoke(options.broker, RequestCode.PULL_MESSAGE, header, timeout_s=TIMEOUT_SECONDS)

        async def ask_namesrv() -> None:
            header = GetRouteInfoRequestHeader(NEIGHBOUR_TOPIC)
            answer = await remoting.call(
                options.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=TIMEOUT_SECONDS
            )
            if options.broker.encode() not in answer.body:
                raise LookupError(f"the route does not name {options.broker}")

        async with consumer:
            work = [
                asyncio.create_task(neighbour.produce(producer, NEIGHBOUR_TOPIC, 1 / options.rate)),
                asyncio.create_task(neighbour.produce(producer, RARE_TOPIC, RARE_SECONDS)),
                asyncio.create_task(neighbour.probe("broker", ask_broker)),
                asyncio.create_task(neighbour.probe("namesrv", ask_namesrv)),
                asyncio.create_task(neighbour.probe("hold", ask_held, HOLD_EVERY_SECONDS)),
            ]
            if options.grpc:
                await producer.create_topic(GRPC_TOPIC, 1)
                grpc_client = GrpcClient(options.grpc, "neighbour", GRPC_TOPIC, None)
                await grpc_client.start()
                work.append(asyncio.create_task(neighbour.probe("grpc", grpc_client.send)))
            await neighbour.has_received.wait()
            gc.collect()
            gc.freeze()
            print("ready", flush=True)
            await ended.wait()
            await neighbour.last()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            neighbour.lost()
            seen: dict[str, Any] = {"samples": neighbour.samples, "failures": neighbour.failures}
            options.out.write_text(json.dumps(seen))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile.neighbour", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--grpc", default="", help="address of the gRPC port, if it is attacked")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second (200)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (1024)")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
