"""A million delayed messages pending over 400 days: `python -m bench.pending [--count 1000000] [--pass-days 400]`.

Each step is a broker in its own process, on a virtual clock. The first puts the messages, alternately by time and by delay,
and stops cleanly. Then a broker is started after that stop; after a kill -9 with more messages put; and after all timer
files beside the log were deleted. The last one lets days pass in unequal steps and checks the deliveries: each message
once, at the first step at which it was due.

CPU seconds are those of the process, since other work on the machine affects them less. Memory is the maximum: "own" is
anonymous memory, "resident" includes the mapped pages of the store.
"""

import argparse
import asyncio
import bisect
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import decode_properties, encode_properties
from pocketmq.store.format.record import decode_record

TOPIC: Final = "Pending"
BEGIN_MS: Final = 1_800_000_000_500
DAY_MS: Final = 86_400_000
PUT_AT_ONCE, PUT_EVERY_MS = 100, 50
DAYS: Final = 400
HOST: Final = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
MORE: Final = 20_000  # put before the kill
EXACT_MAX: Final = 5_000  # messages at whose due time, and 1 ms before it, the clock stops
START_SECONDS_MAX, RESIDENT_MB_MAX = 5.0, 150.0
TIMER_FILES: Final = ("timerwheel", "timerlog", "config/timercheck")


class Load(NamedTuple):
    """A number of messages, and the days of the delivery."""

    count: int
    days: int

    @property
    def filled_ms(self) -> int:
        """A time at which all messages have been put."""
        return BEGIN_MS + self.count // PUT_AT_ONCE * PUT_EVERY_MS + 100_000

    def dues(self) -> "array[int]":
        """Return the due time of each message by number; those put before the kill come last."""
        chance = random.Random(self.count)
        return array(
            "q",
            itertools.chain(
                (self.filled_ms + 1 + chance.randrange(DAYS * DAY_MS) for _ in range(self.count)),
                (self.filled_ms + DAY_MS + number for number in range(MORE)),
            ),
        )


def put(broker: Broker, numbers: range, due_ms: "array[int]") -> None:
    """Put messages by number; every other one uses a delay."""
    services = broker.services
    for number in numbers:
        text = f"order-{number}"
        asked = {"TIMER_DELIVER_MS": str(due_ms[number])}
        if number % 2:
            asked = {"TIMER_DELAY_MS": str(due_ms[number] - services.clock.message_time_ms())}
        properties = {"UNIQ_KEY": f"C00002024EA86E42538D6AAD{number:08X}", "KEYS": text, **asked}
        stored = encode_properties(properties).encode()
        body = f"{number} ".encode() + bytes(100)
        services.putter.put(Message(TOPIC, number % 4, body, HOST, HOST, properties=properties, properties_bytes=stored))
        if number % PUT_AT_ONCE == 0:
            services.turn.run()
    services.turn.run()


async def started(folder: Path, now_ms: int) -> tuple[Broker, dict[str, Any]]:
    config = MessageStoreConfig(
        store_path_root_dir=str(folder), file_reserved_time=24 * 1000, timer_max_delay_sec=(DAYS + 1) * 86_400,
        # If other programs filled the disk, messages could not be stored, and the delivery would not end.
        disk_space_warning_level_ratio=100,
    )  # fmt: skip
    broker = Broker(
        BrokerConfig(listen_port=0, broker_ip1="127.0.0.1", namesrv_addr=None), config, clock=VirtualClock(now_ms)
    )
    began, cpu = time.monotonic(), time.process_time()
    await broker.start()
    took = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu, **memory()}
    pending = sum(messages for messages, _ in broker.services.timer_messages.waiting.counts_by_hour().values())
    return broker, {**took, "pending": pending}


