"""Popping Java clients: the broker distributes the messages, and redelivers those of a dead consumer to another one."""

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.driver import Driver, Received
from tests.interop.drivers import Drivers, needed, toolchain_missing
from tests.interop.patience import wait
from tests.interop.servers import CLUSTER_NAME, Cluster, Flavour
from tests.interop.toolchain import ToolchainMissing
from tests.interop.wire import MAGIC_V2, SUCCESS, Connection

CLIENT = "java_5_5_0"  # 4.9.4 cannot pop
SET_MESSAGE_REQUEST_MODE = 401
QUEUES = 4
INVISIBLE_MS = 10_000
CONSUMED, HELD = 100, 400
PATIENCE_S = 120
BACK_IN_MS = 1_500
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC, REVIVE_GROUP, REVIVE_QUEUES = f"rmq_sys_REVIVE_LOG_{CLUSTER_NAME}", "CID_RMQ_SYS_REVIVE_GROUP", 8


def popped(cluster: Cluster, topic: str, group: str) -> int:
    """Returns the number of messages popped for the first time."""
    with Connection(cluster.broker_address) as connection:
        return sum(max(connection.consumer_offset(group, topic, queue_id), 0) for queue_id in range(QUEUES))


def acks_taken(cluster: Cluster) -> int:
    """Returns the number of acks that were put into the timer."""
    with Connection(cluster.broker_address) as connection:
        return sum(record.properties["TAGS"] == "ack" for record in connection.read_queue(TIMER_TOPIC, 0))


def nothing_is_open(cluster: Cluster, acks: int) -> bool:
    """Whether this number of acks was delivered by the timer, and all popped messages are acknowledged or stored again."""
    found = 0
    with Connection(cluster.broker_address) as connection:
        for queue_id in range(REVIVE_QUEUES):
            last = connection.max_offset(REVIVE_TOPIC, queue_id) - 1
            if last >= 0 and connection.consumer_offset(REVIVE_GROUP, REVIVE_TOPIC, queue_id) < last:
                return False
        for queue_id in range(REVIVE_QUEUES):
            found += sum(record.properties["TAGS"] == "ack" for record in connection.read_queue(REVIVE_TOPIC, queue_id))
    return found == acks


@pytest.fixture
def popper(cluster: Cluster, drivers: Drivers, flavour: Flavour) -> Driver:
    if flavour.name == "apache":
        pytest.skip("4.9.4's broker cannot pop")
    with needed(CLIENT):
        return drivers.get(CLIENT, cluster)


def bodies(messages: list[Received]) -> list[str | None]:
    return [message.body for message in messages]


def test_pops_in_order(popper: Driver, cluster: Cluster, connection: Connection, named: Callable[[str], str]) -> None:
    """A queue yields no further messages while some are unacknowledged; those made visible again come first."""
    topic, group, address = named("topic"), named("g"), cluster.broker_address
    connection.create_topic(topic, 1)
    for number in range(5):
        connection.send(topic, 0, f"m{number}".encode())
    popped = popper.pop_in_order(address, topic, group, "a")
    assert bodies(popped) == ["m0", "m1", "m2"]
    assert {message.reconsume_times for message in popped} == {0}
    assert popper.pop_in_order(address, topic, group, "b") == []
    popped = popper.pop_in_order(address, topic, group, "a")
    assert bodies(popped) == ["m0", "m1", "m2"], "a repeated attempt gets the same messages"
    assert [popper.acknowledge(address, group, message) for message in popped[:2]] == ["OK", "OK"]
    changed_at_ms = time.time() * 1000
    assert popper.change_invisible(address, group, popped[2], BACK_IN_MS) == "OK"
    assert popper.pop_in_order(address, topic, group, "c") == []
    popped = popper.pop_in_order(address, topic, group, "d", poll_ms=10_000)
    assert popped[0].arrived_at_ms - changed_at_ms >= BACK_IN_MS
    assert bodies(popped) == ["m2", "m3", "m4"]
    assert [message.reconsume_times for message in popped] == [1, 0, 0]
    assert [popper.acknowledge(address, group, message) for message in popped] == ["OK"] * 3
    assert popper.pop_in_order(address, topic, group, "e") == []


