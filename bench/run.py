"""PocketMQ compared with Apache's broker: CPU per message, messages a second, start time, idle memory.

The load is bench/loadgen (Go), which implements the wire protocol itself, so that the broker is measured. Rounds alternate
between the two brokers; only one runs at a time, each from an empty store and warmed up the same way. The table shows every
round and the median of the rounds' ratios. 8 queues, bodies of 1 KiB; both flush asynchronously, except in the table of
SYNC_FLUSH.

Sends, transactions and pulls each have their own broker; otherwise the later loads of the faster broker would be measured
with more data in the store. A virtual machine whose host reclaims free memory writes more slowly after some GB, as with any
program that fills new files.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import apache, wire
from pocketmq.cli import processes

HERE = Path(__file__).parent
TOPIC, QUEUES = "Bench", 8
IDLE_SECONDS = 3.0
SQL = "TAGS = 'TagA' AND KEYS <> 'other' AND UNIQ_KEY IS NOT NULL"
"""True for every message of loadgen, so that evaluation and serving are measured."""

console = Console(width=max(140, Console().width))


@dataclass(frozen=True)
class Load:
    """One row of the table: arguments of loadgen, and the targets as ratios PocketMQ / Apache."""

    name: str
    arguments: tuple[str, ...]
    cpu_ratio_max: float
    rate_ratio_min: float
    warm_ups: int = 1
    """Number of warm-up runs; transactions need four until the JVM has compiled them."""


LOADS = {
    "send": [
        Load("send, pipelined (8 x 16)", ("-conns", "8", "-window", "16"), 0.50, 1.2),
        Load("send, one in flight (64 x 1)", ("-conns", "64", "-window", "1"), 0.40, 1.2),
    ],
    "transaction": [
        Load("transactions (8 x 16)", ("-mode", "transaction", "-conns", "8", "-window", "16"), 0.60, 1.0, warm_ups=4),
    ],
    "pull": [
        Load("pull of 32 (8 x 16)", ("-mode", "pull", "-conns", "8", "-window", "16"), 0.60, 1.3),
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


@dataclass
class Running:
    """A broker being measured."""

    name: str
    address: str
    pid: int
    boot_seconds: float
    stop: Callable[[], object]


def start_ours(folder: Path, flush_disk_type: str = "ASYNC_FLUSH", real_time_priority: int = 0) -> Running:
    namesrv = processes.start_namesrv(folder)
    try:
        settings = {
            "brokerName": "broker-a",
            "flushDiskType": flush_disk_type,
            "enablePropertyFilter": "true",
            "realTimePriority": str(real_time_priority),
        }
        broker = processes.start_broker(folder, namesrv.address, settings)
    except processes.NotReady:
        namesrv.stop()
        raise
    return Running(
        "PocketMQ", broker.address, broker.process.pid, broker.boot_seconds, lambda: (broker.stop(), namesrv.stop())
    )


def start_apache(version: str, folder: Path, flush_disk_type: str = "ASYNC_FLUSH") -> Running:
    peer = apache.start(version, folder, {"flushDiskType": flush_disk_type})
    return Running(f"Apache {version}", peer.broker_address, peer.broker.pid, peer.boot_seconds, peer.stop)


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

    def run(self, broker: Running, *arguments: str, seconds: float | None = None) -> dict[str, Any]:
        """Run loadgen once (it warms up for 2 s by itself); raises RuntimeError if messages failed."""
        command = [str(self.loadgen), "-addr", broker.address, "-pid", str(broker.pid), "-topic", TOPIC]
        command += ["-queues", str(QUEUES), "-secs", str(seconds or self.seconds), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"loadgen against {broker.name}: {done.stderr[-500:]}")
        if "Inf" in done.stdout or "NaN" in done.stdout:
            raise RuntimeError(
                f"{broker.name} served no message at all: loadgen {' '.join(arguments)} printed {done.stdout}"
            )
        result: dict[str, Any] = json.loads(done.stdout)
        if result.get("failed"):
            problem = f"{broker.name} refused {result['failed']} requests: {result['last_fail']}"
            if broker.name == "PocketMQ":
                raise RuntimeError(problem)
            console.print(f"[yellow]{problem} (they do not count as work done)[/]")
        return result

    def measure(self, start: Callable[[Path], Running], loads: list[Load]) -> tuple[Running, float, dict[str, Any]]:
        """Run all loads on a fresh broker; return it (stopped), its idle anonymous MB, and the figures by load."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        broker = start(folder)
        try:
            time.sleep(IDLE_SECONDS)
            idle_mb = anonymous_mb(broker.pid)
            wire.create_topic(broker.address, TOPIC, QUEUES)
            if loads:  # a pull needs something to pull
                self.run(broker, "-conns", "8", "-window", "16", seconds=self.warm_seconds)
            return broker, idle_mb, {load.name: self._warm_and_measured(broker, load) for load in loads}
        finally:
            broker.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _warm_and_measured(self, broker: Running, load: Load) -> dict[str, Any]:
        """Run a load after a warm-up: until the JVM has compiled its code, it takes up to twice the CPU."""
        self.run(broker, *load.arguments, seconds=self.warm_seconds * load.warm_ups)
        return self.run(broker, *load.arguments)


