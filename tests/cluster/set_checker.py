"""Set checker: no acknowledged message is lost while master and slave are killed, paused, cut off and exchanged.

    python -m tests.cluster.set_checker --rounds 200 --flush ASYNC_FLUSH --seed 1

Four producers send numbered messages, each to a queue of its own, and note which were answered SEND_OK by a SYNC_MASTER; a
consumer group of two reads them. Each round hits master, slave or both at a random time: kill -9, SIGSTOP, or a network
partition; or the slave's store is started as master, and the former master rejoins as its slave. At the end the log and what
the group consumed are compared with what was acknowledged. The same seed makes the same rounds, but not the same timing.
"""

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from pocketmq import Message, MessageExt, Producer, PullConsumer, PushConsumer, RemotingError
from pocketmq.cli.cluster import Layout, Node, ProcessCluster
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.testing.networks import partitionable

TOPIC: Final = "Set"
PRODUCERS: Final = 4
PAUSE_S: Final = 0.02
"""Pause between two messages of a producer."""
SEND_TIMEOUT_S: Final = 2.0
RECOVER_MAX_S: Final = 60.0
SETTINGS: Final = {
    "slaveTimeout": "1000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "mappedFileSizeCommitLog": str(4 << 20),
    "diskMaxUsedSpaceRatio": "95",
}
ACTIONS: Final = ("kill", "pause", "partition")
TARGETS: Final = ("master", "slave", "both")
Body = tuple[int, int]
"""Number of the producer, number of its message."""


@dataclass
class Findings:
    """Results of a run. The lists `lost`, `unconsumed`, `disordered` and `differing` must be empty."""

    rounds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    unanswered: int = 0
    stored_twice: int = 0
    consumed_twice: int = 0
    gap_max_s: float = 0.0
    lost: list[Body] = field(default_factory=list)
    unconsumed: list[Body] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.unconsumed or self.disordered or self.differing)

    def text(self) -> str:
        """Return the findings as lines."""
        rounds = ", ".join(f"{count} {what}" for what, count in sorted(self.rounds.items()))
        return (
            f"rounds: {rounds}\nacknowledged {self.acknowledged}, without an answer or not SEND_OK {self.unanswered}\n"
            f"stored more than once {self.stored_twice}, consumed more than once {self.consumed_twice}, "
            f"longest time without an acknowledgement {self.gap_max_s:.1f} s\n"
            f"lost {len(self.lost)} {self.lost[:10]}, never consumed {len(self.unconsumed)} {self.unconsumed[:10]}, "
            f"out of order {len(self.disordered)} {self.disordered[:5]}, logs that differ {self.differing}"
        )


