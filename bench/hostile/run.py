"""Runs one attack with its own servers and neighbour: quiet phase, attack, settling, result."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.apache import free_port
from bench.hostile.measure import MemoryWatch, Window, percentile_ms, stalls
from bench.hostile.peer import BROKER_NAME
from bench.hostile.result import Memory, Result, is_within_limit
from pocketmq.cli import child_process, processes
from pocketmq.cli.processes import Server

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
ATTACKER_GRACE_SECONDS = 15.0
BEFORE_SECONDS = 2.0
"""Length of the window at the end of the quiet phase with which memory after the attack is compared."""
GRPC_PREFIX = "grpc-"
"""Beginning of the names of attacks on the gRPC port."""
SETTLE_SECONDS_MIN = 3.0
"""The latencies after an attack are measured for at least this long."""

Tell = Callable[[str, float], None]
"""Called with the phase and the seconds it takes."""


@dataclass(frozen=True)
class Plan:
    """Durations in seconds, and rate of the attack."""

    warm: float
    quiet: float
    attack: float
    settle: float
    rate: float
    settings: dict[str, str]
    scratch: Path | None

    @property
    def seconds(self) -> float:
        return self.warm + self.quiet + self.attack + self.settle


def run(name: str, plan: Plan, tell: Tell) -> Result:
    """Run an attack. Raises RuntimeError if the healthy load does not start."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-hostile-", dir=plan.scratch) as folder:
        scratch = Path(folder)
        # Only attacks on the gRPC port open it, because its library needs as much memory as half a broker.
        grpc_port = str(free_port()) if name.startswith(GRPC_PREFIX) else ""
        settings = plan.settings | ({"grpcServerPort": grpc_port} if grpc_port else {})
        with _servers(scratch, settings) as servers:
            return _against(servers, f"127.0.0.1:{grpc_port}" if grpc_port else "", name, plan, scratch, tell)


@contextlib.contextmanager
def _servers(scratch: Path, settings: dict[str, str]) -> Iterator[tuple[Server, Server]]:
    """Yield (broker, name server)."""
    namesrv = processes.start_namesrv(scratch / "namesrv")
    try:
        keys = {"brokerName": BROKER_NAME, "enablePropertyFilter": "true", "metricsPort": "0", **settings}
        # With a port that is set, the broker's port for slaves is the next one.
        broker = processes.start_broker(scratch / "broker", namesrv.address, keys, port=free_port((1,)))
        try:
            yield broker, namesrv
        finally:
            broker.stop()
    finally:
        namesrv.stop()


def _against(servers: tuple[Server, Server], grpc: str, name: str, plan: Plan, scratch: Path, tell: Tell) -> Result:
    broker, namesrv = servers
    addresses = ["--namesrv", namesrv.address, "--broker", broker.address, "--grpc", grpc]
    seen_path = scratch / "neighbour.json"
    neighbour = _start("neighbour", scratch, *addresses, "--out", str(seen_path))
    watch = MemoryWatch(servers)
    try:
        _wait_ready(neighbour, scratch)
        watch.start()
        tell("warming up", plan.warm)
        time.sleep(plan.warm)
        tell("quiet", plan.quiet)
        quiet = _slept(plan.quiet)
        logs_before = _log_mb(servers)
        tell("attack", plan.attack)
        began = time.monotonic()
        outcome = _attack(name, plan, scratch, addresses, (broker.metrics_url or "").removeprefix("http://"))
        attack = Window(began, time.monotonic())
        tell("settling", plan.settle)
        later, memory = _settled(watch, quiet, attack, plan.settle)
        is_alive = all(server.process.poll() is None for server in servers)
    finally:
        _end(neighbour)
        with contextlib.suppress(AttributeError):
            watch.stop()
    if not seen_path.exists():
        raise RuntimeError(f"the neighbour left no figures: {_tail(scratch / 'neighbour.out')}")
    seen = json.loads(seen_path.read_text())
    log_mb = _log_mb(servers) - logs_before
    result = _result(name, seen, (quiet, attack, later), memory, outcome)
    result.resident_peak_mb = sum(max(watch.resident_mb(index, Window(attack.begin, later.end))) for index in range(2))
    result.is_alive, result.log_mb = is_alive, log_mb
    return result


