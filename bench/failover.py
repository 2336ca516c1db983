"""Failover of consumers from a master to its slave, with a pair of PocketMQ and with one of Apache 4.9.4.

    python -m bench.failover

Clients of Java 4.9.4, Java 5.5.0 and Go, with their default intervals, and PocketMQ's own client consume from the same pair.
Each is paused while a backlog is stored and copied; then the clients are resumed, and the master is killed (or stopped). The
gap of a client is the longest time without a message in one of its queues after the master has ended. Later the master is
started again and gets a message for each queue: the time from their acknowledgement until the last of them has arrived is
measured.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import MessageExt
from tests.interop.driver import Driver
from tests.interop.drivers import CLIENTS, Drivers
from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq
from tests.interop.test_replication import log_end, wait_until
from tests.interop.wire import SEND_BATCH_MESSAGE, SUCCESS, Connection, batch_body, send_fields

QUEUES, FIRST, BACKLOG, BATCH = 4, 40, 20_000, 100
GAP_S_MAX = 300
OWN = "pocketmq"
ENDINGS = ("kill -9", "stop")
DEFAULT_INTERVALS = {"JAVA_TOOL_OPTIONS": "-Ddriver.pollNameServerIntervalMs=30000"}

Arrivals = dict[int, list[float]]
"""Times in ms (wall clock) at which messages arrived, by queue id."""


class Client(Protocol):
    """A running consumer of one topic."""

    topic: str

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def arrivals(self) -> Arrivals: ...
    def close(self) -> None: ...


class DriverClient:
    """A client of Apache's in a process of its own."""

    def __init__(self, driver: Driver, topic: str) -> None:
        self.topic = topic
        self.pause, self.resume, self.close = driver.pause, driver.resume, driver.kill
        self._driver = driver
        driver.start_consumer("c", f"{topic}-group", topic)

    def arrivals(self) -> Arrivals:
        found: Arrivals = defaultdict(list)
        for message in self._driver.received("c"):
            found[message.queue_id].append(message.arrived_at_ms)
        return found


class OwnClient:
    """PocketMQ's client in a thread. Its listener waits while it is paused, as a signal cannot stop a single thread."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self.topic = topic
        self._arrivals: Arrivals = defaultdict(list)
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()
        self._gate.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = asyncio.run_coroutine_threadsafe(self._start(namesrv), self._loop).result(30)

    async def _start(self, namesrv: str) -> PushConsumer:
        consumer = PushConsumer(namesrv, f"{self.topic}-group", start="first")
        consumer.subscribe(self.topic, self._listen)
        await consumer.start()
        return consumer

    async def _listen(self, message: MessageExt) -> None:
        await self._gate.wait()
        self._arrivals[message.queue_id].append(time.time() * 1000)

    def pause(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.clear)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def arrivals(self) -> Arrivals:
        return {queue_id: list(times) for queue_id, times in list(self._arrivals.items())}

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._consumer.close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def count(client: Client) -> int:
    return sum(map(len, client.arrivals().values()))


def wait_for(clients: list[Client], wanted: int) -> None:
    deadline = time.monotonic() + GAP_S_MAX
    while any(count(client) < wanted for client in clients):
        if time.monotonic() > deadline:
            raise TimeoutError(", ".join(f"{client.topic}: {count(client)} of {wanted}" for client in clients))
        time.sleep(0.05)


def send(broker: Cluster, topic: str, wanted: int) -> None:
    """Send messages to all queues in turn, in batches."""
    with Connection(broker.broker_address) as connection:
        for number in range(0, wanted, BATCH):
            batch = [(b"%d" % one, {}) for one in range(number, min(number + BATCH, wanted))]
            for queue_id in range(QUEUES):
                fields, body = {**send_fields(topic, queue_id), "m": "true"}, batch_body(batch[queue_id::QUEUES])
                while body and connection.call(SEND_BATCH_MESSAGE, fields, body).code != SUCCESS:
                    time.sleep(0.05)  # Apache refuses sends when the machine is busy


@contextmanager
def pair(flavour: Flavour, folder: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Run a name server, a master and a slave."""
    master = Cluster(folder / "master", flavour, brokerRole="ASYNC_MASTER")
    slave = Cluster(folder / "slave", flavour, None, master, brokerRole="SLAVE", brokerId=1)
    try:
        master.start_broker()
        slave.start_broker()
        yield master, slave
    finally:
        slave.close()
        master.close()