class Workload:
    """The producers and consumers of a run, and the messages that they sent and received."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self.acknowledged: set[Body] = set()
        self.unanswered: set[Body] = set()
        self.consumed: Counter[Body] = Counter()
        self.order: dict[int, list[int]] = defaultdict(list)
        """Numbers of each producer's messages in the order in which they were first consumed."""
        self.acknowledged_at = time.monotonic()
        self.gap_max_s = 0.0
        self._is_over = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._producing: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create the topic and begin."""
        async with Producer(self._namesrv, "set-checker") as producer:
            await producer.create_topic(TOPIC, PRODUCERS)
        for _ in range(2):
            consumer = PushConsumer(self._namesrv, "set-checkers", start="first")
            consumer.subscribe(TOPIC, self._consume)
            await self._stack.enter_async_context(consumer)
        self._producing = [asyncio.create_task(self._produce(number)) for number in range(PRODUCERS)]

    async def stop_producing(self) -> None:
        self._is_over.set()
        await asyncio.gather(*self._producing)

    async def close(self) -> None:
        self._is_over.set()
        for task in self._producing:
            task.cancel()
        await self._stack.aclose()

    def acknowledged_one_after(self, at: float) -> bool:
        """Return whether a message was acknowledged after the monotonic time `at`."""
        return self.acknowledged_at > at

    def _consume(self, message: MessageExt) -> None:
        body = _body(message)
        self.consumed[body] += 1
        if self.consumed[body] == 1:
            self.order[body[0]].append(body[1])

    async def _produce(self, number: int) -> None:
        async with Producer(self._namesrv, f"set-checker-{number}") as producer:
            count = 0
            while not self._is_over.is_set():
                body = (number, count)
                message = Message(TOPIC, f"{number}:{count}".encode(), keys=f"{number}-{count}")
                try:
                    result = await producer.send(message, _select(number), SEND_TIMEOUT_S)
                except (OSError, RemotingError):
                    self.unanswered.add(body)
                    await asyncio.sleep(0.1)
                    with contextlib.suppress(Exception):
                        await producer.instance.routes.refresh(TOPIC)
                else:
                    if result.status == "SEND_OK":
                        now = time.monotonic()
                        self.gap_max_s = max(self.gap_max_s, now - self.acknowledged_at)
                        self.acknowledged_at = now
                        self.acknowledged.add(body)
                    else:
                        self.unanswered.add(body)
                count += 1
                await asyncio.sleep(PAUSE_S)


def _select(number: int) -> Callable[..., MessageQueue]:
    def select(queues: list[MessageQueue]) -> MessageQueue:
        return next((queue for queue in queues if queue.queue_id == number), queues[0])

    return select


def _body(message: MessageExt) -> Body:
    number, _, count = message.body.decode().partition(":")
    return int(number), int(count)


class Checker:
    """A run with one seed."""

    def __init__(self, folder: Path, flush: str, seed: int, say: Callable[[str], None]) -> None:
        self._random = random.Random(seed)
        self._say = say
        settings = {**SETTINGS, "flushDiskType": flush}
        self._cluster = ProcessCluster(folder, Layout(1, 1, "SYNC_MASTER"), settings=settings, network=partitionable())
        self._master, self._slave = self._cluster.nodes.values()
        self.findings = Findings()

    async def run(self, rounds: int, done: Callable[[], None]) -> Findings:
        """Run `rounds` rounds, calling `done` after each. Raises TimeoutError if the pair does not recover."""
        try:
            await asyncio.to_thread(self._cluster.start)
            workload = Workload(self._cluster.namesrv_address)
            try:
                await workload.start()
                await self._recovered(workload, "the start")
                for _ in range(rounds):
                    await self._round(workload)
                    done()
                await workload.stop_producing()
                await self._check(workload)
            finally:
                await workload.close()
            await asyncio.to_thread(self._cluster.stop)
            self._compare_logs()
        finally:
            await asyncio.to_thread(self._cluster.stop)
        return self.findings

    # --- rounds -----------------------------------------------------------------------------------------------------

    async def _round(self, workload: Workload) -> None:
        rng = self._random
        what = "promote" if rng.random() < 0.15 else f"{rng.choice(ACTIONS)} {rng.choice(TARGETS)}"
        hold_s, before_s = rng.uniform(0.1, 2.5), rng.uniform(0, 1)
        is_master_first = rng.random() < 0.5
        await asyncio.sleep(before_s)  # the time of the fault is random
        self._say(f"{what} for {hold_s:.1f} s")
        self.findings.rounds[what] += 1
        if what == "promote":
            await asyncio.to_thread(self._promote)
        else:
            action, target = what.split()
            nodes = {"master": [self._master], "slave": [self._slave], "both": [self._master, self._slave]}[target]
            if not is_master_first:
                nodes.reverse()
            for node in nodes:
                await asyncio.to_thread(getattr(node, action))
            await asyncio.sleep(hold_s)  # the duration of the fault is random
            for node in nodes:
                await asyncio.to_thread(self._undo, node, action)
        await self._recovered(workload, what)

    def _undo(self, node: Node, action: str) -> None:
        if action == "kill":
            node.start(self._role(node))
        elif action == "pause":
            node.resume()
        else:
            node.heal()

    def _promote(self) -> None:
        """Kill the master, start its slave as master, and let the former master join as slave."""
        former, successor = self._master, self._slave
        former.kill()
        successor.kill() if self._random.random() < 0.5 else successor.stop()
        self._master, self._slave = successor, former
        successor.start(self._role(successor))
        command = [sys.executable, "-P", "-m", "pocketmq", "store", "rejoin", str(former.store)]
        done = subprocess.run([*command, "--master", successor.address, "--yes"], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"rejoin ended with {done.returncode}: {done.stdout}{done.stderr}")
        former.start(self._role(former))

    def _role(self, node: Node) -> dict[str, str]:
        if node is self._master:
            return {"brokerId": "0", "brokerRole": "SYNC_MASTER"}
        return {"brokerId": "1", "brokerRole": "SLAVE"}

    async def _recovered(self, workload: Workload, what: str) -> None:
        """Wait until another message is acknowledged. Raise TimeoutError if none is within RECOVER_MAX_S."""
        begin = time.monotonic()
        while not workload.acknowledged_one_after(begin):
            if time.monotonic() - begin > RECOVER_MAX_S:
                raise TimeoutError(f"no message is acknowledged {RECOVER_MAX_S:.0f} s after: {what}")
            await asyncio.sleep(0.02)

    # --- checks -----------------------------------------------------------------------------------------------------

    async def _check(self, workload: Workload) -> None:
        found, wanted = self.findings, workload.acknowledged
        found.acknowledged, found.unanswered = len(wanted), len(workload.unanswered)
        found.gap_max_s = workload.gap_max_s
        stored = await self._stored()
        found.lost = sorted(wanted - stored.keys())
        found.stored_twice = sum(len(places) - 1 for places in stored.values())
        self._check_order(wanted, stored)
        deadline = time.monotonic() + RECOVER_MAX_S
        while not wanted <= workload.consumed.keys() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        found.unconsumed = sorted(wanted - workload.consumed.keys())
        found.consumed_twice = sum(count - 1 for count in workload.consumed.values())
        for producer, numbers in workload.order.items():
            known = [number for number in numbers if (producer, number) in wanted]
            found.disordered += [
                f"{producer}:{late} was consumed after {producer}:{early}"
                for early, late in zip(known, known[1:], strict=False)
                if late < early
            ]

    async def _stored(self) -> dict[Body, list[int]]:
        """Return the queue offsets of each message in the log."""
        stored: dict[Body, list[int]] = defaultdict(list)
        async with PullConsumer(self._cluster.namesrv_address, "set-reader") as reader:
            for queue in await reader.queues(TOPIC):
                offset, end = 0, await reader.max_offset(queue)
                while offset < end:
                    result = await reader.pull(queue, offset)
                    for message in result.messages:
                        stored[_body(message)].append(message.queue_offset)
                    offset = result.next_begin_offset
        return stored

    def _check_order(self, wanted: set[Body], stored: dict[Body, list[int]]) -> None:
        for producer in range(PRODUCERS):
            numbers = sorted(number for who, number in wanted & stored.keys() if who == producer)
            offsets = [min(stored[producer, number]) for number in numbers]
            self.findings.disordered += [
                f"{producer}:{number} is stored before an earlier one"
                for number, before, after in zip(numbers[1:], offsets, offsets[1:], strict=False)
                if after <= before
            ]

    def _compare_logs(self) -> None:
        """Compare the log files that both stopped brokers have."""
        logs = [node.store / "commitlog" for node in (self._master, self._slave)]
        names = sorted({path.name for path in logs[0].iterdir()} & {path.name for path in logs[1].iterdir()})
        for name in names:
            if (logs[0] / name).read_bytes() != (logs[1] / name).read_bytes():
                self.findings.differing.append(name)


def check(
    folder: Path, rounds: int, flush: str, seed: int, say: Callable[[str], None], done: Callable[[], None]
) -> Findings:
    """Run the checker; return its findings."""
    return asyncio.run(Checker(folder, flush, seed, say).run(rounds, done))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--flush", choices=["ASYNC_FLUSH", "SYNC_FLUSH"], default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="kept folder of the stores (a temporary one, removed if all is well)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="set-checker-"))
    console = Console(stderr=True)
    with Progress(console=console) as progress:
        task = progress.add_task(f"{options.flush}, seed {options.seed}", total=options.rounds)
        findings = check(
            folder, options.rounds, options.flush, options.seed,
            lambda what: progress.update(task, description=what), lambda: progress.advance(task),
        )  # fmt: skip
    print(findings.text())
    print("ok" if findings.is_good else f"FAILED; the stores are in {folder}")
    return 0 if findings.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
