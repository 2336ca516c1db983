"""Tests of the C++ client where the shared ones (marked `with_cpp`) do not fit.

Its new groups start at the end of a broadcast topic, which its C interface cannot change. Its batches have no ids.
"""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.driver import Driver, Received
from tests.interop.drivers import CPP, Drivers, needed
from tests.interop.servers import Cluster
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

RETRY_MS = 10_000  # the broker's delay of the first retry


@pytest.fixture
def cpp(cluster: Cluster, drivers: Drivers) -> Driver:
    with needed(CPP):
        return drivers.get(CPP, cluster)


def test_every_kind_of_send(cpp: Driver, topic: str, named: Callable[[str], str]) -> None:
    producer = named("p")
    cpp.start_producer(producer)
    bodies = [f"sync {number} ü" for number in range(3)]
    sync = cpp.send(producer, topic, bodies, tags=["A"], keys=["k-0", "k-1", "k-2"], **{"property.colour": "blau ü"})
    asynchronous = cpp.send(producer, topic, [f"async {number}" for number in range(20)], kind="async", tags=["B"])
    oneway = cpp.send(producer, topic, [f"oneway {number}" for number in range(5)], kind="oneway", tags=["C"])
    [batch] = cpp.send(producer, topic, [f"batch {number}" for number in range(10)], kind="batch", keys=["b"])
    [large] = cpp.send(producer, topic, ["large "], size=1 << 20)
    assert {one.status for one in (*sync, *asynchronous, batch, large)} == {"SEND_OK"}
    cpp.start_consumer(named("c"), named("g"), topic)
    received = cpp.wait_for(named("c"), 39)
    got = {message.body: message for message in received}
    wanted = [one.body for one in (*sync, *asynchronous, *oneway)] + batch.body.split(",")
    assert Counter(message.body for message in received) == Counter([*wanted, None])
    assert got[None].body_size == 1 << 20
    for number, one in enumerate(sync):
        message = got[one.body]
        assert (message.msg_id, message.queue_offset) == (one.msg_id, one.queue_offset)
        assert (message.tags, message.keys, message.properties["colour"]) == ("A", f"k-{number}", "blau ü")
    members = [got[body] for body in batch.body.split(",")]
    assert [member.queue_offset for member in members] == list(range(batch.queue_offset, batch.queue_offset + 10))
    assert {(member.queue_id, member.keys) for member in members} == {(members[0].queue_id, "b")}
    cpp.shutdown(producer, named("c"))


def test_broadcast_reaches_every_consumer(cpp: Driver, topic: str, named: Callable[[str], str]) -> None:
    cpp.start_producer(named("p"))
    for name in "ab":
        cpp.start_consumer(named(name), named("g"), topic, model="BROADCASTING")

    def bodies(name: str) -> list[str | None]:
        return [message.body for message in cpp.received(named(name))]

    deadline, number = time.monotonic() + PATIENCE_S, 0
    while not all(f"{number}:{queue_id}" in bodies(name) for name in "ab" for queue_id in range(4)):
        assert time.monotonic() < deadline, f"{bodies('a')}, {bodies('b')}"
        number += 1
        for queue_id in range(4):
            cpp.send(named("p"), topic, [f"{number}:{queue_id}"], queueId=queue_id)
        time.sleep(0.5)
    wanted = [f"all {each}" for each in range(20)]
    cpp.send(named("p"), topic, wanted)
    for name in "ab":
        cpp.wait_until(
            lambda name=name: set(wanted) <= set(bodies(name)), PATIENCE_S, lambda: f"{bodies('a')}, {bodies('b')}"
        )
        assert not [body for body, count in Counter(bodies(name)).items() if count > 1]
    cpp.shutdown(named("p"), named("a"), named("b"))


def test_failed_message_is_redelivered(cpp: Driver, connection: Connection, topic: str, named: Callable[[str], str]) -> None:
    connection.create_topic(f"%RETRY%{named('g')}", 1)  # a client that does not find it at once checks again after 20 s
    cpp.start_producer(named("p"))
    cpp.send(named("p"), topic, ["good", "bad"], tags=["T"], keys=["k"])
    cpp.start_consumer(named("c"), named("g"), topic, fail=["bad"], failTimes=1)

    def received() -> list[Received]:
        return [message for message in cpp.received(named("c")) if message.body == "bad"]

    # Of the others a client that is given its queues again at its start may get one twice.
    cpp.wait_until(lambda: len(received()) > 1, PATIENCE_S, lambda: str(cpp.received(named("c"))))
    tries = received()
    assert [(one.reconsume_times, one.topic, one.tags, one.keys) for one in tries] == [
        (at, topic, "T", "k") for at in (0, 1)
    ]
    assert tries[1].arrived_at - tries[0].arrived_at >= RETRY_MS - 1
    cpp.shutdown(named("p"), named("c"))
