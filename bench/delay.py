"""Delayed messages with PocketMQ and with Apache's broker: lateness, and lost, early or duplicate messages.

    make bench-delay

The load is bench/loadgen. Undelayed messages are sent first, as a baseline for this machine at this time. Then delay levels,
timers (TIMER_DELIVER_MS) and __STARTDELIVERTIME, which Apache does not support, at 1,000 and 5,000 messages a second; and
50,000 timers due at one instant, while other producers send undelayed messages from 3 s before that instant on. On a busy
machine compare delayed with undelayed messages, or use --real-time, which gives PocketMQ a real-time priority
(realTimePriority=1).
"""

import argparse
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import wire
from bench.run import QUEUES, Bench, console, prepared, verdict
from bench.servers import Running, start_apache, start_ours

PEER = "5.5.0"
RATES = (1000, 5000)
P50_MS_MAX, P99_MS_MAX, MAX_MS_MAX = 2.0, {1000: 10.0, 5000: 20.0}, 50.0
BEYOND_UNDELAYED_MS = (2.0, 5.0)  # at p50 and p99, on a busy machine
BURST, BURST_SECONDS, BURST_PER_S_MIN = 50_000, 10, 20_000
BESIDE_RATE, BESIDE_SECONDS = 200, 6
Result = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """One row of the table."""

    name: str
    how: str
    delay_ms: int
    rate: int

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("-mode", "delay", "-how", self.how, "-delay", "1", "-ms", str(self.delay_ms), "-rate", str(self.rate))


