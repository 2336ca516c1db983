"""Cost of replication, compared with Apache's brokers in the same roles: CPU of the master per message, message rate, p99.

    python -m bench.replication [--rounds 3] [--secs 8] [--only send|catch-up]

Each round measures a master without a slave, with one asynchronous slave, and a SYNC_MASTER with one slave, for PocketMQ and
for Apache 4.9.4 in turn. The load is bench/loadgen; bodies of 1 KiB, 8 connections with 16 requests in flight each. All
processes share the machine, so rates are for comparison only.

`catch-up`: an empty slave copies a filled log; for comparison, cp copies the files.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import apache, wire
from bench.run import QUEUES, TOPIC, Bench, prepared
from bench.servers import Running
from pocketmq.cli.cluster import Layout, ProcessCluster

PEER = "4.9.4"
LOAD = ("-conns", "8", "-window", "16")
CONNECT_MAX_S = 60.0
CATCH_UP_MAX_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")

console = Console(width=max(140, Console().width))


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    role: str
    slaves: int


SETTINGS = [
    Setting("no slave", "ASYNC_MASTER", 0),
    Setting("asynchronous slave", "ASYNC_MASTER", 1),
    Setting("SYNC_MASTER", "SYNC_MASTER", 1),
]


@dataclass
class Pair:
    """A running master with or without a slave."""

    master: Running
    slave_pid: int | None


def start_ours(folder: Path, setting: Setting) -> Pair:
    """Start PocketMQ's processes. Raises processes.NotReady."""
    cluster = ProcessCluster(folder, Layout(1, setting.slaves, setting.role))
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    master = cluster.masters[0]
    slave_pid = cluster.slaves[0].pid if cluster.slaves else None
    return Pair(Running("PocketMQ", master.address, master.pid, 0.0, cluster.stop), slave_pid)


def start_apache(folder: Path, setting: Setting) -> Pair:
    """Start Apache's processes. Raises ApacheError."""
    peer = apache.start(PEER, folder / "master", {"brokerRole": setting.role})
    slave: apache.Slave | None = None

    def stop() -> None:
        if slave is not None:
            slave.stop()
        peer.stop()

    try:
        if setting.slaves:
            slave = apache.start_slave(PEER, folder / "slave", peer)
    except apache.ApacheError:
        stop()
        raise
    running = Running(f"Apache {PEER}", peer.broker_address, peer.broker.pid, peer.boot_seconds, stop)
    return Pair(running, slave.process.pid if slave else None)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wait_for_slave(address: str) -> None:
    """Send until a message is answered as replicated, which a SYNC_MASTER does once a slave is connected."""
    fields = {
        "producerGroup": "bench", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    deadline = time.monotonic() + CONNECT_MAX_S
    while wire.call(address, 10, fields)[0] != 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{address} has no slave after {CONNECT_MAX_S:.0f} s")
        time.sleep(0.2)


def measure(bench: Bench, start: Callable[[Path, Setting], Pair], setting: Setting) -> dict[str, Any]:
    """Run the load on a fresh pair; return loadgen's figures, and the slave's CPU per message."""
    folder = Path(tempfile.mkdtemp(dir=bench.scratch))
    pair = start(folder, setting)
    try:
        wire.create_topic(pair.master.address, TOPIC, QUEUES)
        if setting.slaves:
            wait_for_slave(pair.master.address)
        bench.run(pair.master, *LOAD, seconds=bench.warm_seconds)
        before_s = cpu_s(pair.slave_pid) if pair.slave_pid else 0.0
        began = time.monotonic()
        result = bench.run(pair.master, *LOAD)
        if pair.slave_pid:
            # loadgen's own warm-up is in the slave's time too, so the messages of the whole run are estimated by its rate.
            count = result["msgs_per_s"] * (time.monotonic() - began)
            result["slave_cpu_us_per_msg"] = (cpu_s(pair.slave_pid) - before_s) * 1e6 / count
        return result
    finally:
        pair.master.stop()
        shutil.rmtree(folder, ignore_errors=True)


def compare(bench: Bench, rounds: int) -> None:
    """Run alternating rounds, then print the table."""
    starts = {"ours": start_ours, "apache": start_apache}
    figures: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for turn in range(rounds):
        for setting in SETTINGS:
            for who, start in list(starts.items())[:: 1 if turn % 2 == 0 else -1]:
                console.print(
                    f"[dim]round {turn + 1} of {rounds}: {who}, {setting.name} (load {os.getloadavg()[0]:.1f}) ...[/]"
                )
                figures[who, setting.name].append(measure(bench, start, setting))
    table = Table(title=f"replication, PocketMQ / Apache {PEER}: {rounds} rounds, {os.cpu_count()} cores; medians of ratios")
    for column in ("setting", "PocketMQ", f"Apache {PEER}", "ratio"):
        table.add_column(column, no_wrap=True, justify="left" if column == "setting" else "right")
    for setting in SETTINGS:
        for label, key, digits in (
            ("master's CPU us/msg", "broker_cpu_us_per_msg", ",.2f"),
            ("slave's CPU us/msg", "slave_cpu_us_per_msg", ",.2f"),
            ("msg/s", "msgs_per_s", ",.0f"),
            ("p99 ms", "p99_ms", ",.2f"),
        ):
            ours, theirs = ([result.get(key) for result in figures[who, setting.name]] for who in ("ours", "apache"))
            if None in ours:
                continue
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True) if b)
            shown = ["  ".join(format(value, digits) for value in values) for values in (ours, theirs)]
            table.add_row(f"{setting.name}: {label}", *shown, f"{ratio:.2f}")
    console.print(table)


