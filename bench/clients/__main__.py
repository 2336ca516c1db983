"""`python -m bench.clients [--count 19200] [--rounds 3]`: CPU and speed of three Python clients at one PocketMQ broker.

Each client runs in a process of its own, in turn. CPU is that of the client's process alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import wire
from bench.clients.load import LOADS
from bench.grpc.sides import start_ours
from tests.interop import toolchain
from tests.interop.grpc import installs

SIZE, QUEUES = 1024, 8


def packages() -> dict[str, str]:
    """Return the folder of each client's package; they are installed once."""
    return {"pocketmq": "", "cpp": str(toolchain.cpp_package()), "grpc": str(installs.python_packages())}


def run(client: str, package: str, where: dict[str, str], topic: str, count: int) -> dict[str, Any]:
    """Return the figures of one run of a client."""
    command = [sys.executable, "-m", "bench.clients.load", client, "--topic", topic, "--count", str(count)]
    command += ["--size", str(SIZE), *(part for name, value in where.items() for part in (f"--{name}", value))]
    paths = [package, str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=19_200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console, folders = Console(), packages()
    figures: dict[str, list[dict[str, Any]]] = {client: [] for client in LOADS}
    with tempfile.TemporaryDirectory() as folder:
        serving = start_ours(Path(folder))
        namesrv = serving.namesrv
        try:
            for number in range(options.rounds):
                for client in LOADS:
                    console.print(f"round {number + 1}: {client}")
                    topic = f"clients-{client}-{number}"
                    wire.create_topic(serving.broker, topic, QUEUES)
                    where = {"namesrv": namesrv, "endpoint": serving.endpoint}
                    figures[client].append(run(client, folders[client], where, topic, options.count))
        finally:
            serving.stop()
    table = Table("client", "send, CPU us", "send, messages/s", "consume, CPU us", "consume, messages/s")
    for client, runs in figures.items():
        cells = []
        for part in ("send", "consume"):
            cpu = statistics.median(one[part]["cpu"] for one in runs)
            wall = statistics.median(one[part]["wall"] for one in runs)
            cells += [f"{cpu:.0f}", f"{1e6 / wall:,.0f}"]
        table.add_row(client, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
