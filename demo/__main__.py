"""`make demo`: two servers, a standard client that sends and consumes messages of all kinds, a gRPC client that consumes
some of them, too, and Spark over the resulting store.

The last line is `DEMO OK ...`; otherwise the exit code is not 0 and the last line gives the reason.
"""

import contextlib
import csv
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from demo import clients
from demo.tour import DELAYED, Tour
from pocketmq.cli import processes
from pocketmq.cli.processes import Patience

HOME = Path("demo-store").absolute()
MARK = ".made-by-pocketmq-demo"
TOUR_IDLE_S, TOUR_MAX_S = 100, 900
REPORT_IDLE_S, REPORT_MAX_S = 300, 7200
POLL_S = 0.5
ROWS_SHOWN_MAX = 20
COMMIT_LOG_FILE_SIZE = 16 << 20
SHARED = "keyed"
"""Kind of the messages that a gRPC client consumes, too."""
GRPC = re.compile(r"^gRPC: (\S+)", re.MULTILINE)

console = Console(highlight=False, soft_wrap=True)


class DemoFailed(RuntimeError):
    """A step of the demonstration failed; the message tells what happened and where to look."""


def main() -> None:
    began = time.monotonic()
    try:
        last_line = demonstrate()
    except (DemoFailed, processes.NotReady, OSError) as failure:
        console.print(f"[bold red]DEMO FAILED[/] {_plain(str(failure))}")
        sys.exit(1)
    console.print(f"[dim]{time.monotonic() - began:.0f} s in all[/]")
    print(last_line)