def catch_up(bench: Bench, seconds: float) -> None:
    """Fill a master's log, start an empty slave, and print its speed and that of cp."""
    folder = Path(tempfile.mkdtemp(dir=bench.scratch))
    settings = {"haFetchWholeLog": "true", "diskMaxUsedSpaceRatio": "95"}
    cluster = ProcessCluster(folder, Layout(1, 1), settings=settings)
    try:
        cluster.start()
        master, slave = cluster.nodes.values()
        slave.kill()
        shutil.rmtree(slave.store)
        wire.create_topic(master.address, TOPIC, QUEUES)
        bench.run(Running("PocketMQ", master.address, master.pid, 0.0, cluster.stop), *LOAD, seconds=seconds)
        size = _log_end(master.address)
        began = time.monotonic()
        subprocess.run(["cp", "-r", str(master.store / "commitlog"), str(folder / "copy")], check=True)
        copied_s = time.monotonic() - began
        shutil.rmtree(folder / "copy")
        slave.start()
        began, before_s = time.monotonic(), cpu_s(master.pid)
        while _log_end(slave.address) < size:
            if time.monotonic() - began > CATCH_UP_MAX_S:
                raise RuntimeError(f"the slave has {_log_end(slave.address)} of {size} bytes after {CATCH_UP_MAX_S:.0f} s")
            time.sleep(0.01)
        took_s = time.monotonic() - began
        mb, master_ms, slave_ms = size / 1e6, (cpu_s(master.pid) - before_s) * 1000, cpu_s(slave.pid) * 1000
        console.print(f"catch-up of {mb:,.0f} MB: {mb / took_s:,.0f} MB/s; cp: {mb / copied_s:,.0f} MB/s")
        console.print(f"CPU ms a MB: master {master_ms / mb:.2f}, slave {slave_ms / mb:.2f}")
    finally:
        cluster.stop()


def _log_end(address: str) -> int:
    """Return the end of a broker's log, by GET_BROKER_RUNTIME_INFO."""
    return int(wire.runtime_info(address)["commitLogMaxOffset"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds (3)")
    parser.add_argument("--secs", type=float, default=8, help="measured seconds of each load, after 2 s of warm-up (8)")
    parser.add_argument("--warm-secs", type=float, default=6, help="seconds of sending before each load (6)")
    parser.add_argument("--only", choices=["send", "catch-up"], help="run one part only")
    parser.add_argument("--scratch", type=Path, help="folder for the stores during the bench (the temporary folder)")
    options = parser.parse_args()
    with prepared(options.secs, options.warm_secs, options.scratch) as bench:
        if options.only != "catch-up":
            compare(bench, options.rounds)
        if options.only != "send":
            catch_up(bench, options.secs)


if __name__ == "__main__":
    main()
