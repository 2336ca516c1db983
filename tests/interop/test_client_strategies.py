"""Two consumers of a group share four queues by each allocation strategy of the client libraries.

They compute the allocation from the broker's list of consumers: each message goes to exactly one of them, the right one.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import Drivers, each_language, needed
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

QUEUES = 4
ROOM = "here"
TOLD = ([3], [0, 1, 2])
SHARES: dict[str, tuple[list[int], list[int]] | None] = {
    "AVERAGELY": ([0, 1], [2, 3]),
    "CIRCLE": ([0, 2], [1, 3]),
    "CONFIG": TOLD,
    "ROOM": ([0, 1], [2, 3]),  # of brokers whose name begins with the room
    "NEARBY": ([0, 1], [2, 3]),
    "HASH": None,  # depends on the hash of the ids
}


@pytest.fixture(scope="session")  # tests are ordered by client: a module fixture would be made three times
def room(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("room"), flavour, brokerName=f"{ROOM}@broker")
    try:
        running.start_broker()
        yield running
    finally:
        running.close()


@each_language
def test_queues_are_shared_by_every_strategy(client_name: str, room: Cluster, drivers: Drivers) -> None:
    with needed(client_name), Connection(room.broker_address) as connection:
        client = drivers.another(client_name, room)
        try:
            topics = {strategy: f"Shared-{client_name}-{strategy}" for strategy in SHARES}
            for strategy, topic in topics.items():
                connection.create_topic(topic, QUEUES)
                start(client, strategy, topic)
            open_strategies, deadline = set(SHARES), time.monotonic() + PATIENCE_S
            for number in itertools.count():
                for strategy in sorted(open_strategies):
                    if is_shared(client, connection, strategy, topics[strategy], f"round {number}"):
                        open_strategies.discard(strategy)
                if not open_strategies:
                    break
                assert time.monotonic() < deadline, f"wrong shares: {open_strategies}"
        finally:
            client.close()


def start(client: Driver, strategy: str, topic: str) -> None:
    for index, name in enumerate("ab"):
        how: dict[str, object] = {"strategy": strategy, "room": ROOM}
        if strategy == "CONFIG":
            how["queueId"] = TOLD[index]
        client.start_consumer(consumer_name(strategy, name), f"{topic}-g", topic, **how)


def is_shared(client: Driver, connection: Connection, strategy: str, topic: str, body: str) -> bool:
    """Whether each consumer gets the messages of exactly the queues allocated by the strategy."""
    for queue_id in range(QUEUES):
        connection.send(topic, queue_id, body.encode())

    def queues() -> list[list[int]]:
        received = (client.received(consumer_name(strategy, name)) for name in "ab")
        return [sorted(one.queue_id for one in messages if one.body == body) for messages in received]

    client.wait_until(lambda: sum(map(len, queues())) >= QUEUES, PATIENCE_S, lambda: f"{body} of {strategy}")
    a, b = queues()
    return sorted(a + b) == list(range(QUEUES)) and SHARES[strategy] in (None, (a, b))


def consumer_name(strategy: str, name: str) -> str:
    """Return an id that begins with the room, where NEARBY expects it."""
    return f"{ROOM}.{strategy}-{name}"
