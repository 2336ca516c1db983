"""The official gRPC clients: command of the driver, cases that the client can do, fronts it is tested with."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.grpc import builds, installs

Environment = dict[str, str]
Rows = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Client:
    name: str
    command: Callable[[Path], list[str | Path]]
    """Returns the driver's command; builds or installs it first; gets the driver's home; may raise `ToolchainMissing`."""
    without: frozenset[str] = frozenset()
    """Cases that the client cannot do."""
    in_long: frozenset[str] = frozenset()
    """Cases that only `make test-long` and `--grpc-fronts` have: a driver in Java takes a JVM for each."""
    fronts: tuple[str, ...] = ("broker",)
    """Fronts that every run of the tests has; `make test-long` and `--grpc-fronts` have more."""
    environment: Callable[[], Environment] = dict
    """Returns variables beside HOME."""
    in_order: Rows = (("o0", 1), ("o1", 1), ("o1", 2), ("o2", 1), ("o3", 1))
    """Body and attempt of the messages consumed in order, whose listener fails once; the client itself delivers again."""
    groups: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Case -> more settings of the consumer group."""
    answers: frozenset[str] = frozenset()
    """What an administrator can ask a push consumer for: `stack`, `verify`."""


def _python(home: Path) -> list[str | Path]:
    return [sys.executable, Path(__file__).parent / "python" / "driver.py"]


def _python_environment() -> Environment:
    return {"PYTHONPATH": str(installs.python_packages())}


def _node(home: Path) -> list[str | Path]:
    return ["node", Path(__file__).parent / "node" / "driver.js"]


def _node_environment() -> Environment:
    return {"NODE_PATH": str(installs.node_modules())}


def _java(home: Path) -> list[str | Path]:
    return list(builds.java(home))


def _go(home: Path) -> list[str | Path]:
    return list(builds.go(home))


CLIENTS = {client.name: client for client in (
    Client(
        "python", _python, environment=_python_environment,
        in_order=(("o0", 1), ("o1", 1), ("o1", 1), ("o2", 1), ("o3", 1)),  # it does not count its own attempts
    ),
    Client(
        "node", _node, environment=_node_environment, fronts=("mqproxy",),
        # The client knows exponential policies only; with another one it has one attempt.
        groups={"fifo": {"groupRetryPolicy": {
            "type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 10_000, "multiplier": 2},
        }}},
    ),
    Client(
        "java", _java, answers=frozenset(("stack", "verify")),
        in_long=frozenset(("tag", "sql", "delay", "recall", "invisible", "dlq", "fifo-dlq", "hold", "orphan")),
    ),
    # It consumes the other messages that it received before it delivers a failed one again.
    Client(
        "go", _go, answers=frozenset(("stack",)), in_order=(("o0", 1), ("o1", 1), ("o2", 1), ("o3", 1), ("o3", 2)),
    ),
)}  # fmt: skip


def environment(client: Client, home: Path) -> Environment:
    """Return the environment of a driver, which writes its logs into a home of its own."""
    return {**os.environ, **client.environment(), "HOME": str(home)}
