"""PocketMQ compared with Apache's broker and with the floor: CPU per message, messages a second, start time, idle memory.

The load is bench/loadgen (Go), which implements the wire protocol itself, so that the broker is measured. Rounds alternate
between the servers; only one runs at a time, each from an empty store. Each load runs until two successive seconds take
almost the same CPU per message (bench/warm_up.py), and is then measured on the same connections. The table shows every round
and the medians of the rounds' ratios. 8 queues, bodies of 1 KiB; brokers flush asynchronously, except in the table of
SYNC_FLUSH.

The floor (bench/floor.c) answers the same requests without a broker's work; it needs a C compiler, `cc`.

Sends, transactions and pulls each have their own broker; otherwise the later loads of the faster broker would be measured
with more data in the store. A virtual machine whose host reclaims free memory writes more slowly after some GB, as with any
program that fills new files.
"""

import argparse
import itertools
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import apache, floor, wire
from bench.servers import Contestant, Running, floor_in, has_lane, ours, theirs
from bench.warm_up import WarmUp, described, is_settled

HERE = Path(__file__).parent
TOPIC, QUEUES = "Bench", 8
IDLE_SECONDS = 3.0
FILL_SECONDS = 6.0
WARM_UP = WarmUp(20, 90)
CPU, RATE = "broker_cpu_us_per_msg", "msgs_per_s"
FIGURES = (("CPU us/msg", CPU, ",.2f"), ("msg/s", RATE, ",.0f"))
SQL = "TAGS = 'TagA' AND KEYS <> 'other' AND UNIQ_KEY IS NOT NULL"
"""True for every message of loadgen, so that evaluation and serving are measured."""

console = Console(width=max(260, Console().width))
"""Wide enough for all columns of three rounds: a table that does not fit loses figures."""


@dataclass(frozen=True)
class Load:
    """One row of the table: arguments of loadgen, and the targets as ratios PocketMQ / Apache."""

    name: str
    arguments: tuple[str, ...]
    cpu_ratio_max: float
    rate_ratio_min: float
    warm_ups: float = 1
    """Factor of the warm-up; transactions need more until the JVM has compiled them."""
    has_floor: bool = False


LOADS = {
    "send": [
        Load("send, pipelined (8 x 16)", ("-conns", "8", "-window", "16"), 0.50, 1.2, has_floor=True),
        Load("send, one in flight (64 x 1)", ("-conns", "64", "-window", "1"), 0.40, 1.2, has_floor=True),
    ],
    "transaction": [
        Load("transactions (8 x 16)", ("-mode", "transaction", "-conns", "8", "-window", "16"), 0.60, 1.0, warm_ups=1.5),
    ],
    "pull": [
        Load("pull of 32 (8 x 16)", ("-mode", "pull", "-conns", "8", "-window", "16"), 0.60, 1.3, has_floor=True),
        Load("SQL92 pull of 32 (8 x 16)", ("-mode", "pull", "-conns", "8", "-window", "16", "-sql", SQL), 0.60, 1.0),
        # The readers of the load above use the same expression and queues, so results are shared between them.
        Load(
            "SQL92 pull of 32, all different",
            ("-mode", "pull", "-conns", "8", "-window", "8", "-sql", SQL, "-vary", "other"),
            0.60,
            1.0,
        ),
    ],
}
# 4.9.4 does not support pop, so the peer is 5.5.0. Each message is acknowledged by itself, as the Java client does.
POP_LOADS = [Load("pop of 32, 32 acks (8 x 4)", ("-mode", "pop", "-conns", "8", "-window", "4"), 0.60, 1.0)]
POP_PEER = "5.5.0"
# With SYNC_FLUSH the disk determines the speed; each answer waits for the sync of its record.
SYNC_LOADS = [Load("SYNC_FLUSH send (64 x 1)", ("-conns", "64", "-window", "1"), 1.0, 1.0)]
BOOT_SECONDS_MAX = 0.6
IDLE_MB_MAX = 60.0