def memory() -> dict[str, float]:
    """Return MB: anonymous and resident now, and the maximum resident."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {line[0]: int(line[1]) / 1024 for line in lines if line[0] in ("RssAnon:", "VmRSS:", "VmHWM:")}
    return {"own_mb": sizes["RssAnon:"], "mb": sizes["VmRSS:"], "peak_mb": sizes["VmHWM:"]}


async def fill(folder: Path, load: Load) -> dict[str, Any]:
    """Put all messages, and stop."""
    broker, _ = await started(folder, BEGIN_MS)
    began, cpu = time.monotonic(), time.process_time()
    due_ms, count = load.dues(), load.count
    clock = broker.services.clock
    assert isinstance(clock, VirtualClock)
    for first in range(0, count, PUT_AT_ONCE):
        put(broker, range(first, min(first + PUT_AT_ONCE, count)), due_ms)
        clock.advance(PUT_EVERY_MS)
        await asyncio.sleep(0)
    found = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu, **memory()}
    await broker.stop()
    return found


async def start(folder: Path, load: Load) -> dict[str, Any]:
    """Start and stop."""
    broker, found = await started(folder, load.filled_ms)
    await broker.stop()
    return found


async def start_and_die(folder: Path, load: Load) -> dict[str, Any]:
    """Start, put more messages, and be killed."""
    broker, found = await started(folder, load.filled_ms)
    put(broker, range(load.count, load.count + MORE), load.dues())
    print(json.dumps(found), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return found


async def deliver(folder: Path, load: Load) -> dict[str, Any]:
    """Let the days pass and deliver."""
    broker, found = await started(folder, load.filled_ms)
    due_ms, end_ms = load.dues(), load.filled_ms + load.days * DAY_MS
    clock, services = broker.services.clock, broker.services
    assert isinstance(clock, VirtualClock)
    chance = random.Random(1)
    steps = {load.filled_ms + hour * DAY_MS // 24 for hour in range(1, load.days * 24 + 1)}
    for one in chance.sample(due_ms, EXACT_MAX):
        steps |= {one - 1, one} if one <= end_ms else set()
    stops = sorted(steps)
    began, cpu, peak, own = time.monotonic(), time.process_time(), 0.0, 0.0
    for number, stop_ms in enumerate(stops):
        clock.advance(stop_ms - clock.message_time_ms())
        while not services.delays.is_idle:
            await asyncio.sleep(0)
            if not services.store.writeable:
                raise RuntimeError("the store takes no messages: is the disk full?")
        if number % 64 == 0:
            now = memory()
            peak, own = max(peak, now["mb"]), max(own, now["own_mb"])
            await asyncio.sleep(0.001)
    services.turn.run()
    delivered = services.timer_messages.delivered_total
    took = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu, "steps": len(stops)}
    used = {**memory(), "own_mb": own, "steady_peak_mb": peak, "delivered": delivered}
    wrong, late_ms = check(broker, due_ms, stops)
    await broker.stop()
    return {**found, **took, **used, "wrong": wrong, "late_max_ms": late_ms}


def check(broker: Broker, due_ms: "array[int]", stops: list[int]) -> tuple[dict[str, int], int]:
    """Count lost, duplicate, early and late messages by clock step; return also the maximum lateness within a step in ms."""
    store = broker.services.store
    wrong, late_max = {"lost": 0, "twice": 0, "early": 0, "late": 0, "out_of_order": 0}, 0
    due = sum(at_ms <= stops[-1] for at_ms in due_ms)
    seen = bytearray(len(due_ms))
    for queue_id in range(4):
        last = (0, 0)
        for queue_offset in range(store.max_offset(TOPIC, queue_id)):
            queue = store.queue(TOPIC, queue_id)
            unit = queue.unit_at(queue_offset) if queue is not None else None
            view = store.message_at(unit[0]) if unit is not None else None
            assert view is not None, "a message of a queue can be read"
            record = decode_record(view)
            number = int(record.body.split()[0])
            at_ms = int(decode_properties(record.properties)["TIMER_DEQUEUE_MS"])
            seen[number] = min(seen[number] + 1, 2)
            expected = stops[min(bisect.bisect_left(stops, due_ms[number]), len(stops) - 1)]
            wrong["early"] += at_ms < due_ms[number]
            wrong["late"] += at_ms > expected
            late_max = max(late_max, at_ms - expected)
            wrong["out_of_order"] += (at_ms, due_ms[number]) < last
            last = (at_ms, due_ms[number])
    wrong["lost"], wrong["twice"] = due - len(due_ms) + seen.count(0), seen.count(2)
    return wrong, late_max


def without_timer_files(folder: Path) -> None:
    for name in TIMER_FILES:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run(step: str, folder: Path, load: Load) -> dict[str, Any]:
    """Run one step in its own process."""
    command = [sys.executable, "-m", "bench.pending", "--step", step, "--scratch", str(folder)]
    command += ["--count", str(load.count), "--pass-days", str(load.days)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{step} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    Console(stderr=True).print(f"[dim]{step}: {found} (load average: {os.getloadavg()[0]:.1f})[/]")
    return found


STEPS: Final = {"fill": fill, "start": start, "die": start_and_die, "deliver": deliver}


def measure(load: Load, scratch: Path | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pocketmq-pending-", dir=scratch))
    table = Table(title=f"{load.count:,} messages pending over {DAYS} days; load average {os.getloadavg()[0]:.1f}")
    for column in ("", "seconds", "CPU s", "own MB", "resident MB", "at most MB", ""):
        table.add_column(column, justify="right" if column else "left")
    try:
        for name, step in (
            ("put", "fill"),
            ("start after a clean stop", "die"),
            (f"start after kill -9, {MORE:,} more", "start"),
            ("start without the timers' files", "start"),
            (f"{load.days} days pass", "deliver"),
        ):
            if name.endswith("files"):
                without_timer_files(folder)
            found = run(step, folder, load)
            figures = [f"{found[key]:.1f}" for key in ("seconds", "cpu_s", "own_mb", "mb", "peak_mb")]
            note = f"{found['pending']:,} pending" if "pending" in found else ""
            if "wrong" in found:
                note = f"{found['delivered']:,} delivered in {found['steps']:,} steps; "
                note += ", ".join(f"{value} {key}" for key, value in found["wrong"].items())
            table.add_row(name, *figures, note)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pending", description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--pass-days", type=int, default=DAYS, help=f"days that pass at the end ({DAYS})")
    parser.add_argument("--scratch", type=Path, help="folder for the store (the temporary folder)")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    load = Load(options.count, options.pass_days)
    if options.step:
        print(json.dumps(asyncio.run(STEPS[options.step](options.scratch, load))))
    else:
        measure(load, options.scratch)


if __name__ == "__main__":
    main()
