"""Pull consumers: at an offset, held until a message arrives, and through a subscription."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import with_cpp
from tests.interop.servers import Flavour
from tests.interop.wire import Connection


@with_cpp
def test_pull_at_an_offset(client: Driver, client_name: str, connection: Connection, named: Callable[[str], str]) -> None:
    topic = named("topic")
    connection.create_topic(topic, 1)
    client.start_producer(named("p"))
    client.send(named("p"), topic, [f"m{n}" for n in range(10)], tags=["A", "B"] * 5)
    result = client.pull(topic, 0, 3, 4, group=named("g"))
    assert (result["status"], result["min"], result["max"], result["next"]) == ("FOUND", 0, 10, 7)
    assert [message.body for message in result["messages"]] == ["m3", "m4", "m5", "m6"]
    tagged = client.pull(topic, 0, 0, 32, group=named("gb"), expression="B")
    assert [message.body for message in tagged["messages"]] == ["m1", "m3", "m5", "m7", "m9"]
    beyond = client.pull(topic, 0, 1000, 32, group=named("g"))
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 10)
    if client_name != "go_v2":  # its pulls are always held
        at_end = client.pull(topic, 0, 10, 32, group=named("g"))
        assert (at_end["status"], at_end["next"], at_end["messages"]) == ("NO_NEW_MSG", 10, [])
    client.shutdown(named("p"))


def test_held_pull_is_answered_by_a_send(client: Driver, connection: Connection, named: Callable[[str], str]) -> None:
    topic = named("topic")
    connection.create_topic(topic, 1)
    client.start_producer(named("p"))
    client.send(named("p"), topic, ["before"])
    result: dict[str, Any] = {}
    client.pull(topic, 0, 0, 1, group=named("g"))
    puller = threading.Thread(target=lambda: result.update(client.pull(topic, 0, 1, 32, group=named("g"), block=True)))
    puller.start()
    puller.join(1)
    assert puller.is_alive(), "the pull was not held"
    client.send(named("p"), topic, ["wakes"])
    puller.join(10)
    assert [message.body for message in result["messages"]] == ["wakes"]
    client.shutdown(named("p"))


def test_poll_a_subscription(
    client: Driver, client_name: str, flavour: Flavour, topic: str, named: Callable[[str], str]
) -> None:
    """Java's lite pull consumer, Go's Poll."""
    if (flavour.name, client_name) == ("apache", "java_5_5_0"):
        pytest.skip("Java 5 uses LITE_PULL_MESSAGE (361), which Apache 4.9.4 does not know; PocketMQ does")
    client.start_producer(named("p"))
    client.send(named("p"), topic, [f"m{n}" for n in range(20)])
    client.call("lite", name=named("c"), group=named("g"), topic=topic)
    got = client.call("poll", name=named("c"), count=20, timeoutMs=20_000, topic=topic)
    assert sorted(message["body"] for message in got) == sorted(f"m{n}" for n in range(20))
    client.shutdown(named("p"), named("c"))


@pytest.mark.parametrize("client_name", ["java_4_9_4", "java_5_5_0"])  # the Go client neither views nor queries messages
def test_view_and_query(client: Driver, client_name: str, topic: str, named: Callable[[str], str]) -> None:
    client.start_producer(named("p"))
    one = client.send(named("p"), topic, ["find me", "and me"], keys=["needle", "needle other"])[0]
    viewed = client.call("view", producer=named("p"), topic=topic, msgId=one.offset_msg_id)
    assert (viewed["body"], viewed["msg_id"]) == ("find me", one.msg_id)
    found = client.call("query", producer=named("p"), topic=topic, key="needle")
    assert sorted(message["body"] for message in found) == ["and me", "find me"]
    client.shutdown(named("p"))
