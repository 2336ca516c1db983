"""Push consumers: distribution of messages and latency."""

import statistics
import time
from collections.abc import Callable

from tests.interop.driver import Driver
from tests.interop.drivers import with_cpp
from tests.interop.rounds import QUEUES, Rounds
from tests.interop.wire import Connection

WAKE_SENDS = 50
WAKE_MS_MAX = 10
"""Limit of the quickest: the others may wait for the CPU."""
WAKE_MEDIAN_MS_MAX = 500
"""Below any time at which a broker looks at held pulls, or at which a client pulls again."""


@with_cpp
def test_push_clustering(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    """Two consumers of a group share the queues: each message goes to one of them."""
    client.start_producer(named("p"))
    rounds = Rounds(client, topic, named)
    for name in ("a", "b"):
        client.start_consumer(named(name), named("g"), topic)
    rounds.wait_for_shares({"a": QUEUES // 2, "b": QUEUES // 2})
    bodies = [f"m{number}" for number in range(40)]
    for queue_id in range(QUEUES):
        client.send(named("p"), topic, bodies[queue_id::QUEUES], queueId=queue_id)
    client.wait_until(lambda: set(bodies) <= set(rounds.got()), 30, lambda: f"{bodies} in {rounds.got()}")
    assert [sum(body in bodies for body in rounds.bodies(name)) for name in "ab"] == [20, 20]
    client.shutdown(named("p"), named("a"), named("b"))


def test_push_broadcasting(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    """Every consumer of a broadcasting group gets all messages."""
    bodies = {f"m{n}" for n in range(20)}
    client.start_producer(named("p"))
    client.send(named("p"), topic, sorted(bodies))
    for name in ("a", "b"):
        client.start_consumer(named(name), named("g"), topic, model="BROADCASTING")
    for name in ("a", "b"):
        assert {message.body for message in client.wait_for(named(name), 20)} == bodies
        assert len(client.received(named(name))) == 20
    client.shutdown(named("p"), named("a"), named("b"))


@with_cpp
def test_push_by_tags(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    """AaAa and BBBB have the same hash: the broker passes both, the client drops the unwanted tag."""
    tags = ["A", "B", "C", "AaAa", "BBBB", ""]
    client.start_producer(named("p"))
    client.send(named("p"), topic, [f"{tag}{n}" for n in range(5) for tag in tags], tags=tags * 5)
    client.start_consumer(named("some"), named("g1"), topic, expression="A || C || AaAa")
    client.start_consumer(named("all"), named("g2"), topic)
    client.wait_for(named("some"), 15)
    assert len(client.wait_for(named("all"), 30)) == 30
    assert sorted(message.tags for message in client.received(named("some"))) == ["A"] * 5 + ["AaAa"] * 5 + ["C"] * 5
    client.shutdown(named("p"), named("some"), named("all"))


def test_push_from_last_offset_of_a_young_queue(client: Driver, connection: Connection, named: Callable[[str], str]) -> None:
    """A new group starts at the first message of a queue whose old messages are still in memory."""
    topic = named("topic")
    connection.create_topic(topic, 1)
    client.start_producer(named("p"))
    client.send(named("p"), topic, ["before"])
    client.start_consumer(named("c"), named("g"), topic, **{"from": "last"})
    assert client.wait_for(named("c"), 1)[0].body == "before"
    client.shutdown(named("p"), named("c"))


@with_cpp
def test_push_consumer_gets_a_message_within_10_ms(
    client: Driver, connection: Connection, named: Callable[[str], str]
) -> None:
    """The time from the acknowledgement of a send to the listener, both in the client's process, while a pull is held."""
    topic = named("topic")
    connection.create_topic(topic, 1)
    client.start_producer(named("p"))
    client.start_consumer(named("c"), named("g"), topic)
    waits = []
    for number in range(10 + WAKE_SENDS):
        sent = client.send(named("p"), topic, [f"wake {number}"])[0]
        got = client.wait_for(named("c"), number + 1)[number]
        assert got.body == sent.body
        if number >= 10:
            waits.append(got.arrived_at - sent.acked_at)
        time.sleep(0.02)  # so that the next pull is held before the next send
    waits.sort()
    print(f"\nwake after ack: median {statistics.median(waits):.2f} ms, p90 {waits[int(WAKE_SENDS * 0.9)]:.2f} ms")
    assert waits[0] <= WAKE_MS_MAX and statistics.median(waits) <= WAKE_MEDIAN_MS_MAX, waits
    client.shutdown(named("p"), named("c"))
