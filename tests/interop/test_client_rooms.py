"""Two brokers in two machine rooms: consumers with allocation by room read the queues of their own room.

The room of a broker is part of its name, ``room@broker``. Clients compute the allocation from the route and from the
broker's list of consumers: these tests check both with two brokers at once.
"""

import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import Drivers, each_language, needed
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import CLUSTER_NAME, Cluster, Flavour
from tests.interop.wire import GET_ROUTE, Connection
from tests.patience import PATIENCE_S

ROOMS = ("north", "south")
QUEUES = 4  # of a topic, in each room
Shares = dict[str, list[str]]

# Go takes a room's queues from the front of all queues of the topic, so only the first room's groups get their own.
ROOMS_READ = {"java_4_9_4": ROOMS, "java_5_5_0": ROOMS, "go_v2": ROOMS[:1]}


def queues(room: str, *queue_ids: int) -> list[str]:
    return [f"{room}/{queue_id}" for queue_id in queue_ids]


NORTH_A, NORTH_B, SOUTH = "north.a", "north.b", "south.c"
NEARBY: Shares = {NORTH_A: queues("north", 0, 1), NORTH_B: queues("north", 2, 3), SOUTH: queues("south", 0, 1, 2, 3)}
SOUTH_LEFT: Shares = {
    NORTH_A: queues("north", 0, 1) + queues("south", 0, 1),
    NORTH_B: queues("north", 2, 3) + queues("south", 2, 3),
}
# Go's NEARBY works like AVERAGELY in this release: shares cross rooms.
GO_NEARBY: Shares = {
    NORTH_A: queues("north", 0, 1, 2),
    NORTH_B: queues("north", 3) + queues("south", 0, 1),
    SOUTH: queues("south", 2, 3),
}
GO_SOUTH_LEFT: Shares = {NORTH_A: queues("north", 0, 1, 2, 3), NORTH_B: queues("south", 0, 1, 2, 3)}


class Building:
    """A broker in each room, one name server for both."""

    def __init__(self, folder: Path, flavour: Flavour) -> None:
        self.brokers: dict[str, Cluster] = {}
        for room in ROOMS:
            joins = next(iter(self.brokers.values()), None)
            self.brokers[room] = Cluster(folder / room, flavour, joins=joins, brokerName=f"{room}@broker")
        self.first = self.brokers[ROOMS[0]]

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start_broker()

    def create_topic(self, topic: str) -> None:
        for broker in self.brokers.values():
            with Connection(broker.broker_address) as connection:
                connection.create_topic(topic, QUEUES)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()


@pytest.fixture(scope="session")  # as in test_client_strategies
def building(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Building]:
    running = Building(tmp_path_factory.mktemp("building"), flavour)
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def client(client_name: str, building: Building, drivers: Drivers) -> Iterator[Driver]:
    with needed(client_name):
        running = drivers.another(client_name, building.first)
    yield running
    running.close()


class Rounds:
    """Consumers of a topic. A round is one message to each queue in each room, whose body is the queue's name."""

    def __init__(self, client: Driver, building: Building, topic: str) -> None:
        self._client, self._building, self._topic = client, building, topic
        self._numbers = itertools.count()

    def wait_for_shares(self, shares: Shares) -> None:
        """Send rounds until in two successive ones each consumer gets exactly the messages of its queues."""
        wanted = {name: sorted(its_queues) for name, its_queues in shares.items()}
        deadline = time.monotonic() + PATIENCE_S
        in_a_row = 0
        while in_a_row < 2:
            got = self._got_of_a_round(wanted)
            in_a_row = in_a_row + 1 if got == wanted else 0
            assert time.monotonic() < deadline, got

    def _got_of_a_round(self, wanted: Shares) -> Shares:
        number = next(self._numbers)
        with ExitStack() as stack:
            for room, broker in self._building.brokers.items():
                connection = stack.enter_context(Connection(broker.broker_address))
                for queue in queues(room, *range(QUEUES)):
                    connection.send(self._topic, int(queue[-1]), f"{queue} {number}".encode())

        def got() -> Shares:
            bodies = {name: [str(one.body).split() for one in self._client.received(name)] for name in wanted}
            return {
                name: sorted(queue for queue, of_round in its if of_round == str(number)) for name, its in bodies.items()
            }

        expected = {queue for its_queues in wanted.values() for queue in its_queues}
        self._client.wait_until(lambda: expected <= set().union(*got().values()), PATIENCE_S, lambda: f"{number}: {got()}")
        return got()


