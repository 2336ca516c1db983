"""Cost of gRPC clients: PocketMQ's broker with `grpcServerPort`, compared with Apache's proxy and broker 5.5.0.

    python -m bench.grpc [--only send|receive|memory] [--rounds 2]

The load is bench/grpc/load.py, a process whose CPU does not count: clients with a connection and a telemetry stream each,
which send messages of 300 B, or receive some at a time and acknowledge each by a call of its own, as official clients do.
CPU is that of all processes that serve the client: one for PocketMQ, proxy and broker for Apache. Each round has servers
of its own for each part, one side at a time. A load is measured once two successive seconds take almost the same CPU per
message, or after the longest warm-up. The generator, in Python, limits throughput; latencies contain its own time.
"""

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import wire
from bench.apache import ApacheError
from bench.grpc.sides import SIDES, Serving, Side, cpu_seconds
from bench.run import anonymous_mb, joined
from bench.warm_up import WarmUp, described
from pocketmq.cli import child_process
from pocketmq.cli.processes import NotReady

TOPIC, HELD_TOPIC, QUEUES = "Bench", "Held", 8
IDLE_SECONDS = 3.0
SETTLE_SECONDS = 12.0
"""Time after which a JVM that has started is idle."""
GENERATOR_SECONDS_MAX = 120.0
console = Console(width=max(170, Console().width))
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """A row of the table. `batch`: messages that a receive asks for; 0: sends."""

    name: str
    clients: int
    batch: int = 0


LOADS = {
    "send": [Load("send, 1 client", 1), Load("send, 64 clients", 64)],
    "receive": [
        Load("receive 1, ack it, 1 client", 1, 1),
        Load("receive 32, ack each, 1 client", 1, 32),
        Load("receive 1, ack it, 64 clients", 64, 1),
        Load("receive 32, ack each, 64 clients", 64, 32),
    ],
}
FIGURES = {"CPU us/msg": ",.0f", "msg/s": ",.0f"} | {
    f"{kind} {name}": ",.1f" for kind in ("send", "receive", "ack") for name in ("p50 ms", "p99 ms")
}
FIGURES["CPU, % of a core"] = ",.1f"


@dataclass
class Bench:
    """Runs loads on started servers. `figures`: by side, row and figure, one of each round."""

    options: argparse.Namespace
    scratch: Path
    figures: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, side: Side, part: str, tell: Tell) -> None:
        """Start a side, and run the loads of a part. Raises RuntimeError, NotReady or ApacheError."""
        tell("starting")
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            serving = side.start(Path(folder))
            try:
                for topic in (TOPIC, HELD_TOPIC):
                    wire.create_topic(serving.broker, topic, QUEUES)
                if part == "memory":
                    self._memory(side, serving, tell)
                for load in LOADS.get(part, ()):
                    self._load(side, serving, load, tell)
            finally:
                serving.stop()

    def _load(self, side: Side, serving: Serving, load: Load, tell: Tell) -> None:
        options = self.options
        warm_up = WarmUp(options.warm_secs, options.warm_max).times(side.warm_share)
        arguments = ["send" if not load.batch else "receive", "--topic", TOPIC, "--clients", load.clients]
        arguments += ["--batch", load.batch, "--warm-secs", warm_up.shortest_s, "--warm-max", warm_up.longest_s]
        for pid in serving.pids:
            arguments += ["--pid", pid]
        last: dict[str, Any] = {}
        with _generator(serving, self.scratch, *arguments, "--secs", options.secs) as lines:
            for last in lines:
                tell(f"{load.name}: {last.get('step') or 0:,.0f} us a message")
        console.print(f"[dim]{side.name}, {load.name}: {described(last['steps'])}[/]")
        for figure in FIGURES:
            if figure in last:
                self.figures[side.name, load.name, figure].append(last[figure])

    def _memory(self, side: Side, serving: Serving, tell: Tell) -> None:
        tell("idle")
        time.sleep(SETTLE_SECONDS)
        began = cpu_seconds(serving.pids)
        time.sleep(IDLE_SECONDS)
        used = (cpu_seconds(serving.pids) - began) / IDLE_SECONDS
        self.figures[side.name, "idle", "CPU, % of a core"].append(used * 100)
        self._note(side, serving, "idle")
        name = f"{self.options.clients:,} clients with held receives"
        tell(name)
        with _generator(serving, self.scratch, "hold", "--topic", HELD_TOPIC, "--clients", self.options.clients) as lines:
            next(lines)
            time.sleep(IDLE_SECONDS)
            self._note(side, serving, name)

    def _note(self, side: Side, serving: Serving, row: str) -> None:
        self.figures[side.name, row, "own MB"].append(sum(map(anonymous_mb, serving.pids)))

    def table(self, title: str) -> Table:
        table = Table(title=title)
        for name in ("load", *(side.name for side in SIDES), "ratio"):
            table.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
        for row, figure in dict.fromkeys(key[1:] for key in self.figures):
            columns = [self.figures[side.name, row, figure] for side in SIDES]
            ratios = [one / other for one, other in zip(*columns, strict=False)]
            median = f"{statistics.median(ratios):.2f}" if ratios else ""
            table.add_row(f"{row}: {figure}", *(joined(values, FIGURES.get(figure, ",.0f")) for values in columns), median)
        return table


