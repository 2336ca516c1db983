"""Cost of a send, start time and memory as the number of topics, queues, connections or held pulls grows.

    python -m bench.many [--only topics|queues|connections|held] [--apache 5.5.0]

Each count has a fresh broker, whose topics are created by one list of topics (a request of 5.x, so that 4.9.4 cannot be the
peer). The load is bench/loadgen: sends with bodies of 1 KiB to topics at random. It is measured once almost all queues have
messages and it has settled, in parts: the brokers of all counts are loaded in turn, since the machine's speed changes within
minutes. Then each broker is stopped and started again on the same store, for the start and the memory of a broker with so
many topics.

With 10,000 topics of 8 queues, Apache's broker cannot map all queue files unless `vm.max_map_count` is raised; such a row is
empty.
"""

import argparse
import itertools
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from bench import apache, wire
from bench.plot import write_plot
from bench.run import IDLE_SECONDS, QUEUES, TOPIC, Bench, add_options, anonymous_mb, console, filesystem, joined, opened
from bench.servers import Contestant, Running, ours, theirs
from bench.warm_up import described
from pocketmq.cli import processes

PIPELINED = ("-conns", "8", "-window", "16")
HELD_TOPIC = f"{TOPIC}-held"
PARTS = 6
"""Parts of a measurement."""
FILLED = 4
"""Messages per queue before the measurement; sent at random, they reach 98 % of the queues."""


@dataclass(frozen=True)
class Growth:
    """Rows of the table: an option of loadgen with growing values, beside its other options."""

    name: str
    option: str
    counts: tuple[int, ...]
    others: tuple[str, ...] = PIPELINED

    def topics(self, count: int) -> list[str]:
        sent = [f"{TOPIC}-{number}" for number in range(count)] if self.option == "-topics" else [TOPIC]
        return [*sent, HELD_TOPIC]

    def queues(self, count: int) -> int:
        return count if self.option == "-queues" else QUEUES


GROWTHS = {
    "topics": Growth("topics of 8 queues", "-topics", (1, 1_000, 10_000)),
    "queues": Growth("queues of a topic", "-queues", (1, 8, 64)),
    "connections": Growth("connections, one in flight each", "-conns", (1, 64, 1_000, 5_000), ("-window", "1")),
    "held": Growth("held pulls", "-held", (1, 1_000, 10_000)),
}
COST = "broker_cpu_us_per_msg"
PLOTTED = ("topics", "connections")
Figures = dict[tuple[str, str, int], list[dict[str, Any]]]
"""Results by column, growth and count."""
FIGURES = {
    "CPU us/msg": (COST, ",.1f"),
    "msg/s": ("msgs_per_s", ",.0f"),
    "p99 ms": ("p99_ms", ",.1f"),
    "own MB": ("anon_mb", ",.0f"),
    "start again, s": ("start_s", ".2f"),
    "CPU s of it": ("start_cpu_s", ".2f"),
    "own MB after it": ("idle_mb", ",.0f"),
}


def fill(bench: Bench, broker: Running, arguments: Sequence[str], messages: int) -> None:
    """Send at least so many messages: the first one of a queue creates its file, which is not what is measured."""
    stored = 0
    while stored < messages:
        stored += bench.run(broker, *arguments, seconds=bench.warm_seconds)["acked"]


