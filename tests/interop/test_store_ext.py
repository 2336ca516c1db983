"""Rare parts of a store, consumequeue_ext and light queues, written by one broker and served by the other.

The brokers write in turn and are stopped or killed. Each serves what all earlier ones wrote: by queue offset, by tag,
delayed messages when they are due, and the progress of a light group.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.interop.servers import WITHOUT_TIMERS, Apache, Cluster, Pocketmq
from tests.interop.wire import Connection
from tests.interop.workload import wait_for_bodies
from tests.support.amount import cases

TOPIC, DELAYED, COUNT = "Ext-topic", "Ext-delayed", 60
LIGHT, LIGHT_GROUP = "%LMQ%ext", "%LMQ%group"
KINDS = {
    "ext": {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 400},
    "light": {"enableMultiDispatch": "true", "enableLmq": "true"},
}
LEVEL = 2  # 5 s: longer than the stop of a broker, shorter than the start of the next one and the first query


@pytest.fixture
def started(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """Makes clusters with PocketMQ's name server; the fixture `apache` skips the test if there is no Java."""
    made: list[Cluster] = []

    def make(kind: str) -> Cluster:
        made.append(Cluster(tmp_path_factory.mktemp("ext"), Pocketmq(), **KINDS[kind], **WITHOUT_TIMERS))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def send(connection: Connection, life: int) -> None:
    for number in range(life * COUNT, (life + 1) * COUNT):
        properties = {"TAGS": f"T{number % 3}"}
        if number % 2:
            properties["INNER_MULTI_DISPATCH"] = LIGHT
        connection.send(TOPIC, 0, b"%d" % number, properties)
    connection.send(DELAYED, 0, b"delayed %d" % life, {"DELAY": str(LEVEL), "TAGS": "D"})


def check(connection: Connection, count: int, kind: str, light_count: int) -> None:
    connection.wait_for_max_offset(TOPIC, 0, count)
    assert [record.body for record in connection.read_queue(TOPIC, 0)] == [b"%d" % number for number in range(count)]
    for tag in range(3):
        found = connection.read_queue(TOPIC, 0, expression=f"T{tag}")
        assert [record.body for record in found] == [b"%d" % number for number in range(tag, count, 3)]
    if kind == "light":
        light = [record.body for record in connection.read_queue(LIGHT, 0)]
        assert light[: light_count // 2] == [b"%d" % number for number in range(1, light_count, 2)]


@pytest.mark.parametrize(
    ("kind", "version", "direction", "ending"),
    [
        ("ext", "4.9.4", "from_apache", "stop"),
        *cases([], [("light", "4.9.4", "to_apache", "stop")]),
        ("light", "5.5.0", "from_apache", "kill"),  # its stop takes 20 s
    ],
)
def test_consume_queue_ext_and_lmq_queues_are_exchanged(
    started: Callable[[str], Cluster], kind: str, version: str, direction: str, ending: str
) -> None:
    ours, theirs = Pocketmq(), Apache(version)
    lives = (ours, theirs, ours) if direction == "to_apache" else (theirs, ours, theirs)
    cluster = started(kind)
    light_count = 0
    for life, broker in enumerate(lives):
        cluster.start_broker(broker)
        with Connection(cluster.broker_address) as connection:
            if life == 0:
                connection.create_topic(TOPIC, 1)
                connection.create_topic(DELAYED, 1)
            check(connection, life * COUNT, kind, light_count)
            if kind == "light" and ending == "stop" and life:
                assert connection.consumer_offset(LIGHT_GROUP, LIGHT, 0) == life
            wait_for_bodies(connection, cluster.store, {f"delayed {earlier}": DELAYED for earlier in range(life)})
            send(connection, life)
            # 4.9.4 counts light queues from 0 again after a restart, and omits units that it then takes for existing ones.
            if life == 0 or (broker is ours and light_count == life * COUNT):
                light_count += COUNT
            check(connection, (life + 1) * COUNT, kind, light_count)
            if kind == "light":
                connection.commit(LIGHT_GROUP, LIGHT, 0, life + 1)
        if ending == "stop":
            cluster.stop_broker()
        else:
            cluster.kill_broker()
    if kind == "ext" and ending == "stop":
        # Units without a queue unit are truncated before others are written: 19 fit into a file.
        assert len(list((cluster.store / "consumequeue_ext" / TOPIC / "0").iterdir())) == 3 * COUNT // 19 + 1
