"""Speed of recovery and verification of a store: `python -m bench.store FOLDER [--mib 1024] [--body-size 1024]`.

Creates a log in FOLDER (kept for the next run) without checkpoint, queues or index, as after the worst crash, and measures,
each in its own process: the plain read of its bytes, recovery (every record checked, queues and index rebuilt), and
`pocketmq store verify` of the result.

MB is 10^6 bytes of log. CPU seconds are those of all processes of a step, since other work on the machine affects them
less. Memory is the maximum of all processes together: "own" is anonymous memory, "resident" includes mapped pages of the
store, which the kernel can reclaim.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.made_store import make_store
from pocketmq.runtime.clock import SystemClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.message_store import MessageStore

READ_SIZE = 8 << 20
SAMPLED_EVERY_S = 0.02


def resident_mb(pid: int) -> tuple[float, float]:
    """Return (anonymous, resident) memory of a process and its children; 0 if it has ended."""
    own = total = 0.0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        below = [text for path in Path(f"/proc/{pid}/task").iterdir() for text in (path / "children").read_text().split()]
    except OSError:
        return own, total
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            size_mb = int(value.split()[0]) / 1024
            own, total = own + size_mb * (name == "RssAnon"), total + size_mb * (name == "VmRSS")
    for child in below:
        more = resident_mb(int(child))
        own, total = own + more[0], total + more[1]
    return own, total


def read(folder: Path) -> None:
    """Read every byte of the log once, into one buffer."""
    buffer = bytearray(READ_SIZE)
    for path in sorted((folder / "commitlog").iterdir()):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def recover(folder: Path) -> float:
    """Open the store after a crash that left only the log; return the seconds."""
    (folder / "abort").touch()
    for name in ("checkpoint", "cleanStop.json"):
        (folder / name).unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", str(folder / "consumequeue"), str(folder / "index")], check=True)
    log_file = next((folder / "commitlog").iterdir())
    config = MessageStoreConfig(
        store_path_root_dir=str(folder), mapped_file_size_commit_log=log_file.stat().st_size, message_index_enable=True
    )
    store = MessageStore(config, FileDisk(), SystemClock())
    began = time.perf_counter()
    report = store.load()
    seconds = time.perf_counter() - began
    print(report, file=sys.stderr)  # shows the end of the log, and that all of it was read
    store.shutdown()
    return seconds


def measured(step: str, folder: Path) -> dict[str, float]:
    """Run one step in its own process; return seconds, CPU seconds, and maximum anonymous and resident MB."""
    command = [sys.executable, "-m", "bench.store", str(folder), "--step", step]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    own = total = 0.0
    while process.poll() is None:
        now = resident_mb(process.pid)
        own, total = max(own, now[0]), max(total, now[1])
        time.sleep(SAMPLED_EVERY_S)
    assert process.stdout is not None
    if process.returncode != 0:
        sys.exit(f"bench.store: {step} ended with {process.returncode}")
    result: dict[str, float] = json.loads(process.stdout.read().splitlines()[-1])
    return {**result, "own_mb": own, "peak_mb": total}


def run_step(step: str, folder: Path) -> None:
    began = time.perf_counter()
    if step == "read":
        read(folder)
        seconds = time.perf_counter() - began
    elif step == "recover":
        seconds = recover(folder)
    else:
        command = [sys.executable, "-m", "pocketmq", "store", "verify", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"verify ended with exit code {done.returncode}: {done.stdout}")
        seconds = time.perf_counter() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("bench-store"), help="(./bench-store)")
    parser.add_argument("--mib", type=int, default=1024, help="size of the log (1024)")
    parser.add_argument("--body-size", type=int, default=1024, help="bytes per body (1024)")
    parser.add_argument("--step", choices=["read", "recover", "verify"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        run_step(options.step, options.folder)
        return
    size = options.mib << 20
    count = make_store(options.folder, size, options.body_size)
    table = Table(title=f"{options.mib} MiB of log, {count:,} messages of {options.body_size} B")
    for column in ("step", "seconds", "MB/s", "us/message", "CPU s", "own MB", "resident MB"):
        table.add_column(column, justify="left" if column == "step" else "right")
    read(options.folder)  # into the page cache
    for step in ("read", "recover", "verify"):
        got = measured(step, options.folder)
        seconds = got["seconds"]
        table.add_row(
            step,
            f"{seconds:.2f}",
            f"{size / 1e6 / seconds:,.0f}",
            f"{seconds / count * 1e6:.2f}",
            f"{got['cpu_seconds']:.2f}",
            f"{got['own_mb']:.0f}",
            f"{got['peak_mb']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
