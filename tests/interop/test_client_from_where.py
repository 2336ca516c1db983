"""Start offset of a new group: after the last message, or at a time. (The other tests start at the first message.)

A queue that still has its first message is read from there regardless of consumeFromWhere (4.9.4's `queryConsumerOffset`).
Therefore the first log files, with the first messages of the queues, are deleted before the test.
"""

import time
from collections.abc import Iterator

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import EACH_LANGUAGE, Drivers, each_language, needed
from tests.interop.patience import wait
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import Connection

DELETE_EXPIRED_COMMIT_LOG = 329
FILE_SIZE = 1 << 20
WHERE = ("last", "timestamp")
PATIENCE_S = 90  # Apache checks for deletable files for the first time after 60 s


def topic_of(client_name: str) -> str:
    return f"From-{client_name}"


@pytest.fixture(scope="session")  # tests are ordered by client: a module fixture would be made three times
def aged(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, int]]:
    """A broker whose queues lost their first message, and a time (epoch ms) between the two messages left."""
    keep_nothing = {"mappedFileSizeCommitLog": FILE_SIZE, "fileReservedTime": 0, "cleanResourceInterval": 200}
    cluster = Cluster(tmp_path_factory.mktemp("aged"), flavour, **keep_nothing)
    try:
        cluster.start_broker()
        with Connection(cluster.broker_address) as connection:
            for name in EACH_LANGUAGE:
                connection.create_topic(topic_of(name), 1)
                connection.send(topic_of(name), 0, b"gone")
            connection.create_topic("Filling", 1)
            for _ in range(3):
                connection.send("Filling", 0, bytes(FILE_SIZE * 3 // 4))
            for name in EACH_LANGUAGE:
                connection.send(topic_of(name), 0, b"old")
            connection.ask(DELETE_EXPIRED_COMMIT_LOG, {})
            for name in EACH_LANGUAGE:
                topic = topic_of(name)
                wait(lambda topic=topic: connection.min_offset(topic, 0) == 1, "the first message to be deleted", PATIENCE_S)
            moment_ms = (int(time.time()) + 2) * 1000  # clients send it in seconds, and 4.9.4's get the nearest message
            wait(lambda: time.time() * 1000 >= moment_ms, "the next second", PATIENCE_S)
            for name in EACH_LANGUAGE:
                connection.send(topic_of(name), 0, b"new")
        yield cluster, moment_ms
    finally:
        cluster.close()


def bodies(client: Driver, consumer: str) -> set[str]:
    return {message.body or "" for message in client.received(consumer)}


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
@each_language
def test_start_offset_of_a_new_group(client_name: str, model: str, aged: tuple[Cluster, int], drivers: Drivers) -> None:
    cluster, moment_ms = aged
    topic = topic_of(client_name)
    with needed(client_name), Connection(cluster.broker_address) as connection:
        client = drivers.get(client_name, cluster)
        for where in WHERE:
            how = {"from": where, "model": model, "timestampMs": moment_ms}
            client.start_consumer(f"{model}-{where}", f"{topic}-{model}-{where}", topic, **how)

        def last_one_reads() -> bool:
            connection.send(topic, 0, model.encode())
            return bool(client.received(f"{model}-last"))

        wait(last_one_reads, "a message for the consumer that begins at the end", PATIENCE_S)
        assert bodies(client, f"{model}-last") == {model}
        client.wait_until(
            lambda: bodies(client, f"{model}-timestamp") >= {"new", model}, PATIENCE_S, lambda: "the consumer with a time"
        )
        assert "old" not in bodies(client, f"{model}-timestamp")
        client.shutdown(*(f"{model}-{where}" for where in WHERE))