def longest_gap_ms(arrivals: Arrivals, since_ms: float) -> float:
    """Return the longest time between two messages of a queue, or between `since_ms` and the first."""
    gaps = []
    for times in arrivals.values():
        later = [since_ms, *sorted(at_ms for at_ms in times if at_ms > since_ms)]
        gaps += [after - before for before, after in zip(later, later[1:], strict=False)]
    return max(gaps)


def fail_over(master: Cluster, slave: Cluster, clients: list[Client], ending: str) -> dict[str, tuple[float, float]]:
    """End the master and start it again; return by topic the gap and the time to return to the master, in ms."""
    for client in clients:
        send(master, client.topic, FIRST)
    wait_for(clients, FIRST)
    for client in clients:
        client.pause()
        send(master, client.topic, BACKLOG)
    with Connection(master.broker_address) as at_master, Connection(slave.broker_address) as at_slave:
        wait_until("the slave has the log", lambda: log_end(at_slave) == log_end(at_master))
        topics = at_master.topic_table().keys()
        wait_until("the slave has the topics", lambda: topics <= at_slave.topic_table().keys())
    for client in clients:
        client.resume()
    ended_ms = time.time() * 1000
    if ending == "stop":
        master.stop_broker()
    else:
        master.kill_broker()
    wait_for(clients, FIRST + BACKLOG)
    gaps = {client.topic: longest_gap_ms(client.arrivals(), ended_ms) for client in clients}
    master.start_broker()
    sent_ms = {}
    for client in clients:
        send(master, client.topic, QUEUES)
        sent_ms[client.topic] = time.time() * 1000
    wait_for(clients, FIRST + BACKLOG + QUEUES)
    return {
        client.topic: (gaps[client.topic], max(map(max, client.arrivals().values())) - sent_ms[client.topic])
        for client in clients
    }


def measure(flavour: Flavour, ending: str) -> dict[str, tuple[float, float]]:
    """Run one failover with all clients."""
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as name, pair(flavour, Path(name)) as (master, slave):
        drivers, clients = Drivers(Path(name) / "drivers"), list[Client]()
        for client in (*CLIENTS, OWN):
            with Connection(master.broker_address) as connection:
                connection.create_topic(client, QUEUES)
        try:
            time.sleep(1)  # 4.9.4's broker registers a topic after it has answered
            for client in CLIENTS:
                clients.append(DriverClient(drivers.another(client, master, **DEFAULT_INTERVALS), client))
            clients.append(OwnClient(master.namesrv_address, OWN))
            return fail_over(master, slave, clients, ending)
        finally:
            for running in clients:
                running.resume()
                running.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="failovers of each kind (3)")
    parser.add_argument("--alone", action="store_true", help="do not measure Apache 4.9.4")
    options = parser.parse_args()
    flavours: dict[str, Flavour] = {"PocketMQ": Pocketmq()} | ({} if options.alone else {"Apache 4.9.4": Apache()})
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for round_number in range(options.rounds):
        for ending in ENDINGS:
            for name, flavour in flavours.items():
                for client, times in measure(flavour, ending).items():
                    found[client, ending, name].append(times)
                    print(
                        f"round {round_number}: {name}, {ending}, {client}: {times[0]:,.0f} and {times[1]:,.0f} ms",
                        flush=True,
                    )
    table = Table(
        "client", "end of the master", "pair", "gap, median ms", "gap, longest ms", "back, median ms", "back, longest ms"
    )
    for (client, ending, name), rows in sorted(found.items()):
        columns = zip(*rows, strict=True)
        cells = [f"{figure:,.0f}" for column in columns for figure in (statistics.median(column), max(column))]
        table.add_row(client, ending, name, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
