"""Requests and replies between processes with different client libraries: in time, too late, to a client that has died."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.interop.driver import Driver, DriverError, Received
from tests.interop.drivers import CLIENTS, Drivers, each_language
from tests.interop.servers import CLUSTER_NAME, Cluster
from tests.interop.wire import GET_PRODUCER_CONNECTION_LIST, SUCCESS, Connection
from tests.patience import PATIENCE_S

REPLY_TOPIC = f"{CLUSTER_NAME}_REPLY_TOPIC"


class Replier:
    """A consumer of requests with its producer, in a separate process with another client library."""

    def __init__(self, client: Driver, topic: str, name: str) -> None:
        self._client, self._name = client, name
        self._seen = 0
        client.start_producer(f"{name}-p")
        client.start_consumer(name, f"{name}-g", topic)

    def next(self) -> Received:
        self._seen += 1
        return self._client.wait_for(self._name, self._seen)[-1]

    def reply(self, asked: Received, body: str) -> str:
        return self._client.reply(f"{self._name}-p", asked, body).offset_msg_id

    def close(self) -> None:
        self._client.shutdown(f"{self._name}-p", self._name)


@pytest.fixture
def replier(client_name: str, client: Driver, cluster: Cluster, drivers: Drivers, topic: str) -> Replier:
    other = CLIENTS[(CLIENTS.index(client_name) + 1) % len(CLIENTS)]
    return Replier(drivers.get(other, cluster), topic, f"{client_name}-replier")


def has_producers(connection: Connection, group: str) -> bool:
    answer = connection.call(GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
    return answer.code == SUCCESS and json.loads(answer.body)["connectionSet"] != []


def wait_for_producer(connection: Connection, group: str, *, known: bool = True) -> None:
    """Waits for the producer's registration: a Go client sends its heartbeat only some time after its first send."""
    deadline = time.monotonic() + PATIENCE_S
    while has_producers(connection, group) != known:
        assert time.monotonic() < deadline, f"waited in vain for producers of {group}: {known}"
        time.sleep(0.05)


@each_language
def test_replies_in_time_too_late_and_to_a_dead_client(
    client: Driver, client_name: str, cluster: Cluster, drivers: Drivers, connection: Connection, topic: str,
    replier: Replier, named: Callable[[str], str],
) -> None:  # fmt: skip
    asker = named("asker")
    client.start_producer(asker, group=asker)
    with ThreadPoolExecutor() as threads:
        waiting: Future[Received] = threads.submit(client.request, asker, topic, "how much?")
        asked = replier.next()
        assert asked.body == "how much?"
        wait_for_producer(connection, asker)
        offset_msg_id = replier.reply(asked, "seven")
        got = waiting.result(PATIENCE_S)
    assert (got.body, got.topic) == ("seven", REPLY_TOPIC)
    assert got.properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
    assert int(got.properties["PUSH_REPLY_TIME"]) <= int(got.properties["ARRIVE_TIME"])
    (stored,) = (r for r in connection.read_queue(REPLY_TOPIC, 0) if r.physical_offset == int(offset_msg_id[16:], 16))
    assert (stored.body, stored.properties["CORRELATION_ID"]) == (b"seven", asked.properties["CORRELATION_ID"])

    with pytest.raises(DriverError, match="wait reply message timeout"):
        client.request(asker, topic, "anybody?", timeout_ms=500)
    replier.reply(replier.next(), "too late")  # accepted, but the client no longer waits for it

    dying, dead = drivers.another(client_name, cluster), named("dead")
    dying.start_producer(dead, group=dead)
    threading.Thread(target=ask_and_die, args=(dying, dead, topic), daemon=True).start()
    asked = replier.next()
    wait_for_producer(connection, dead)
    dying.kill()
    wait_for_producer(connection, dead, known=False)
    with pytest.raises(DriverError, match="push reply message fail, channel of <.*> not found"):
        replier.reply(asked, "to nobody")
    replier.close()
    client.shutdown(asker)


def ask_and_die(client: Driver, producer: str, topic: str) -> None:
    with pytest.raises(RuntimeError, match="the driver ended"):
        client.request(producer, topic, "last words")