class Loaded:
    """A broker of its own for one count, whose queues have messages."""

    def __init__(self, bench: Bench, column: Contestant, growth: Growth, count: int) -> None:
        self._bench, self._column = bench, column
        self._folder = Path(tempfile.mkdtemp(dir=bench.scratch))
        self._broker = column.start(self._folder)
        self._arguments = (growth.option, str(count), *growth.others)
        self._parts: list[dict[str, Any]] = []
        try:
            wire.create_topics(self._broker.address, growth.topics(count), growth.queues(count))
            fill(bench, self._broker, self._arguments, FILLED * len(growth.topics(count)) * growth.queues(count))
            warm = bench.run(self._broker, *self._arguments, seconds=1, warm_up=bench.warm_up.times(column.warm_share))
        except BaseException:
            self.close()
            raise
        console.print(f"[dim]{column.name}, {growth.name}, {count:,}: {described(warm['steps'])}[/]")

    def measure_part(self) -> None:
        """Measure one part of the load."""
        self._parts.append(self._bench.run(self._broker, *self._arguments, seconds=self._bench.seconds / PARTS))

    def result(self) -> dict[str, Any]:
        """Return the figures of all parts and of another start."""
        sums = {key: sum(part[key] * part["acked"] for part in self._parts) for key in (COST, "msgs_per_s", "p99_ms")}
        acked = sum(part["acked"] for part in self._parts)
        self._broker.stop()
        self._broker = self._column.start(self._folder)
        started = {"start_s": self._broker.boot_seconds, "start_cpu_s": processes.cpu_seconds(self._broker.pid)}
        time.sleep(IDLE_SECONDS)
        means = {key: value / acked for key, value in sums.items()}
        return {**means, **started, "anon_mb": self._parts[-1]["anon_mb"], "idle_mb": anonymous_mb(self._broker.pid)}

    def close(self) -> None:
        """Stop the broker and delete its store."""
        self._broker.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def measured(bench: Bench, column: Contestant, growth: Growth, counts: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the figures by count, without those for which a broker of the peer fails."""
    loaded: dict[int, Loaded] = {}

    def do(count: int, what: Callable[[], Any]) -> Any:
        try:
            return what()
        except (RuntimeError, apache.ApacheError) as wrong:
            if column.is_ours:
                raise
            console.print(f"[yellow]{column.name}, {growth.name}, {count:,}: {wrong}[/]")
            if count in loaded:
                loaded.pop(count).close()
            return None

    try:
        for count in counts:
            if (made := do(count, partial(Loaded, bench, column, growth, count))) is not None:
                loaded[count] = made
        for part in range(PARTS):
            for count in sorted(loaded, reverse=part % 2 == 1):
                do(count, loaded[count].measure_part)
        results = {count: do(count, one.result) for count, one in tuple(loaded.items())}
        return {count: result for count, result in results.items() if result is not None}
    finally:
        for one in loaded.values():
            one.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=1, help="alternating rounds (1)")
    parser.add_argument("--only", choices=GROWTHS, help="run one part only")
    parser.add_argument("--most", type=int, help="leave out larger counts")
    parser.add_argument("--plot", type=Path, help="SVG to write with the cost over topics and connections (none)")
    parser.add_argument("--apache", metavar="VERSION", help="a peer from 5.x on, such as 5.5.0 (none)")
    add_options(parser)
    options = parser.parse_args()
    columns = [*ours(options.lane), *([theirs(options.apache)] if options.apache else [])]
    growths = [GROWTHS[options.only]] if options.only else list(GROWTHS.values())
    rows = [(growth, count) for growth in growths for count in growth.counts if count <= (options.most or count)]
    figures: Figures = defaultdict(list)
    with opened(options) as bench:
        for turn, growth in itertools.product(range(options.rounds), growths):
            counts = [count for one, count in rows if one is growth]
            for column in columns[:: 1 if turn % 2 == 0 else -1]:
                for count, result in measured(bench, column, growth, counts).items():
                    figures[column.name, growth.name, count].append(result)
        table = Table("", "broker", *FIGURES, title=f"stores on {filesystem(bench.scratch)}, {os.cpu_count()} cores")
        for (growth, count), column in itertools.product(rows, columns):
            results = figures[column.name, growth.name, count]
            shown = (joined((result[key] for result in results), digits) for key, digits in FIGURES.values())
            table.add_row(f"{growth.name}: {count:,}", column.name, *shown)
        console.print(table)
        if options.plot is not None:
            lines = {}
            for growth, column in itertools.product((GROWTHS[name] for name in PLOTTED), columns):
                if points := points_of(figures, column, growth):
                    lines[f"{growth.name}, {column.name}"] = points
            write_plot(options.plot, "CPU of a send", "topics, connections", "us", lines, is_logarithmic=True)


def points_of(figures: Figures, column: Contestant, growth: Growth) -> list[tuple[float, float]]:
    """Return (count, mean CPU us a message) of all measured counts."""
    measured_counts = [count for count in growth.counts if (column.name, growth.name, count) in figures]
    return [(count, mean(result[COST] for result in figures[column.name, growth.name, count])) for count in measured_counts]


if __name__ == "__main__":
    main()