@contextmanager
def prepared(seconds: float, warm_seconds: float, folder: Path | None) -> Iterator[Bench]:
    """Build loadgen, and provide a temporary folder for stores inside `folder` (None: the default one).

    Ends the program if a broker does not start or serve. SIGTERM ends it together with the brokers.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = Path(tempfile.mkdtemp(prefix="pocketmq-bench-", dir=folder))
    try:
        yield Bench(build_loadgen(), scratch, seconds, warm_seconds)
    except (RuntimeError, apache.ApacheError) as wrong:
        sys.exit(f"bench: {wrong}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def verdict(value: float, limit: float, at_most: bool) -> str:
    met = value <= limit if at_most else value >= limit
    sign = "<=" if at_most else ">="
    return f"[{'green' if met else 'red'}]{value:.2f} ({sign} {limit:g})[/]"


def compare(bench: Bench, version: str, rounds: int, parts: list[list[Load]], flush_disk_type: str = "ASYNC_FLUSH") -> None:
    """Run alternating rounds of all parts, then print the table.

    The order of the brokers alternates, because memory that a virtual machine has not used for long is slow at
    its first use.
    """
    starts = {
        "ours": lambda folder: start_ours(folder, flush_disk_type),
        "apache": lambda folder: start_apache(version, folder, flush_disk_type),
    }
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {"ours": defaultdict(list), "apache": defaultdict(list)}
    boots: dict[str, list[float]] = {"ours": [], "apache": []}
    idle: dict[str, list[float]] = {"ours": [], "apache": []}
    for turn, part in itertools.product(range(rounds), parts):
        for who, start in list(starts.items())[:: 1 if turn % 2 == 0 else -1]:
            name = "PocketMQ" if who == "ours" else f"Apache {version}"
            busy = os.getloadavg()[0]  # of the last minute, so in later rounds mostly caused by the bench
            console.print(f"[dim]round {turn + 1} of {rounds}: {name} (load average before it: {busy:.1f}) ...[/]")
            broker, idle_mb, result = bench.measure(start, part)
            for load_name, measured in result.items():
                figures[who][load_name].append(measured)
            if part is parts[0]:
                boots[who].append(broker.boot_seconds)
                idle[who].append(idle_mb)
    setting = f"{flush_disk_type}, {rounds} rounds, {os.cpu_count()} cores"
    table = Table(title=f"PocketMQ / Apache {version}: {setting}; medians of the ratios on the right")
    for column in ("load", "PocketMQ", f"Apache {version}", "ratio (target)"):
        table.add_column(column, no_wrap=True, justify="left" if column == "load" else "right")
    for load in itertools.chain(*parts):
        for label, key, target, at_most in (
            ("CPU us/msg", "broker_cpu_us_per_msg", load.cpu_ratio_max, True),
            ("msg/s", "msgs_per_s", load.rate_ratio_min, False),
        ):
            ours, theirs = ([result[key] for result in figures[who][load.name]] for who in ("ours", "apache"))
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            digits = ",.2f" if at_most else ",.0f"
            shown = ["  ".join(format(value, digits) for value in values) for values in (ours, theirs)]
            table.add_row(f"{load.name}: {label}", *shown, verdict(ratio, target, at_most))
    for name, values, limit in (
        ("start to `boot success`, s", boots, BOOT_SECONDS_MAX),
        ("idle RssAnon, MB", idle, IDLE_MB_MAX),
    ):
        shown = ["  ".join(f"{value:.2f}" for value in values[who]) for who in ("ours", "apache")]
        table.add_row(name, *shown, verdict(statistics.median(values["ours"]), limit, True))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds (3)")
    parser.add_argument("--secs", type=float, default=8, help="measured seconds per load, after 2 s of warm-up (8)")
    parser.add_argument("--warm-secs", type=float, default=6, help="seconds of sending first, and before each load (6)")
    parser.add_argument("--only", choices=["send", "transaction", "pull", "pop", "sync", "start"], help="run one part only")
    parser.add_argument("--apache", metavar="VERSION", help="the peer (4.9.4)")
    parser.add_argument("--scratch", type=Path, help="folder for the stores during the bench (the temporary folder)")
    options = parser.parse_args()
    with prepared(options.secs, options.warm_secs, options.scratch) as bench:
        if options.only == "sync":
            compare(bench, options.apache or "4.9.4", options.rounds, [SYNC_LOADS], "SYNC_FLUSH")
        elif options.only == "pop":
            compare(bench, options.apache or POP_PEER, options.rounds, [POP_LOADS])
        else:
            parts = {None: list(LOADS.values()), "start": [[]]}.get(options.only) or [LOADS[options.only]]
            compare(bench, options.apache or "4.9.4", options.rounds, parts)
            if options.only is None:
                compare(bench, options.apache or "4.9.4", options.rounds, [SYNC_LOADS], "SYNC_FLUSH")
                compare(bench, options.apache or POP_PEER, options.rounds, [POP_LOADS])


if __name__ == "__main__":
    main()
