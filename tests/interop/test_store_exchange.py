"""A store goes from one broker to the other: ours wrote it and Apache 4.9.4 serves it, and the reverse.

The store holds what a life leaves: several CommitLog files, queues, an index, a topic with its own queue count, progress of
a group, delayed messages not yet due. The first broker ends cleanly or by kill -9, and the second recovers.
"""

import random
from collections.abc import Callable, Iterator

import pytest
from driver import Driver
from drivers import Drivers
from mqadmin import Mqadmin
from servers import Apache, Cluster, Flavour
from wire import Connection

TOPIC, QUEUES, COUNT = "Exchange-topic", 3, 600
PLAIN_QUEUES, CONSUMED = 4, 20
GROUP = "Exchange-group"


@pytest.fixture
def exchanged(
    flavour: Flavour, tmp_path_factory: pytest.TempPathFactory, drivers: Drivers
) -> Iterator[Callable[[Flavour], Cluster]]:
    """Makes a cluster whose broker is of the given kind; small CommitLog files, so that there are several."""
    made: list[Cluster] = []

    def make(first: Flavour) -> Cluster:
        folder = tmp_path_factory.mktemp("exchange")
        made.append(Cluster(folder, first, mappedFileSizeCommitLog=1 << 20, maxMessageSize=1 << 16))
        made[-1].start_broker()
        return made[-1]

    yield make
    for cluster in made:
        drivers.close(cluster)
        cluster.close()


def write(cluster: Cluster, driver: Driver) -> dict[tuple[int, int], tuple[bytes, str, str]]:
    """Fills the store: (queue, queue offset) -> body, tags, keys."""
    rng = random.Random(7)
    written = {}
    with Connection(cluster.broker_address) as connection:
        connection.create_topic(TOPIC, QUEUES)
        connection.create_topic(f"{TOPIC}-plain", PLAIN_QUEUES)
        for number in range(COUNT):
            body = f"{number}:".encode() + rng.randbytes(rng.randrange(0, 8000))
            queue_id, tags = number % QUEUES, f"T{number % 5}"
            properties = {"KEYS": f"ex-{number} all", "TAGS": tags, "colour": "grün"}
            answer = connection.send(TOPIC, queue_id, body, properties)
            written[queue_id, int(answer.ext["queueOffset"])] = (body, tags, properties["KEYS"])
    driver.start_producer("Exchange-producer")
    driver.send("Exchange-producer", f"{TOPIC}-plain", [f"consumed {n}" for n in range(CONSUMED)])
    driver.start_consumer("Exchange-first", GROUP, f"{TOPIC}-plain")
    driver.wait_for("Exchange-first", CONSUMED)
    driver.shutdown("Exchange-first")
    driver.send("Exchange-producer", f"{TOPIC}-plain", [f"waiting {n}" for n in range(10)])
    driver.send("Exchange-producer", f"{TOPIC}-plain", ["delayed"], delayLevel=3)
    return written


def committed(cluster: Cluster) -> list[int]:
    """The group's consumer offset of each queue, as the broker knows it."""
    with Connection(cluster.broker_address) as connection:
        return [connection.consumer_offset(GROUP, f"{TOPIC}-plain", queue_id) for queue_id in range(PLAIN_QUEUES)]


def check(
    cluster: Cluster, driver: Driver, mqadmin: Mqadmin, written: dict[tuple[int, int], tuple[bytes, str, str]],
    progress: list[int] | None,
) -> None:  # fmt: skip
    with Connection(cluster.broker_address) as connection:
        served = {
            (record.queue_id, record.queue_offset): (record.body, record.properties["TAGS"], record.properties["KEYS"])
            for queue_id in range(QUEUES)
            for record in connection.read_queue(TOPIC, queue_id)
        }
    assert served == written
    for number in (0, COUNT // 2, COUNT - 1):
        key = mqadmin.run(cluster.namesrv_address, "queryMsgByKey", "-t", TOPIC, "-k", f"ex-{number}")
        queue_id, queue_offset = key.splitlines()[1].split()[-2:]
        assert written[int(queue_id), int(queue_offset)][2] == f"ex-{number} all"
        shown = mqadmin.run(cluster.namesrv_address, "queryMsgByOffset", "-t", TOPIC, "-b", "broker-interop", "-i", queue_id,
                            "-o", queue_offset)  # fmt: skip
        assert f"[ex-{number} all]" in shown
    driver.start_producer("Exchange-later")
    driver.send("Exchange-later", f"{TOPIC}-plain", ["new"])
    driver.start_consumer("Exchange-second", GROUP, f"{TOPIC}-plain")
    expected = {f"waiting {n}" for n in range(10)} | {"delayed", "new"}

    def bodies() -> list[str | None]:
        return [message.body for message in driver.received("Exchange-second")]

    driver.wait_until(lambda: expected <= set(bodies()), 40, lambda: f"{expected} in {bodies()}")
    if progress is not None:
        # A consumer that is shut down right after its last message may not have committed that one.
        assert len(bodies()) == len(expected) + CONSUMED - sum(progress), "the group goes on where it was"


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("direction", ["to_apache", "from_apache"])
def test_store_exchange_java_4_9_4(
    exchanged: Callable[[Flavour], Cluster], flavour: Flavour, apache: Apache, drivers: Drivers, mqadmin: Mqadmin,
    direction: str, ending: str,
) -> None:  # fmt: skip
    first, second = (flavour, apache) if direction == "to_apache" else (apache, flavour)
    cluster = exchanged(first)
    driver = drivers.get("java_4_9_4", cluster)
    written = write(cluster, driver)
    progress = committed(cluster)
    assert len(list((cluster.store / "commitlog").iterdir())) >= 3
    if ending == "stop":
        cluster.stop_broker()
    else:
        cluster.kill_broker()
    cluster.start_broker(second)
    if ending == "stop":  # after a crash some of the progress, written every 5 s, may be lost
        assert committed(cluster) == progress
    check(cluster, driver, mqadmin, written, progress if ending == "stop" else None)