def anonymous_mb(pid: int) -> float:
    """Return RssAnon of a process: its own memory without the mapped store."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status has no RssAnon")


def build_loadgen() -> Path:
    """Compile bench/loadgen; end the program with instructions if Go is missing."""
    if shutil.which("go") is None:
        sys.exit(
            "make bench needs Go 1.24 or newer for its load generator (https://go.dev/dl), and there is no `go` on the PATH"
        )
    binary = HERE / "loadgen" / "loadgen"
    subprocess.run(["go", "build", "-o", binary.name, "."], cwd=HERE / "loadgen", check=True)
    return binary


@dataclass
class Bench:
    """Parameters of a bench, and methods to run loads."""

    loadgen: Path
    scratch: Path
    seconds: float
    warm_seconds: float
    warm_up: WarmUp = WARM_UP

    def run(
        self, broker: Running, *arguments: str, seconds: float | None = None, warm_up: WarmUp | None = None
    ) -> dict[str, Any]:
        """Run loadgen once, which warms up for 2 s, or as `warm_up` says; raises RuntimeError if messages failed."""
        command = [str(self.loadgen), "-addr", broker.address, "-pid", str(broker.pid), "-topic", TOPIC]
        command += ["-queues", str(QUEUES), "-secs", str(seconds or self.seconds), *arguments]
        with subprocess.Popen(
            command + ["-steps"] * (warm_up is not None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                steps = warmed(process, warm_up) if warm_up else []
                assert process.stdout and process.stderr
                output, errors = process.stdout.read(), process.stderr.read()
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise RuntimeError(f"loadgen against {broker.name}: {errors[-500:]}")
        if "Inf" in output or "NaN" in output:
            raise RuntimeError(f"{broker.name} served no message at all: loadgen {' '.join(arguments)} printed {output}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        if result.get("failed"):
            problem = f"{broker.name} refused {result['failed']} requests: {result['last_fail']}"
            if broker.name == "PocketMQ":
                raise RuntimeError(problem)
            console.print(f"[yellow]{problem} (they do not count as work done)[/]")
        return {**result, "steps": steps}

    def measure(self, contestant: Contestant, loads: Sequence[Load]) -> tuple[Running, float, dict[str, Any]]:
        """Run all loads on a fresh server; return it (stopped), its idle anonymous MB, and the figures by load."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        broker = contestant.start(folder)
        try:
            time.sleep(IDLE_SECONDS)
            idle_mb = anonymous_mb(broker.pid)
            wire.create_topic(broker.address, TOPIC, QUEUES)
            if loads:  # a pull needs something to pull
                self.run(broker, "-conns", "8", "-window", "16", seconds=self.warm_seconds)
            return broker, idle_mb, {load.name: self.settled(contestant, broker, load) for load in loads}
        finally:
            broker.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def settled(self, contestant: Contestant, broker: Running, load: Load) -> dict[str, Any]:
        """Run a load until it has settled, then measure it; print how long that took."""
        result = self.run(broker, *load.arguments, warm_up=self.warm_up.times(contestant.warm_share * load.warm_ups))
        color = "dim" if is_settled(result["steps"]) else "yellow"
        console.print(f"[{color}]{contestant.name}, {load.name}: {described(result['steps'])}[/]")
        return result


def warmed(loadgen: "subprocess.Popen[str]", warm_up: WarmUp) -> list[float]:
    """Read loadgen's seconds until the warm-up is over, then let it measure; return each second's CPU us per message."""
    assert loadgen.stdin and loadgen.stdout
    steps: list[float] = []
    while not warm_up.is_over(steps) and (line := loadgen.stdout.readline()):
        step = json.loads(line)
        steps.append(step["step_cpu_us"] / step["step_msgs"] if step["step_msgs"] else math.inf)
    loadgen.stdin.close()
    return steps