def demonstrate() -> str:
    """Run the demonstration and return its last line. Raises DemoFailed, NotReady, OSError."""
    step("1. A client")
    client = clients.choose(lambda text: console.print(f"   {_plain(text)}"))
    console.print(f"   using {client.name}")
    prepare_folder()
    with contextlib.ExitStack() as running:
        step("2. Two processes on free ports")
        namesrv = processes.start_namesrv(HOME)
        running.callback(namesrv.stop)
        settings = {"brokerName": "demo", "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_SIZE), "grpcServerPort": "0"}
        broker = processes.start_broker(HOME, namesrv.address, settings)
        running.callback(broker.stop)
        for server in (namesrv, broker):
            console.print(f"   {server.name:8}{server.address}  ready after {server.boot_seconds:.2f} s")

        step("3. Plain, tagged, keyed, delayed, ordered and batched messages, sent and consumed")
        tour = run_tour(client, namesrv.address, broker.address)
        show(tour)
        if complaints := tour.complaints():
            raise DemoFailed("; ".join(complaints) + f"\n   the output of servers and client is in {HOME}")

        step("4. A gRPC client of RocketMQ 5 consumes one of these topics, too")
        grpc_consumed = run_grpc_consumer(broker, tour.sent.get(SHARED, 0))

        step("5. The broker stops")
        if (code := broker.stop()) != 0:
            raise DemoFailed(f"the broker ended with {code}; see {broker.out}")
        console.print("   cleanly: all messages are in the files")

    step("6. Spark reads the store; no broker is running")
    report = run_report()
    rows, popped, lag = int(report["rows"]), popped_records(), int(report["consumer_lag"])
    sent, delayed = sum(tour.sent.values()), tour.sent.get(DELAYED, 0)
    if rows - popped != sent + delayed:  # a delayed message is in the log twice: as sent, and as delivered
        raise DemoFailed(
            f"Spark read {rows - popped} records of messages instead of {sent + delayed}: {sent} messages were sent, and "
            f"{delayed} delayed ones among them are stored twice"
        )
    if lag != 0:
        raise DemoFailed(f"the groups' offsets are {lag} messages behind, though all were consumed")
    console.print(
        f"   {rows} records = {sent} messages + {delayed} scheduled copies of the delayed ones + {popped} records of the "
        "broker about messages that the gRPC client had in hand"
    )
    if not client.is_standard:
        console.print(
            "\n[bold yellow]No standard client is available on this machine[/]: PocketMQ's own client was used. To use "
            f"one, install {clients.JAVA_MISSING}, and run this again."
        )
    return (
        f"DEMO OK client={client.name} sent={sent} consumed={sum(tour.consumed.values())} delayed={delayed} "
        f"late_max_ms={max(tour.late_all_ms, default=0)} store_late_max_ms={max(tour.store_late_all_ms, default=0)} "
        f"grpc_consumed={grpc_consumed} spark_rows={rows} lag={lag} store={HOME / 'store'}"
    )


def step(title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


def prepare_folder() -> None:
    """Create an empty folder for this run; a folder that the demonstration did not create is not touched."""
    if HOME.exists():
        if not (HOME / MARK).exists():
            raise DemoFailed(f"{HOME} exists and was not made by the demonstration: move it away and run this again")
        shutil.rmtree(HOME)
    HOME.mkdir()
    (HOME / MARK).touch()


def run_tour(client: clients.Client, namesrv: str, broker: str) -> Tour:
    """Run the client's program to its end; its standard error goes to a file."""
    tour = Tour()
    errors = HOME / "client.err"
    with open(HOME / "client.out", "wb") as stdout, open(errors, "wb") as stderr:
        command = client.command(namesrv, broker, HOME)
        exit_code = run_while_it_works(command, TOUR_IDLE_S, TOUR_MAX_S, stdout, stderr)
    for line in (HOME / "client.out").read_text(errors="replace").splitlines():
        tour.hear(line)
    if exit_code is None:
        raise DemoFailed(f"the {client.name} client did not end; see {errors}")
    if exit_code != 0 and not tour.complaints():
        output = errors.read_text(errors="replace")[-1500:]
        raise DemoFailed(f"the {client.name} client ended with {exit_code}: {output}")
    return tour


def run_grpc_consumer(broker: processes.Server, sent: int) -> str:
    """Have a gRPC client consume the messages of SHARED, which another group has consumed. Returns their number as text."""
    command_of = clients.grpc_consumer(lambda text: console.print(f"   {_plain(text)}"))
    if command_of is None:
        return "none"
    endpoint = GRPC.search(broker.out.read_text(errors="replace"))
    if endpoint is None:
        raise DemoFailed(f"the broker has no gRPC port; see {broker.out}")
    topic = f"Tour{SHARED.capitalize()}"
    command, environment = command_of(endpoint[1], topic, sent)
    out, errors = HOME / "grpc.out", HOME / "grpc.err"
    with open(out, "wb") as stdout, open(errors, "wb") as stderr:
        environment = {**os.environ, **environment, "HOME": str(HOME)}
        exit_code = run_while_it_works(command, TOUR_IDLE_S, TOUR_MAX_S, stdout, stderr, environment)
    consumed = out.read_text(errors="replace").strip()
    if exit_code != 0 or consumed != str(sent):
        raise DemoFailed(f"the gRPC client consumed {consumed or 0} of {sent} messages of {topic}; see {errors}")
    console.print(f"   {sent} messages of {topic}: sent by remoting, consumed by remoting, and by gRPC at {endpoint[1]}")
    return consumed


def show(tour: Tour) -> None:
    """Print the messages sent and consumed by kind, and the lateness of delayed messages."""
    counts = Table("kind", "sent", "consumed", title="messages", title_justify="left")
    for kind, number in sorted(tour.sent.items()):
        counts.add_row(kind, str(number), str(tour.consumed.get(kind, 0)))
    console.print(counts)

    late = Table(
        title="lateness by delay: ms from the due time until stored for consumers, and until consumed", title_justify="left"
    )
    late.add_column("delayed message")
    columns = []
    for delay in sorted(tour.late_ms):
        columns += [tour.store_late_ms[delay], tour.late_ms[delay]]
        late.add_column(f"{delay} s: stored", justify="right")
        late.add_column(f"{delay} s: consumed", justify="right")
    rows = max(map(len, columns), default=0)
    if rows <= ROWS_SHOWN_MAX:
        for row in range(rows):
            late.add_row(str(row + 1), *(str(column[row]) if row < len(column) else "" for column in columns))
        late.add_section()
    for name, of in (("median", statistics.median_low), ("most", max)):
        late.add_row(name, *(str(of(column)) for column in columns))
    console.print(late)


def run_report() -> dict[str, Any]:
    """Run `python -m pocketmq.spark_analytics report`, showing its output; return its totals."""
    out = HOME / "report"
    command = [sys.executable, "-m", "pocketmq.spark_analytics", "report", str(HOME / "store"), "--engine", "spark"]
    command += ["--out", str(out)]
    console.print(f"   [dim]$ {_plain(' '.join(['python', *command[1:]]))}[/]")
    exit_code = run_while_it_works([*command, "--master", "local[2]"], REPORT_IDLE_S, REPORT_MAX_S)
    if exit_code is None:
        raise DemoFailed("the Spark report did not end")
    if exit_code != 0:
        raise DemoFailed(f"the Spark report ended with {exit_code}; see its output above")
    totals: dict[str, Any] = json.loads((out / "report.json").read_text())
    return totals


def popped_records() -> int:
    """Return the number of records that the broker itself stored about popped messages, from the report's table."""
    with open(HOME / "report" / "volume.csv", newline="") as table:
        return sum(int(row["messages"]) for row in csv.DictReader(table) if row["topic"].startswith("rmq_sys_"))


def run_while_it_works(
    command: list[str], idle_s: float, max_s: float, stdout: IO[bytes] | None = None, stderr: IO[bytes] | None = None,
    environment: dict[str, str] | None = None,
) -> int | None:  # fmt: skip
    """Run a command; return its exit code, or None if it was killed after `idle_s` without work, or after `max_s`."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment) as process:
        patience = Patience(process.pid, idle_s, max_s)
        try:
            while process.poll() is None and not patience.is_over():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        finally:
            is_given_up = process.poll() is None
            if is_given_up:
                process.kill()
    return None if is_given_up else process.returncode


def _plain(text: str) -> str:
    """Escape brackets for a console that interprets markup."""
    return text.replace("[", "\\[")


if __name__ == "__main__":
    main()
