"""The load generator, a process of its own: `python -m bench.grpc.load LOAD --endpoint HOST:PORT --pid PID ...`.

It prints the CPU of each second of the warm-up as a JSON line, and last the figures. Messages to receive are sent between
the measured seconds, while the consumers pause.
"""

import argparse
import asyncio
import contextlib
import json
import math
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

from bench.grpc.client import GrpcClient
from bench.grpc.sides import cpu_seconds
from bench.warm_up import WarmUp

FEEDERS, FEED_BATCH = 8, 16
FEED_MIN = 2_000
HOLD_S = 20
"""Time for which a consumer's receive is held, the most that Apache's proxy allows."""


@dataclass
class Load:
    """Clients in a loop. `batch`: messages that a receive asks for, each acknowledged by a call; 0 for sends."""

    batch: int
    clients: Sequence[GrpcClient]
    feeders: Sequence[GrpcClient] = ()
    done: int = 0
    left: int = 0
    """Messages sent and not received yet."""
    is_recording: bool = False
    durations: dict[str, list[float]] = field(default_factory=lambda: {"send": [], "receive": [], "ack": []})
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _busy: int = 0

    async def run(self, client: GrpcClient) -> None:
        """Send, or receive and acknowledge, for ever."""
        while True:
            await (self._receive(client) if self.batch else self._sent(client))

    async def _sent(self, client: GrpcClient) -> None:
        async with self._call("send"):
            await client.send()
        self.done += 1

    async def _receive(self, client: GrpcClient) -> None:
        async with self._call("receive"):
            found = await client.receive(self.batch)
        self.left -= len(found)
        for one in found:
            async with self._call("ack"):
                await client.ack(*one)
            self.done += 1

    @contextlib.asynccontextmanager
    async def _call(self, kind: str) -> AsyncIterator[None]:
        """Time a call, which begins when the clients run."""
        await self._gate.wait()
        self._busy += 1
        began = time.perf_counter()
        try:
            yield
        finally:
            self._busy -= 1
        if self.is_recording:
            self.durations[kind].append(time.perf_counter() - began)

    async def step(self, seconds: float, pids: Sequence[int]) -> tuple[float, int, float]:
        """Let the clients run; return CPU seconds of the servers, messages and seconds."""
        began, cpu, done = time.perf_counter(), cpu_seconds(pids), self.done
        self._gate.set()
        await asyncio.sleep(seconds)
        used = cpu_seconds(pids) - cpu, self.done - done, time.perf_counter() - began
        self._gate.clear()
        if self.batch:
            while self._busy:
                await asyncio.sleep(0.01)
            await self._feed(max(FEED_MIN, 4 * used[1], 4 * self.batch * len(self.clients)))
        return used

    async def _feed(self, wanted: int) -> None:
        async def feed(client: GrpcClient) -> None:
            while self.left < wanted:
                self.left += FEED_BATCH
                await client.send(FEED_BATCH)

        if self.left < wanted / 2:
            await asyncio.gather(*map(feed, self.feeders))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    group = f"Group-{options.topic}" if options.batch else None
    names = [f"{options.load}-{number}" for number in range(options.clients)]
    clients = [GrpcClient(options.endpoint, name, options.topic, group) for name in names]
    feeders = [GrpcClient(options.endpoint, f"feeder-{number}", options.topic, None) for number in range(FEEDERS)]
    load = Load(options.batch, clients, feeders)
    warm_up = WarmUp(options.warm_secs, options.warm_max)
    for client in (*clients, *(feeders if options.batch else ())):
        await client.start()
    running = [asyncio.ensure_future(load.run(client)) for client in clients]
    try:
        await load.step(0.0, options.pid)  # sends the first messages to receive
        steps: list[float] = []
        while not warm_up.is_over(steps):
            cpu_s, count, _ = await load.step(1.0, options.pid)
            steps.append(cpu_s / count * 1e6 if count else math.inf)
            print(json.dumps({"step": steps[-1] if count else None}), flush=True)
            _raise_failures(running)
        load.is_recording = True
        sums = [0.0, 0.0, 0.0]
        for _ in range(round(options.secs)):
            sums = [a + b for a, b in zip(sums, await load.step(1.0, options.pid), strict=True)]
            _raise_failures(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*(client.close() for client in (*clients, *feeders)), return_exceptions=True)
    cpu_s, count, seconds = sums
    times = {f"{kind} {name}": _ms(row, share) for kind, row in load.durations.items() if row
             for name, share in (("p50 ms", 0.5), ("p99 ms", 0.99))}  # fmt: skip
    return {"CPU us/msg": cpu_s / count * 1e6, "msg/s": count / seconds, **times, "steps": steps}


def _raise_failures(running: Sequence["asyncio.Task[None]"]) -> None:
    for task in running:
        if task.done():
            task.result()


def _ms(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[min(int(len(seconds) * share), len(seconds) - 1)] * 1000


async def _hold(options: argparse.Namespace) -> dict[str, Any]:
    """Keep clients, each with a telemetry stream and a held receive, until stdin ends."""
    clients = [GrpcClient(options.endpoint, f"held-{number}", options.topic, "Held") for number in range(options.clients)]

    async def hold(client: GrpcClient) -> None:
        while True:
            await client.receive(1, HOLD_S)

    for start in range(0, len(clients), 50):
        await asyncio.gather(*(client.start() for client in clients[start : start + 50]))
    running = [asyncio.ensure_future(hold(client)) for client in clients]
    await asyncio.sleep(3.0)
    _raise_failures(running)
    print(json.dumps({"held": len(running)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    _raise_failures(running)
    for task in running:
        task.cancel()
    await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.grpc.load", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("load", choices=["send", "receive", "hold"])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, action="append", default=[], help="a process whose CPU counts")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="messages that a receive asks for")
    parser.add_argument("--secs", type=float, default=8)
    parser.add_argument("--warm-secs", type=int, default=10)
    parser.add_argument("--warm-max", type=int, default=60)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(uvloop.run(_hold(options) if options.load == "hold" else _measure(options))), flush=True)


if __name__ == "__main__":
    main()