def _result(
    name: str, seen: dict[str, Any], windows: tuple[Window, Window, Window], memory: list[Memory], outcome: dict[str, Any]
) -> Result:
    quiet, attack, later = windows
    samples: dict[str, list[tuple[float, float]]] = seen["samples"]
    kinds = ("send", "receive", "hold", "namesrv", "grpc")
    both = Window(attack.begin, later.end)
    waits = [stalls(both.of(samples[kind])) for kind in ("broker", "namesrv")]
    failures = [text for at, text in seen["failures"] if both.begin <= at < both.end]
    return Result(
        name=name,
        quiet_p99=max(percentile_ms(quiet.of(samples[kind]), 0.99) for kind in kinds),
        send_p99=percentile_ms(attack.of(samples["send"]), 0.99),
        receive_p99=percentile_ms(attack.of(samples["receive"]), 0.99),
        hold_p99=percentile_ms(attack.of(samples["hold"]), 0.99),
        route_p99=percentile_ms(attack.of(samples["namesrv"]), 0.99),
        later_p99=max(percentile_ms(later.of(samples[kind]), 0.99) for kind in kinds),
        longest=max(percentile_ms(both.of(samples[kind]), 1.0) for kind in kinds),
        stalls=sum(map(len, waits)),
        stall_longest=max((seconds for row in waits for seconds in row), default=0.0),
        broker=memory[0],
        namesrv=memory[1],
        resident_peak_mb=0.0,
        log_mb=0.0,
        sent_mb=outcome.get("sent", 0) / 1e6,
        own_p99=percentile_ms(both.of(samples["own"]), 0.99),
        failed=len(failures),
        is_alive=True,
        failure=failures[0] if failures else "",
        grpc_p99=percentile_ms(attack.of(samples["grpc"]), 0.99),
        slave_p99=outcome.get("slave_p99", 0.0),
        notes=[text for text in (outcome.get("error", ""), _grpc_note(attack.of(samples["grpc"]), outcome)) if text],
    )


def _grpc_note(samples: list[tuple[float, float]], outcome: dict[str, Any]) -> str:
    p50, p99 = (percentile_ms(samples, share) for share in (0.5, 0.99))
    calls = f"; the attack made {calls:,} calls" if (calls := outcome.get("calls", 0)) else ""
    return f"sends over gRPC: p50 {p50:.1f}, p99 {p99:.1f} ms{calls}" if samples else ""


def _settled(watch: MemoryWatch, quiet: Window, attack: Window, settle_seconds: float) -> tuple[Window, list[Memory]]:
    """Wait until the memory of both servers (broker, name server) is back within the limit, up to `settle_seconds`.

    Memory is checked once a second, as the median of that second's samples.
    """
    before = [watch.median_mb(index, Window(quiet.end - BEFORE_SECONDS, quiet.end)) for index in range(2)]
    after: list[float] = []
    back: list[float | None] = [None, None]
    while True:
        second = _slept(1.0)
        settled = second.end - attack.end
        after = [watch.median_mb(index, second) for index in range(2)]
        for index in range(2):
            if not is_within_limit(before[index], after[index]):
                back[index] = None
            elif back[index] is None:
                back[index] = settled
        is_over = None not in back and settled >= SETTLE_SECONDS_MIN
        if is_over or settled >= settle_seconds:
            break
    later = Window(attack.end, second.end)
    peaks = [max(watch.anonymous_mb(index, Window(quiet.end, later.end))) for index in range(2)]
    return later, [Memory(*row) for row in zip(before, peaks, after, back, strict=True)]


def _attack(name: str, plan: Plan, scratch: Path, addresses: list[str], metrics: str) -> dict[str, Any]:
    """Return the attacker's own figures; `error` if it failed."""
    attacker = _start(
        "attacker", scratch, name, *addresses, "--metrics", metrics, "--seconds", f"{plan.attack}", "--rate", f"{plan.rate}"
    )
    try:
        attacker.wait(plan.attack + ATTACKER_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": "the attacker did not end in time"}
    finally:
        _end(attacker)
    out = (scratch / "attacker.out").read_text(errors="replace")
    if attacker.returncode != 0:
        return {"error": f"the attacker failed: {out[-500:]}"}
    outcome: dict[str, Any] = json.loads(out.strip().split("\n")[-1])
    return outcome


def _start(module: str, scratch: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    with (scratch / f"{module}.out").open("wb") as out:
        return child_process.start_program(
            [sys.executable, "-m", f"bench.hostile.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(neighbour: "subprocess.Popen[bytes]", scratch: Path) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < end and neighbour.poll() is None:
        if "ready" in _tail(scratch / "neighbour.out"):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the neighbour did not get ready: {_tail(scratch / 'neighbour.out')}")


def _slept(seconds: float) -> Window:
    began = time.monotonic()
    time.sleep(seconds)
    return Window(began, time.monotonic())


def _log_mb(servers: tuple[Server, Server]) -> float:
    return sum(server.out.stat().st_size for server in servers) / 1e6


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2_000:]
