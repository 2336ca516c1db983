"""A master with consumers is killed or stopped: they continue at its slave, later at the master; no message is lost.

Each client is stopped (SIGSTOP) while its last messages are sent to the master and copied to the slave. If the master is
killed, the client is resumed afterwards, and so gets most of them from the slave. A master that stops cleanly directs its
clients to the slave while they consume. All clients share one failover.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import EACH_LANGUAGE, Drivers, toolchain_missing
from tests.interop.servers import Cluster, Pocketmq
from tests.interop.test_replication import log_end, wait_until
from tests.interop.toolchain import ToolchainMissing
from tests.interop.wire import Connection
from tests.support.amount import cases

QUEUES = 4
BEFORE, STORED, AFTER = 40, 800, 40
"""Numbers of messages consumed before the master ends, stored by then, and sent after its return."""
GOES_ON_S = 90
"""Limit for a consumer to continue. The Go client refreshes its routes every 30 s."""
OF_MASTERS_ONLY = "go_v2"
"""The client that queries and stores offsets at masters only, and so cannot start without one."""
SLAVE: dict[str, object] = {"brokerId": 1, "brokerRole": "SLAVE"}


@dataclass
class Failover:
    """A client with its topic and group."""

    client: Driver
    topic: str
    group: str
    stores_at_slaves: bool

    def bodies(self, consumer: str = "stays") -> list[str | None]:
        return [message.body for message in self.client.received(consumer)]

    def offset(self, broker: Cluster) -> int:
        """Return the sum of the group's consumer offsets at a broker."""
        with Connection(broker.broker_address) as connection:
            return sum(max(connection.consumer_offset(self.group, self.topic, queue), 0) for queue in range(QUEUES))

    def wait_for_all(self, consumer: str, count: int) -> None:
        wanted = {str(number) for number in range(count)}
        self.client.wait_until(
            lambda: wanted <= set(self.bodies(consumer)),
            GOES_ON_S,
            lambda: f"{self.topic}: {consumer} has {len(set(self.bodies(consumer)))} of {count}",
        )

    def wait_for_offset(self, broker: Cluster, count: int) -> None:
        wait_until(f"{self.topic}: consumer offsets {count}", lambda: self.offset(broker) == count)


@pytest.fixture(scope="module", params=cases(["kill"], ["kill", "stop"]))
def failovers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, drivers: Drivers
) -> Iterator[dict[str, Failover | ToolchainMissing]]:
    """Each client after the failover, or why it could not be built."""
    master = Cluster(tmp_path_factory.mktemp("master"), Pocketmq())
    slave = Cluster(tmp_path_factory.mktemp("slave"), Pocketmq(), None, master, **SLAVE)
    try:
        master.start_broker()
        slave.start_broker()
        found: dict[str, Failover | ToolchainMissing] = {}
        for name in EACH_LANGUAGE:
            try:
                found[name] = consume_before(drivers.get(name, master), name, master)
            except ToolchainMissing as missing:
                found[name] = missing
        fail_over([one for one in found.values() if isinstance(one, Failover)], master, slave, request.param == "kill")
        yield found
        drivers.close(master)
    finally:
        slave.close()
        master.close()


def consume_before(client: Driver, name: str, master: Cluster) -> Failover:
    failover = Failover(client, f"Failover-{name}", f"Failover-{name}-g", name != OF_MASTERS_ONLY)
    with Connection(master.broker_address) as connection:
        connection.create_topic(failover.topic, QUEUES)
    client.start_consumer("stays", failover.group, failover.topic)
    send(master, failover, range(BEFORE))
    failover.wait_for_all("stays", BEFORE)
    return failover


def send(master: Cluster, failover: Failover, wanted: range) -> None:
    with Connection(master.broker_address) as connection:
        for number in wanted:
            connection.send(failover.topic, number % QUEUES, b"%d" % number)


def fail_over(failovers: list[Failover], master: Cluster, slave: Cluster, is_killed: bool) -> None:
    for failover in failovers:
        failover.client.pause()
        send(master, failover, range(BEFORE, STORED))
    with Connection(master.broker_address) as at_master, Connection(slave.broker_address) as at_slave:
        wait_until("the slave has the log", lambda: log_end(at_slave) == log_end(at_master))
        topics = at_master.topic_table().keys()
        wait_until("the slave has the topics", lambda: topics <= at_slave.topic_table().keys())
    if is_killed:
        master.kill_broker()
    for failover in failovers:
        failover.client.resume()
    if not is_killed:
        master.stop_broker()
    for failover in failovers:
        failover.wait_for_all("stays", STORED)
        if failover.stores_at_slaves:
            failover.wait_for_offset(slave, STORED)
            failover.client.start_consumer("late", f"{failover.topic}-late", failover.topic)
            failover.wait_for_all("late", STORED)
    master.start_broker()
    for failover in failovers:
        send(master, failover, range(STORED, STORED + AFTER))
    for failover in failovers:
        failover.wait_for_all("stays", STORED + AFTER)
        failover.wait_for_offset(master, STORED + AFTER)


@pytest.mark.parametrize("client_name", EACH_LANGUAGE)
def test_consumers_miss_no_message_in_failover(failovers: dict[str, Failover | ToolchainMissing], client_name: str) -> None:
    failover = failovers[client_name]
    if isinstance(failover, ToolchainMissing):
        toolchain_missing(f"{client_name}: {failover}")
    got = failover.bodies()
    assert set(got) == {str(number) for number in range(STORED + AFTER)}
    assert len(got) < STORED + AFTER + BEFORE, "messages consumed before came again"