@contextmanager
def prepared(seconds: float, warm_seconds: float, folder: Path | None, warm_up: WarmUp = WARM_UP) -> Iterator[Bench]:
    """Build loadgen, and provide a temporary folder for stores inside `folder` (None: the default one).

    Ends the program if a broker does not start or serve. SIGTERM ends it together with the brokers.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = Path(tempfile.mkdtemp(prefix="pocketmq-bench-", dir=folder))
    try:
        yield Bench(build_loadgen(), scratch, seconds, warm_seconds, warm_up)
    except (RuntimeError, apache.ApacheError) as wrong:
        sys.exit(f"bench: {wrong}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def verdict(value: float, limit: float, at_most: bool) -> str:
    met = value <= limit if at_most else value >= limit
    sign = "<=" if at_most else ">="
    return f"[{'green' if met else 'red'}]{value:.2f} ({sign} {limit:g})[/]"


@dataclass
class Rounds:
    """Figures of all rounds, by column and load."""

    columns: Sequence[Contestant]
    figures: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    boots: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    idle: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, bench: Bench, rounds: int, parts: Sequence[Sequence[Load]]) -> None:
        """Run alternating rounds of all parts.

        The order of the servers alternates, because memory that a virtual machine has not used for long is slow at its first
        use.
        """
        for turn, part in itertools.product(range(rounds), parts):
            for column in self.columns[:: 1 if turn % 2 == 0 else -1]:
                loads = [load for load in part if load.has_floor] if column.is_floor else part
                if column.is_floor and not loads:
                    continue
                busy = os.getloadavg()[0]  # of the last minute, so in later rounds mostly caused by the bench
                console.print(
                    f"[dim]round {turn + 1} of {rounds}: {column.name} (load average before it: {busy:.1f}) ...[/]"
                )
                broker, idle_mb, result = bench.measure(column, loads)
                for load_name, measured in result.items():
                    self.figures[column.name, load_name].append(measured)
                if part is parts[0] and not column.is_floor:
                    self.boots[column.name].append(broker.boot_seconds)
                    self.idle[column.name].append(idle_mb)

    def values(self, column: Contestant, load: Load, key: str) -> list[float]:
        return [result[key] for result in self.figures[column.name, load.name]]

    def table(self, title: str, loads: Iterable[Load]) -> Table:
        own = [column for column in self.columns if column.is_ours]
        compared = [(one, other) for one in own for other in self.columns if not other.is_ours]
        table = Table(title=title)
        table.add_column("load", no_wrap=True)
        for column in self.columns:
            table.add_column(column.name, no_wrap=True, justify="right")
        for one, other in compared:
            name = f"{one.name} / {other.name}" if len(own) > 1 else f"/ {other.name}"
            table.add_column(name if other.is_floor else f"{name}\n(target)", no_wrap=True, justify="right")
        for load, (label, key, digits) in itertools.product(loads, FIGURES):
            # loadgen is the limit of the floor's rate.
            shown = [self.values(column, load, key) if key == CPU or not column.is_floor else [] for column in self.columns]
            ratios = [self.judged(one, other, load, key) for one, other in compared]
            table.add_row(f"{load.name}: {label}", *(joined(values, digits) for values in shown), *ratios)
        for name, by_column, limit in (
            ("start to `boot success`, s", self.boots, BOOT_SECONDS_MAX),
            ("idle RssAnon, MB", self.idle, IDLE_MB_MAX),
        ):
            medians = [None if other.is_floor else statistics.median(by_column[one.name]) for one, other in compared]
            verdicts = ["" if median is None else verdict(median, limit, True) for median in medians]
            table.add_row(name, *(joined(by_column[column.name], ".2f") for column in self.columns), *verdicts)
        return table

    def judged(self, one: Contestant, other: Contestant, load: Load, key: str) -> str:
        """Return the median of the rounds' ratios, with the load's target beside Apache; an empty text without ratios."""
        pairs = zip(self.values(one, load, key), self.values(other, load, key), strict=False)
        ratios = [a / b for a, b in pairs]
        if not ratios or (other.is_floor and key == RATE):
            return ""
        ratio = statistics.median(ratios)
        if other.is_floor:
            return f"{ratio:.1f}"
        return verdict(ratio, load.cpu_ratio_max, True) if key == CPU else verdict(ratio, load.rate_ratio_min, False)


def joined(values: Iterable[float], digits: str) -> str:
    return "  ".join(format(value, digits) for value in values)


def filesystem(folder: Path) -> str:
    shown = subprocess.run(["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=True)
    return shown.stdout.split()[-1]


def store_folder(store: str, scratch: Path | None) -> Path:
    """Return the folder for stores; end the program if it is not on a disk, or not on tmpfs, as wanted."""
    folder = scratch or (Path("/dev/shm") if store == "tmpfs" else Path(tempfile.gettempdir()))
    if (filesystem(folder) == "tmpfs") != (store == "tmpfs"):
        sys.exit(f"bench: --store {store}, but {folder} is on {filesystem(folder)}; name another folder with --scratch")
    return folder


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of all benches whose loads warm up until they settle."""
    parser.add_argument("--secs", type=float, default=8, help="measured seconds per load (8)")
    parser.add_argument(
        "--warm-secs", type=int, default=WARM_UP.shortest_s, help="shortest warm-up of a load with Apache (20)"
    )
    parser.add_argument("--warm-max", type=int, default=WARM_UP.longest_s, help="longest warm-up of a load with Apache (90)")
    parser.add_argument(
        "--lane", choices=["0", "1", "both"], help="PocketMQ without or with its compiled lane, or both beside"
    )
    parser.add_argument(
        "--store", choices=["disk", "tmpfs"], default="disk", help="where stores are; tmpfs needs 12 GB (disk)"
    )
    parser.add_argument(
        "--scratch", type=Path, help="folder for the stores during the bench (the temporary folder, /dev/shm)"
    )


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[Bench]:
    """Prepare a bench with the options of `add_options`."""
    folder = store_folder(options.store, options.scratch)
    if options.lane == "both" and not has_lane():
        console.print("[yellow]pocketmq.lane has no compiled module, so PocketMQ has one column[/]")
    with prepared(options.secs, FILL_SECONDS, folder, WarmUp(options.warm_secs, options.warm_max)) as bench:
        yield bench


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds (3)")
    parser.add_argument("--only", choices=[*LOADS, "pop", "sync", "start"], help="run one part only")
    parser.add_argument("--apache", metavar="VERSION", help="the peer (4.9.4)")
    add_options(parser)
    options = parser.parse_args()
    with opened(options) as bench:
        if missing := floor.available():
            console.print(f"[yellow]no floor: {missing}[/]")
        lowest = floor_in(bench.scratch)

        def compare(parts: list[list[Load]], version: str = "4.9.4", flush_disk_type: str = "ASYNC_FLUSH") -> None:
            version = options.apache or version
            loads = list(itertools.chain(*parts))
            columns = [*ours(options.lane, flush_disk_type), theirs(version, flush_disk_type)]
            if lowest and any(load.has_floor for load in loads):
                columns.append(lowest)
            rounds = Rounds(columns)
            rounds.run(bench, options.rounds, parts)
            where = f"stores on {filesystem(bench.scratch)}, {os.cpu_count()} cores"
            title = (
                f"PocketMQ / Apache {version}: {flush_disk_type}, {options.rounds} rounds, {where}; right: medians of ratios"
            )
            console.print(rounds.table(title, loads))

        if options.only in (None, *LOADS, "start"):
            compare(
                [LOADS[options.only]] if options.only in LOADS else list(LOADS.values()) if options.only is None else [[]]
            )
        if options.only in (None, "sync"):
            compare([SYNC_LOADS], flush_disk_type="SYNC_FLUSH")
        if options.only in (None, "pop"):
            compare([POP_LOADS], POP_PEER)


if __name__ == "__main__":
    main()
