"""Servers that benches compare: PocketMQ's broker, with and without its compiled lane, Apache's broker, and the floor."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from bench import apache, floor
from pocketmq.cli import processes

LANE = "POCKETMQ_LANE"
"""Variable of the environment by which a broker uses its compiled lane (1) or not (0)."""
OURS_WARM_SHARE, FLOOR_WARM_SHARE = 0.25, 0.1
"""Shares of the warm-up that a JVM needs to compile the code of a load."""


@dataclass
class Running:
    """A server being measured."""

    name: str
    address: str
    pid: int
    boot_seconds: float
    stop: Callable[[], object]


@dataclass(frozen=True)
class Contestant:
    """A column of a table: a server, and the share of the longest warm-up that it needs."""

    name: str
    start: Callable[[Path], Running]
    warm_share: float = 1.0
    is_ours: bool = False
    is_floor: bool = False


def start_ours(
    folder: Path, flush_disk_type: str = "ASYNC_FLUSH", real_time_priority: int = 0, lane: str | None = None
) -> Running:
    """Start PocketMQ. `lane`: the value of POCKETMQ_LANE; None: as in this process. Raises processes.NotReady."""
    namesrv = processes.start_namesrv(folder)
    try:
        settings = {
            "brokerName": "broker-a",
            "flushDiskType": flush_disk_type,
            "enablePropertyFilter": "true",
            "realTimePriority": str(real_time_priority),
        }
        prefix = () if lane is None else ("env", f"{LANE}={lane}")
        broker = processes.start_broker(folder, namesrv.address, settings, prefix=prefix)
    except processes.NotReady:
        namesrv.stop()
        raise
    return Running(
        "PocketMQ", broker.address, broker.process.pid, broker.boot_seconds, lambda: (broker.stop(), namesrv.stop())
    )


def start_apache(version: str, folder: Path, flush_disk_type: str = "ASYNC_FLUSH") -> Running:
    peer = apache.start(version, folder, {"flushDiskType": flush_disk_type})
    return Running(f"Apache {version}", peer.broker_address, peer.broker.pid, peer.boot_seconds, peer.stop)


def start_floor(binary: Path, folder: Path) -> Running:
    process, address = floor.start(binary, folder)
    return Running("floor", address, process.pid, 0, lambda: apache.terminate(process))


def has_lane() -> bool:
    """Return whether `pocketmq.lane` exists and has a compiled module."""
    if (spec := importlib.util.find_spec("pocketmq.lane")) is None:
        return False
    files = [path for folder in spec.submodule_search_locations or () for path in Path(folder).iterdir()]
    return any(str(path).endswith(tuple(EXTENSION_SUFFIXES)) for path in (*files, spec.origin))


def ours(lane: str | None, flush_disk_type: str = "ASYNC_FLUSH") -> list[Contestant]:
    """Return the columns of PocketMQ. `lane`: 0, 1, None (as in the environment), or both, if there is a compiled lane."""
    names = {"PocketMQ": lane}
    if lane == "both":
        names = {"lane": "1", "Python": "0"} if has_lane() else {"PocketMQ": None}
    return [
        Contestant(name, partial(start_ours, flush_disk_type=flush_disk_type, lane=value), OURS_WARM_SHARE, is_ours=True)
        for name, value in names.items()
    ]


def theirs(version: str, flush_disk_type: str = "ASYNC_FLUSH") -> Contestant:
    return Contestant(f"Apache {version}", partial(start_apache, version, flush_disk_type=flush_disk_type))


def floor_in(folder: Path) -> Contestant | None:
    """Compile the floor in `folder`; None without a C compiler. Raises RuntimeError if it cannot be compiled."""
    if floor.available() is not None:
        return None
    return Contestant("floor (C)", partial(start_floor, floor.build(folder)), FLOOR_WARM_SHARE, is_floor=True)
