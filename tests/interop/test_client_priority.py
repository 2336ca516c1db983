"""Message priority with 5.5.0's client: the cases of Apache's PopPriorityIT.

With ``--server=apache`` the broker is 5.5.0's with a name server of 4.9.4, to verify what the tests expect.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.interop.driver import Driver, Received, Sent
from tests.interop.drivers import Drivers, needed
from tests.interop.patience import wait
from tests.interop.servers import Apache, Cluster, Flavour
from tests.interop.wire import Connection
from tests.support.amount import cases

CLIENT = "java_5_5_0"  # 4.9.4 knows neither priorities nor pops
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
QUEUES = 8
INVISIBLE_MS, SHORT_MS, POLL_MS = 60_000, 2_000, 20_000
PATIENCE_S = 60
SETTINGS = {"timerWheelEnable": "true", "popConsumerKVServiceEnable": "false", "popConsumerKVServiceInit": "false"}


class Priorities:
    """A topic of type PRIORITY on a broker, a producer, and a group that pops."""

    def __init__(self, client: Driver, cluster: Cluster, name: Callable[[str], str]) -> None:
        self.client, self.address, self.broker = client, cluster.broker_address, cluster.broker_name
        self.topic, self.group, self.producer = name("topic"), name("g"), name("p")
        with Connection(self.address) as connection:
            connection.create_topic(self.topic, QUEUES, attributes="+message.type=PRIORITY")
        self.set_group()
        client.start_producer(self.producer)

    def set_group(self, **attributes: str) -> None:
        row = {"groupName": self.group, "attributes": {f"+priority.{name}": value for name, value in attributes.items()}}
        with Connection(self.address) as connection:
            connection.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(row).encode())

    def send(self, *priorities: int) -> list[Sent]:
        bodies = [f"p{priority}" for priority in priorities]
        return self.client.send(self.producer, self.topic, bodies, priority=[str(priority) for priority in priorities])

    def pop(self, count: int = 1, invisible_ms: int = INVISIBLE_MS, poll_ms: int = 0) -> list[str | None]:
        return [message.body for message in self.received(count, invisible_ms, poll_ms)]

    def received(self, count: int, invisible_ms: int, poll_ms: int = 0) -> list[Received]:
        return self.client.pop(self.address, self.topic, self.group, count, invisible_ms, poll_ms, self.broker)

    def collect(self, count: int, invisible_ms: int = INVISIBLE_MS) -> list[str | None]:
        """Pop one by one, waiting for each message."""
        return [body for _ in range(count) for body in self.pop(1, invisible_ms, POLL_MS)]


@pytest.fixture(scope="module")
def clusters(
    drivers: Drivers, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[dict[str, str]], Cluster]]:
    """Starts a broker with some settings, once for all tests that need the same; all have one name server and one client."""
    running: dict[tuple[tuple[str, str], ...], Cluster] = {}

    def cluster_with(settings: dict[str, str]) -> Cluster:
        key = tuple(sorted(settings.items()))
        if key not in running:
            first, name = next(iter(running.values()), None), f"broker-{len(running)}"
            folder = tmp_path_factory.mktemp("priority")
            cluster = running[key] = Cluster(folder, flavour, None, first, brokerName=name, **settings)
            cluster.start_broker(Apache("5.5.0") if flavour.name == "apache" else None)
        return running[key]

    yield cluster_with
    for cluster in running.values():
        drivers.close(cluster)
        cluster.close()


@pytest.fixture
def started(
    drivers: Drivers,
    flavour: Flavour,
    named: Callable[[str], str],
    clusters: Callable[[dict[str, str]], Cluster],
) -> Callable[..., Priorities]:
    def start(**settings: str) -> Priorities:
        cluster = clusters({**(SETTINGS if flavour.name == "apache" else {}), **settings})
        with needed(CLIENT):
            return Priorities(drivers.get(CLIENT, cluster), cluster, named)

    return start


def test_priority_decides_the_queue_and_the_order(started: Callable[..., Priorities]) -> None:
    path = started()
    sent = path.send(*range(QUEUES), QUEUES, 100)
    assert [one.queue_id for one in sent] == [*range(QUEUES), QUEUES - 1, QUEUES - 1]
    assert path.collect(len(sent)) == ["p7", "p8", "p100", *(f"p{priority}" for priority in range(6, -1, -1))]
    assert path.pop() == []


def test_later_message_of_higher_priority_overtakes(started: Callable[..., Priorities]) -> None:
    path = started()
    path.send(1, 1, 1, 0)
    assert path.collect(1) == ["p1"]
    path.send(5, 3)
    assert path.pop(32, poll_ms=POLL_MS) == ["p5", "p3", "p1", "p1", "p0"]


def test_lowest_queue_comes_first_without_ascending_order(started: Callable[..., Priorities]) -> None:
    path = started(priorityOrderAsc="false")
    path.send(7, 3, 0, 5)
    assert path.collect(4) == ["p0", "p3", "p5", "p7"]


def test_priority_factor_zero_gives_each_queue_its_turn(started: Callable[..., Priorities]) -> None:
    path = started()
    path.set_group(factor="0")
    path.send(*(priority for priority in range(QUEUES) for _ in range(QUEUES)))
    found = path.collect(QUEUES * QUEUES)
    assert Counter(found) == {f"p{priority}": QUEUES for priority in range(QUEUES)}
    assert found != sorted(found, key=str, reverse=True)


def test_priority_factor_is_changed_while_messages_wait(started: Callable[..., Priorities]) -> None:
    path = started()
    path.set_group(factor="0")
    path.send(*(priority for priority in range(QUEUES) for _ in range(2)))
    path.collect(QUEUES // 2)
    path.set_group(factor="100")
    rest = path.collect(2 * QUEUES - QUEUES // 2)
    assert rest == sorted(rest, key=str, reverse=True)


def test_message_without_priority_goes_by_its_own_queue(started: Callable[..., Priorities]) -> None:
    path = started()
    sent = path.client.send(path.producer, path.topic, ["plain"] * QUEUES)
    assert len({one.queue_id for one in sent}) > 1
    assert Counter(path.collect(QUEUES)) == {"plain": QUEUES}


@pytest.mark.parametrize(
    ("probability", "wanted"), cases([("100", ["p7", "p0"])], [("0", ["p0", "p7"]), ("100", ["p7", "p0"])])
)
def test_place_of_retries_is_a_setting(started: Callable[..., Priorities], probability: str, wanted: list[str]) -> None:
    path = started(popFromRetryProbabilityForPriority=probability)
    path.send(7)
    assert path.collect(1, SHORT_MS) == ["p7"]
    [again] = path.received(1, SHORT_MS, POLL_MS)
    assert (again.body, again.reconsume_times) == ("p7", 1)
    wait(lambda: _is_stored_again(path, 2), "p7 to be stored again", PATIENCE_S)
    path.send(0)
    assert path.collect(2) == wanted


@pytest.mark.parametrize("with_v2", cases(["true"], ["false", "true"]))
def test_separate_retry_queues_keep_the_priority(started: Callable[..., Priorities], with_v2: str) -> None:
    path = started(useSeparateRetryQueue="true", enableRetryTopicV2=with_v2)
    path.send(0, 3, 7, 5)
    assert path.pop(32, SHORT_MS, POLL_MS) == ["p7", "p5", "p3", "p0"]
    wait(lambda: _is_stored_again(path, 4, with_v2), "the messages to be stored again", PATIENCE_S)
    again = [path.received(1, INVISIBLE_MS, POLL_MS)[0] for _ in range(4)]
    assert [(message.body, message.queue_id) for message in again] == [("p7", 7), ("p5", 5), ("p3", 3), ("p0", 0)]
    assert {path.client.acknowledge(path.address, path.group, _in_retry_topic(one, path, with_v2)) for one in again} == {
        "OK"
    }


@pytest.mark.parametrize(("ascending", "wanted"), [
    ("true", [*range(2 * QUEUES - 1, -1, -1)]),
    pytest.param("false", [*range(QUEUES, 2 * QUEUES), *range(QUEUES)], marks=pytest.mark.long),
])  # fmt: skip
def test_topic_is_expanded_while_retries_wait(started: Callable[..., Priorities], ascending: str, wanted: list[int]) -> None:
    path = started(useSeparateRetryQueue="true", priorityOrderAsc=ascending)
    path.send(*range(QUEUES))
    assert len(path.pop(32, SHORT_MS, POLL_MS)) == QUEUES
    wait(lambda: _is_stored_again(path, QUEUES), "the messages to be stored again", PATIENCE_S)
    with Connection(path.address) as connection:
        connection.create_topic(path.topic, 2 * QUEUES, attributes="+message.type=PRIORITY")
    path.send(*range(QUEUES, 2 * QUEUES))
    found = path.received(32, INVISIBLE_MS, POLL_MS)
    assert [(one.body, one.queue_id) for one in found] == [(f"p{priority}", priority) for priority in wanted]
    assert [one.reconsume_times for one in found] == [int(priority < QUEUES) for priority in wanted]


def _retry_topic(path: Priorities, with_v2: str) -> str:
    return f"%RETRY%{path.group}{'+' if with_v2 == 'true' else '_'}{path.topic}"


def _is_stored_again(path: Priorities, count: int, with_v2: str = "false") -> bool:
    with Connection(path.address) as connection:
        topic = _retry_topic(path, with_v2)
        return sum(connection.max_offset(topic, queue_id) for queue_id in range(QUEUES)) == count


def _in_retry_topic(message: Received, path: Priorities, with_v2: str) -> Received:
    return dataclasses.replace(message, topic=_retry_topic(path, with_v2))