def test_forwarded_message_is_acknowledged_in_its_new_topic(
    popper: Driver, cluster: Cluster, connection: Connection, named: Callable[[str], str]
) -> None:
    """A client that forwards a popped message sends its handle too. The broker must not store it, because clients use a
    stored handle instead of a new one."""
    address, group = cluster.broker_address, named("g")
    first, second, third = named("first"), named("second"), named("third")
    for topic in (first, second, third):
        connection.create_topic(topic, 1)
    connection.send(first, 0, b"m")
    [popped] = popper.pop_in_order(address, first, group, "a")
    connection.send(second, 0, b"m", popped.properties)
    connection.send_batch(third, 0, [(b"m", popped.properties)])
    handles = [popped.properties["POP_CK"]]
    for topic in (second, third):
        [again] = popper.pop_in_order(address, topic, group, "a")
        handles.append(again.properties["POP_CK"])
        assert popper.acknowledge(address, group, again) == "OK"
        assert popper.pop_in_order(address, topic, group, "b") == [], "the message was not acknowledged"
    assert len(set(handles)) == 3


def test_orderly_listener_of_a_popping_group_consumes_in_order(
    popper: Driver, connection: Connection, named: Callable[[str], str]
) -> None:
    """The Java client does not pop for such a listener: it allocates the queues itself, locks them and pulls."""
    topic, group, consumer = named("topic"), named("g"), named("c")
    connection.create_topic(topic, QUEUES)
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    connection.ask(SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
    for number in range(5 * QUEUES):
        connection.send(topic, number % QUEUES, f"m{number}".encode())
    how = {"pop": INVISIBLE_MS, "orderly": "true", "fail": "m5", "failTimes": 1}
    popper.start_consumer(consumer, group, topic, **how)
    popper.wait_for(consumer, 5 * QUEUES + 1)
    popper.shutdown(consumer)
    for queue_id in range(QUEUES):
        wanted = [f"m{number}" for number in range(queue_id, 5 * QUEUES, QUEUES)]
        if queue_id == 5 % QUEUES:
            wanted.insert(1, "m5")
        assert bodies([message for message in popper.received(consumer) if message.queue_id == queue_id]) == wanted


def test_messages_held_by_a_dead_consumer_are_redelivered_once(
    drivers: Drivers, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("pop"), flavour)
    topic, group = f"Pops-{'t' * 60}", f"popping-{'g' * 60}"
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
        wait(lambda: acks_taken(cluster) == CONSUMED, "consumed messages to be acknowledged", PATIENCE_S)
        client.close()

        dying = drivers.another(CLIENT, cluster)
        try:
            dying.start_consumer("hangs", group, topic, hang="true", **pops)
            with Connection(cluster.broker_address) as connection:
                for number, body in enumerate(held):
                    connection.send(topic, number % QUEUES, body.encode())
            wait(lambda: popped(cluster, topic, group) == CONSUMED + HELD, "all messages to be popped", PATIENCE_S)
        finally:
            dying.kill()
        cluster.stop_broker()
        cluster.start_broker()

        client = drivers.another(CLIENT, cluster)
        client.start_consumer("heir", group, topic, **pops)
        client.wait_for("heir", HELD, PATIENCE_S)
        wait(lambda: nothing_is_open(cluster, CONSUMED + HELD), "all acks to be read", PATIENCE_S)
        counts = Counter(message.body for message in client.received("heir"))
        assert counts == Counter(held), "repeated, or already acknowledged"
        assert {message.topic for message in client.received("heir")} == {topic}
        assert {message.reconsume_times for message in client.received("heir")} == {1}
        with Connection(cluster.broker_address) as connection:
            [again, *_] = connection.read_queue(f"%RETRY%{group}_{topic}", 0)
            assert int.from_bytes(again.raw[4:8], "big", signed=True) == MAGIC_V2, "not V2, for a topic of over 127 bytes"
        client.close()
    except ToolchainMissing as missing:
        toolchain_missing(f"{CLIENT}: {missing}")
    finally:
        drivers.close(cluster)
        cluster.close()
