"""Restart of a broker with connected clients: consumed messages are not repeated, and the clients continue by themselves.

Java 4.9.4 and Go notice the end of the broker that held their pull only when the pull times out, after 30 s. Therefore
PocketMQ answers held pulls before it stops, and consumers continue within seconds. All clients share one restart.
"""

from collections.abc import Iterator

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import CPP, EACH_LANGUAGE, Drivers, toolchain_missing
from tests.interop.servers import Cluster, Flavour
from tests.interop.toolchain import ToolchainMissing
from tests.interop.wire import Connection

RESTARTED = (*EACH_LANGUAGE, CPP)
TOPIC = "Restart-topic"
BEFORE, AFTER = [f"before {n}" for n in range(20)], [f"after {n}" for n in range(8)]
GOES_ON_S = 20
GOES_ON_LATE_S = 60
"""Limit for Apache and for Go: they mostly continue at once, but once waited for one of their periods of 30 s."""


@pytest.fixture(scope="module")
def restarted(
    flavour: Flavour, tmp_path_factory: pytest.TempPathFactory, drivers: Drivers
) -> Iterator[dict[str, Driver | ToolchainMissing]]:
    """Each client's driver after the restart, with one consumer still running and one group stopped before."""
    cluster = Cluster(tmp_path_factory.mktemp("restarted"), flavour)
    try:
        cluster.start_broker()
        found: dict[str, Driver | ToolchainMissing] = {}
        for name in RESTARTED:
            try:
                with Connection(cluster.broker_address) as connection:
                    connection.create_topic(f"{TOPIC}-{name}", 4)
                found[name] = consume_before(drivers.get(name, cluster), name)
            except ToolchainMissing as missing:
                found[name] = missing
        cluster.stop_broker()
        cluster.start_broker()
        yield found
        drivers.close(cluster)
    finally:
        cluster.close()


def consume_before(client: Driver, name: str) -> Driver:
    topic = f"{TOPIC}-{name}"
    client.start_producer("p")
    client.send("p", topic, BEFORE)
    client.start_consumer("gone", f"{topic}-g1", topic)
    client.start_consumer("stays", f"{topic}-g2", topic)
    for consumer in ("gone", "stays"):
        client.wait_for(consumer, len(BEFORE))
    client.shutdown("gone")
    return client


@pytest.mark.parametrize("client_name", RESTARTED)
def test_offsets_survive_a_broker_restart(
    restarted: dict[str, Driver | ToolchainMissing], flavour: Flavour, client_name: str
) -> None:
    client = restarted[client_name]
    if isinstance(client, ToolchainMissing):
        toolchain_missing(f"{client_name}: {client}")
    topic = f"{TOPIC}-{client_name}"
    client.send("p", topic, AFTER)
    client.start_consumer("again", f"{topic}-g1", topic)
    assert {message.body for message in client.wait_for("again", len(AFTER))} == set(AFTER)

    limit_s = GOES_ON_LATE_S if flavour.name == "apache" or client_name in ("go_v2", CPP) else GOES_ON_S

    def went_on() -> bool:
        return set(AFTER) <= {message.body for message in client.received("stays")}

    client.wait_until(went_on, limit_s, lambda: f"{len(client.received('stays'))} messages at the consumer that stayed")
    assert len(client.received("again")) == len(AFTER), "the group got a message that it had consumed"
    client.shutdown("p", "stays", "again")
