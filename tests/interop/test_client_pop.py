"""The Java client that pops: its broker shares out the messages, and gives those of a dead consumer to another one."""

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from drivers import Drivers, toolchain_missing
from servers import CLUSTER_NAME, Cluster, Flavour
from toolchain import ToolchainMissing
from wire import SUCCESS, Connection

CLIENT = "java_5_5_0"  # 4.9.4 cannot pop
SET_MESSAGE_REQUEST_MODE = 401
QUEUES = 4
INVISIBLE_MS = 10_000
CONSUMED, HELD = 200, 1000
PATIENCE_S = 120
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC, REVIVE_GROUP, REVIVE_QUEUES = f"rmq_sys_REVIVE_LOG_{CLUSTER_NAME}", "CID_RMQ_SYS_REVIVE_GROUP", 8


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def popped(cluster: Cluster, topic: str, group: str) -> int:
    """How many messages were handed out for the first time."""
    with Connection(cluster.broker_address) as connection:
        return sum(max(connection.consumer_offset(group, topic, queue_id), 0) for queue_id in range(QUEUES))


def acks_taken(cluster: Cluster) -> int:
    """How many acks wait in the timer, or did."""
    with Connection(cluster.broker_address) as connection:
        return sum(record.properties["TAGS"] == "ack" for record in connection.read_queue(TIMER_TOPIC, 0))


def nothing_is_open(cluster: Cluster, acks: int) -> bool:
    """Whether so many acks came out of the timer, and all that was popped is acknowledged or was stored again."""
    found = 0
    with Connection(cluster.broker_address) as connection:
        for queue_id in range(REVIVE_QUEUES):
            records = connection.read_queue(REVIVE_TOPIC, queue_id)
            if records and connection.consumer_offset(REVIVE_GROUP, REVIVE_TOPIC, queue_id) < records[-1].queue_offset:
                return False
            found += sum(record.properties["TAGS"] == "ack" for record in records)
    return found == acks


def test_what_a_dead_consumer_held_comes_to_another_one_once(
    drivers: Drivers, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("pop"), flavour)
    topic, group = "Pops", "popping"
    consumed, held = [f"consumed {number}" for number in range(CONSUMED)], [f"held {number}" for number in range(HELD)]
    pops = {"pop": INVISIBLE_MS}
    try:
        cluster.start_broker()
        with Connection(cluster.broker_address) as connection:
            connection.create_topic(topic, QUEUES)
            connection.subscribe(group, topic)
            mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
            assert connection.ask(SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode()).code == SUCCESS
            for number, body in enumerate(consumed):
                connection.send(topic, number % QUEUES, body.encode())
        client = drivers.another(CLIENT, cluster)
        client.start_consumer("good", group, topic, **pops)
        assert {message.body for message in client.wait_for("good", CONSUMED, PATIENCE_S)} == set(consumed)
        wait(lambda: acks_taken(cluster) == CONSUMED, "what is consumed to be acknowledged")
        client.close()

        dying = drivers.another(CLIENT, cluster)
        try:
            dying.start_consumer("hangs", group, topic, hang="true", **pops)
            with Connection(cluster.broker_address) as connection:
                for number, body in enumerate(held):
                    connection.send(topic, number % QUEUES, body.encode())
            wait(lambda: popped(cluster, topic, group) == CONSUMED + HELD, "everything to be popped")
        finally:
            dying.kill()
        cluster.stop_broker()
        cluster.start_broker()

        client = drivers.another(CLIENT, cluster)
        client.start_consumer("heir", group, topic, **pops)
        client.wait_for("heir", HELD, PATIENCE_S)
        wait(lambda: nothing_is_open(cluster, CONSUMED + HELD), "all acks to be read")
        counts = Counter(message.body for message in client.received("heir"))
        assert counts == Counter(held), "each once, and none that was acknowledged"
        assert {message.topic for message in client.received("heir")} == {topic}
        assert {message.reconsume_times for message in client.received("heir")} == {1}
        client.close()
    except ToolchainMissing as missing:
        toolchain_missing(f"{CLIENT}: {missing}")
    finally:
        drivers.close(cluster)
        cluster.close()