@contextmanager
def _generator(serving: Serving, scratch: Path, *arguments: object) -> Iterator[Iterator[dict[str, Any]]]:
    """Start the load generator, and give what it prints; at the end it stops. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "bench.grpc.load", *map(str, arguments), "--endpoint", serving.endpoint]
    with (scratch / "load.err").open("w+") as errors:
        process = child_process.start_program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdin and process.stdout
        try:
            yield map(json.loads, process.stdout)
            process.stdin.close()
            process.wait(GENERATOR_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"bench.grpc.load {' '.join(map(str, arguments))}: {errors.read()[-600:]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.grpc", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="alternating rounds (2)")
    parser.add_argument("--only", choices=[*LOADS, "memory"], help="run one part only")
    parser.add_argument("--side", choices=["ours", "theirs"], help="start one side only")
    parser.add_argument("--secs", type=float, default=8, help="measured seconds per load (8)")
    parser.add_argument("--warm-secs", type=int, default=20, help="shortest warm-up of a load with Apache (20)")
    parser.add_argument("--warm-max", type=int, default=60, help="longest warm-up of a load with Apache (60)")
    parser.add_argument("--clients", type=int, default=1000, help="clients whose memory is measured (1000)")
    parser.add_argument("--scratch", type=Path, help="folder for the stores during the bench (the temporary folder)")
    return parser.parse_args()


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = [options.only] if options.only else [*LOADS, "memory"]
    sides: Sequence[Side] = {"ours": SIDES[:1], "theirs": SIDES[1:]}.get(options.side, SIDES)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with (
        tempfile.TemporaryDirectory(prefix="pocketmq-bench-grpc-", dir=options.scratch) as folder,
        Progress(*columns, console=console) as progress,
    ):
        bench = Bench(options, Path(folder))
        task = progress.add_task("", total=options.rounds * len(parts) * len(sides))
        try:
            for turn, part in itertools.product(range(options.rounds), parts):
                for side in sides[:: 1 if turn % 2 == 0 else -1]:
                    head = f"round {turn + 1} of {options.rounds}, {side.name}"
                    progress.console.print(f"[dim]{head}, {part} (load average before it: {os.getloadavg()[0]:.1f})[/]")
                    bench.run(side, part, lambda text, head=head: progress.update(task, description=f"{head}: {text}"))  # type: ignore[misc]
                    progress.advance(task)
        except (RuntimeError, NotReady, ApacheError) as failure:
            sys.exit(f"bench: {failure}")
        finally:
            console.print(
                bench.table(f"gRPC clients, {options.rounds} rounds, {os.cpu_count()} cores; right: medians of ratios")
            )


if __name__ == "__main__":
    main()
