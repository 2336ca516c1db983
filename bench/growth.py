"""Memory of a broker while its store grows and is read from the start: `python -m bench.growth [--gib 50]`.

Messages are sent (bench/loadgen) until the log has the given size, then every queue is pulled from its first message to its
last. Twice a second the broker's memory is sampled: anonymous memory, and resident memory, which includes mapped pages of
the store. FOLDER needs room for the store, which is removed afterwards.
"""

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rich.progress import BarColumn, Progress, TimeElapsedColumn
from rich.table import Table

from bench import wire
from bench.run import QUEUES, TOPIC, Bench, console, prepared
from bench.servers import Running
from bench.store import resident_mb
from pocketmq.cli import processes
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.remoting.bodies import MessageQueue

SAMPLED_EVERY_S = 0.5
SEND_SECONDS = 10.0
DISK_RATIOS = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
"""Thresholds of retention by disk usage, set so high that it does not interfere on a shared disk."""


class Memory:
    """The maximum memory of a process in MB since the last `take`: (anonymous, resident)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = (0.0, 0.0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLED_EVERY_S):
            own, resident = resident_mb(self._pid)
            self._most = max(self._most[0], own), max(self._most[1], resident)

    def take(self) -> tuple[float, float]:
        most, self._most = self._most, (0.0, 0.0)
        return most


def log_gib(folder: Path) -> float:
    """Return the disk usage of the log in GiB."""
    return sum(path.stat().st_blocks * 512 for path in (folder / "store" / "commitlog").glob("*")) / (1 << 30)


def grow(bench: Bench, broker: Running, folder: Path, gib: float, body_size: int) -> Iterator[float]:
    """Send until the log has the given size; yield its size in GiB from time to time."""
    while (now := log_gib(folder)) < gib:
        yield now
        bench.run(broker, "-size", str(body_size), "-conns", "4", "-window", "4", seconds=SEND_SECONDS)


async def pulled(consumer: PullConsumer, queue: MessageQueue) -> tuple[int, int]:
    """Pull a queue from its first message to its last; return (messages, bytes of bodies)."""
    queue_offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
    count = size = 0
    while queue_offset < end:
        result = await consumer.pull(queue, queue_offset)
        count, size = count + len(result.messages), size + sum(len(message.body) for message in result.messages)
        queue_offset = result.next_begin_offset
    return count, size


async def pull_all(namesrv: str, step: Progress) -> tuple[int, int]:
    async with PullConsumer(namesrv, "growth") as consumer:
        queues = await consumer.queues(TOPIC)
        found = [await pulled(consumer, queue) for queue in step.track(queues, description="read")]
    return sum(count for count, _ in found), sum(size for _, size in found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder with enough room (the folder for temporary files)")
    parser.add_argument("--gib", type=float, default=50, help="size of the log (50)")
    parser.add_argument("--body-size", type=int, default=128 << 10, help="bytes per body (131072)")
    options = parser.parse_args()
    table = Table(title=f"{options.gib:g} GiB of log, bodies of {options.body_size:,} B")
    for column in ("", "seconds", "own MB", "resident MB"):
        table.add_column(column, justify="right" if column else "left")
    with prepared(SEND_SECONDS, 0, options.folder) as bench:
        folder = bench.scratch
        namesrv = processes.start_namesrv(folder)
        server = processes.start_broker(folder, namesrv.address, dict.fromkeys(DISK_RATIOS, "99"))
        broker = Running("PocketMQ", server.address, server.process.pid, server.boot_seconds, server.stop)
        wire.create_topic(broker.address, TOPIC, QUEUES)
        step = Progress("{task.description}", BarColumn(), TimeElapsedColumn(), console=console)
        try:
            with Memory(broker.pid) as memory, step:
                began, row = time.monotonic(), step.add_task("send", total=options.gib)
                for now in grow(bench, broker, folder, options.gib, options.body_size):
                    step.update(row, completed=now)
                    table.add_row(f"grown to {now:.1f} GiB", f"{time.monotonic() - began:.0f}", *map(_mb, memory.take()))
                memory.take()
                began = time.monotonic()
                count, size = asyncio.run(pull_all(namesrv.address, step))
                table.add_row(
                    f"{count:,} messages, {size / (1 << 30):.1f} GiB of bodies, read from the start",
                    f"{time.monotonic() - began:.0f}",
                    *map(_mb, memory.take()),
                )
        finally:
            server.stop()
            namesrv.stop()
            console.print(table)
        os.sync()


def _mb(value: float) -> str:
    return f"{value:,.0f}"


if __name__ == "__main__":
    main()