@each_language
def test_groups_by_machine_room(client_name: str, client: Driver, building: Building) -> None:
    """One group per room, as this strategy requires: it counts all consumers of a group, whichever rooms they select."""
    topic = f"Rooms-{client_name}"
    building.create_topic(topic)
    rounds = Rounds(client, building, topic)
    names = {room: [f"{room}.{topic}-{which}" for which in "ab"] for room in ROOMS_READ[client_name]}
    for room, (a, b) in names.items():
        for name in (a, b):
            client.start_consumer(name, f"{topic}-{room}", topic, strategy="ROOM", room=room)
    rounds.wait_for_shares({
        name: queues(room, *its_queues)
        for room, pair in names.items() for name, its_queues in zip(pair, ((0, 1), (2, 3)), strict=True)
    })  # fmt: skip
    for room, pair in names.items():
        rooms = {str(message.body).partition("/")[0] for name in pair for message in client.received(name)}
        assert rooms == {room}, "messages of another room"
    client.shutdown(*itertools.chain(*names.values()))


@each_language
def test_nearby_falls_back_on_other_rooms(client_name: str, client: Driver, building: Building) -> None:
    topic = f"Nearby-{client_name}"
    building.create_topic(topic)
    rounds = Rounds(client, building, topic)
    together, south_left = (GO_NEARBY, GO_SOUTH_LEFT) if client_name == "go_v2" else (NEARBY, SOUTH_LEFT)
    for name in together:
        client.start_consumer(name, f"{topic}-g", topic, strategy="NEARBY")
    rounds.wait_for_shares(together)
    client.shutdown(SOUTH)
    rounds.wait_for_shares(south_left)
    client.start_consumer(SOUTH, f"{topic}-g", topic, strategy="NEARBY")
    rounds.wait_for_shares(together)
    client.shutdown(*together)


def test_mqadmin_4_9_4_accepts_broker_names_with_a_room(building: Building, mqadmin: Mqadmin) -> None:
    """Commands with a broker name accept and show names with a room."""

    def admin(command: str, *arguments: str) -> str:
        return mqadmin.run(building.first.namesrv_address, command, *arguments)

    topic = "Rooms-mqadmin"
    printed = admin("updateTopic", "-c", CLUSTER_NAME, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
    for broker in building.brokers.values():
        assert f"create topic to {broker.broker_address} success." in printed
    rows = [row.split()[:4] for row in admin("clusterList").splitlines()[1:]]
    assert rows == [[CLUSTER_NAME, broker.broker_name, "0", broker.broker_address] for broker in building.brokers.values()]
    found = re.findall(r"^(\S+@broker)\s+(\d)\s+0\s+0\s", admin("topicStatus", "-t", topic), re.MULTILINE)
    assert sorted(found) == [(f"{room}@broker", str(queue_id)) for room in ROOMS for queue_id in range(QUEUES)]
    south = building.brokers["south"].broker_name
    assert perms(building, topic) == {"north@broker": 6, south: 6}
    printed = admin("wipeWritePerm", "-b", south)
    assert f"wipe write perm of broker[{south}] in name server[{building.first.namesrv_address}] OK" in printed
    assert perms(building, topic) == {"north@broker": 6, south: 4}
    printed = admin("addWritePerm", "-b", south)
    assert f"add write perm of broker[{south}] in name server[{building.first.namesrv_address}] OK" in printed
    assert perms(building, topic) == {"north@broker": 6, south: 6}


def perms(building: Building, topic: str) -> dict[str, int]:
    """Return broker name -> perm of a topic's queues, from its route."""
    with Connection(building.first.namesrv_address) as namesrv:
        route = json.loads(namesrv.ask(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"}).body)
    return {data["brokerName"]: data["perm"] for data in route["queueDatas"]}