LOADS = [
    Load(f"{name}, {rate:,} msg/s", how, delay_ms, rate)
    for rate in RATES
    for name, how, delay_ms in (
        ("not delayed", "now", 0),
        ("level 1", "level", 1000),
        ("timer", "timer", 2000),
        ("__STARTDELIVERTIME", "start", 2000),
    )
]
BURST_LOAD = Load(f"{BURST:,} in one instant", "burst", 3000, BURST // BURST_SECONDS)
BESIDE_LOAD = Load("not delayed, beside them", "now", 0, BESIDE_RATE)


def measure(bench: Bench, start: Callable[[Path], Running]) -> dict[str, Result]:
    """Run all loads, each with its own topic, on a fresh broker."""
    folder = Path(tempfile.mkdtemp(dir=bench.scratch))
    broker = start(folder)
    results: dict[str, Result] = {}

    def run(load: Load, seconds: float | None = None) -> None:
        topic = f"Bench-{next(numbers)}"
        wire.create_topic(broker.address, topic, QUEUES)
        began, stolen = time.monotonic(), stolen_s()
        result = bench.run(broker, *load.arguments, "-topic", topic, seconds=seconds)
        result["stolen"] = (stolen_s() - stolen) / (time.monotonic() - began) / (os.cpu_count() or 1)
        results[load.name] = result

    numbers = itertools.count()  # two loads run at the same time
    try:
        run(Load("warm-up", "now", 0, 1000), bench.warm_seconds)
        for load in LOADS:
            if load.how == "start" and broker.name != "PocketMQ":
                continue
            console.print(f"[dim]{broker.name}: {load.name} (load average: {os.getloadavg()[0]:.1f}) ...[/]")
            run(load)
        console.print(f"[dim]{broker.name}: {BURST_LOAD.name} ...[/]")
        run(Load("beside, quiet", "now", 0, BESIDE_RATE), BESIDE_SECONDS)
        with ThreadPoolExecutor(1) as threads:
            burst = threads.submit(run, BURST_LOAD, BURST_SECONDS)
            time.sleep(BURST_SECONDS)  # by then all timers are sent, and none is due
            run(BESIDE_LOAD, BESIDE_SECONDS)
            burst.result()
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def stolen_s() -> float:
    """Return the seconds of CPU time stolen by the host, summed over all processors; 0 if it is not reported."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def show(ours: dict[str, Result], theirs: dict[str, Result] | None) -> None:
    """Print the table; targets apply to PocketMQ only."""
    table = Table(title=f"how late delayed messages come, ms; {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    for column in ("load", "broker", "sent", "lost", "dup", "early", "p50", "p99", "max", "CPU us/msg", "stolen"):
        table.add_column(column, justify="left" if column in ("load", "broker") else "right", no_wrap=True)
    for load in (*LOADS, BURST_LOAD, BESIDE_LOAD):
        for name, results in (("PocketMQ", ours), (f"Apache {PEER}", theirs or {})):
            if (got := results.get(load.name)) is None:
                continue
            figures = [f"{got[key]:.1f}" for key in ("late_p50_ms", "late_p99_ms", "late_max_ms")]
            if name == "PocketMQ":
                figures = judged(load, got, ours)
            counts = [f"{got[key]:,}" for key in ("sent", "lost", "dup", "early")]
            # The CPU times of the two loads that run at once cannot be separated.
            cpu = "" if load in (BURST_LOAD, BESIDE_LOAD) else f"{got['broker_cpu_us_per_msg']:.0f}"
            table.add_row(load.name, name, *counts, *figures, cpu, f"{got['stolen']:.1%}")
    Console(width=170).print(table)
    for name, measured in (("PocketMQ", ours), (f"Apache {PEER}", theirs)):
        if measured is not None:
            drained = BURST / max(measured[BURST_LOAD.name]["late_max_ms"], 1) * 1000
            rate = verdict(drained, BURST_PER_S_MIN, False) if measured is ours else f"{drained:,.0f}"
            console.print(f"{name}: the {BURST:,} arrive at {rate} a second")


def judged(load: Load, got: Result, ours: dict[str, Result]) -> list[str]:
    """Return p50, p99 and maximum, with the limits that apply."""
    p50, p99, latest = got["late_p50_ms"], got["late_p99_ms"], got["late_max_ms"]
    if load is BESIDE_LOAD:
        quiet_ms = ours["beside, quiet"]["late_p99_ms"]
        return [f"{p50:.1f}", verdict(p99, round(2 * quiet_ms, 1), True), f"{latest:.1f}"]
    if load.how in ("now", "burst"):
        return [f"{p50:.1f}", f"{p99:.1f}", f"{latest:.1f}"]
    undelayed = ours[f"not delayed, {load.rate:,} msg/s"]
    p50_max = max(P50_MS_MAX, round(undelayed["late_p50_ms"] + BEYOND_UNDELAYED_MS[0], 1))
    p99_max = max(P99_MS_MAX[load.rate], round(undelayed["late_p99_ms"] + BEYOND_UNDELAYED_MS[1], 1))
    if load.rate != RATES[0]:
        return [f"{p50:.1f}", verdict(p99, p99_max, True), f"{latest:.1f}"]
    latest_max = max(MAX_MS_MAX, undelayed["late_max_ms"])
    return [verdict(p50, p50_max, True), verdict(p99, p99_max, True), verdict(latest, latest_max, True)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.delay", description=__doc__.split("\n\n")[0])
    parser.add_argument("--secs", type=float, default=8, help="seconds of sending a load (8)")
    parser.add_argument("--warm-secs", type=float, default=6, help="seconds of sending before the first load (6)")
    parser.add_argument("--real-time", action="store_true", help="PocketMQ with realTimePriority=1 (as root)")
    parser.add_argument("--alone", action="store_true", help=f"do not measure Apache {PEER}")
    parser.add_argument("--scratch", type=Path, help="folder for the stores during the bench (the temporary folder)")
    options = parser.parse_args()
    with prepared(options.secs, options.warm_secs, options.scratch) as bench:
        ours = measure(bench, lambda folder: start_ours(folder, real_time_priority=int(options.real_time)))
        show(ours, None if options.alone else measure(bench, lambda folder: start_apache(PEER, folder)))


if __name__ == "__main__":
    main()
