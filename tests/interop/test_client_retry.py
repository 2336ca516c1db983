"""A message whose consumption fails is redelivered through %RETRY%, and ends in %DLQ%."""

import time
from collections.abc import Callable

from tests.interop.driver import Driver
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

LATE_MS_MAX = 8_000
"""Below the default pause, and above what a machine with much load needs."""


def wait_for_messages(connection: Connection, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while connection.max_offset(topic, 0) == 0:
        assert time.monotonic() < deadline, f"nothing in {topic} after {PATIENCE_S} s"
        time.sleep(0.05)


def test_retry_then_dead_letter(client: Driver, connection: Connection, topic: str, named: Callable[[str], str]) -> None:
    """One group requests 1 s between attempts, the other uses the broker's default (10 s the first time)."""
    quick, slow = named("quick"), named("slow")
    for group in (quick, slow):
        # A client that finds the topic in its first route consumes it at once; otherwise it checks again after 20 s.
        connection.create_topic(f"%RETRY%{group}", 1)
    client.start_producer(named("p"))
    client.send(named("p"), topic, ["good", "bad"], tags=["T"], keys=["k-good", "k-bad"])
    client.start_consumer(named("cq"), quick, topic, fail=["bad"], maxReconsume=2, delayLevel=1)
    client.start_consumer(named("cs"), slow, topic, fail=["bad"], maxReconsume=1)
    client.wait_for(named("cq"), 4)
    client.wait_for(named("cs"), 3)
    for consumer, attempts, pause_ms in (("cq", 3, 1000), ("cs", 2, 10_000)):
        tries = [message for message in client.received(named(consumer)) if message.body == "bad"]
        assert [one.reconsume_times for one in tries] == list(range(attempts))
        assert {(one.topic, one.tags, one.keys) for one in tries} == {(topic, "T", "k-bad")}
        pauses = [after.arrived_at - before.arrived_at for before, after in zip(tries, tries[1:], strict=False)]
        assert all(pause_ms - 1 <= pause <= pause_ms + LATE_MS_MAX for pause in pauses), pauses
        assert len(client.received(named(consumer))) == attempts + 1, "the other message was repeated"
    for group, reconsume_times in ((quick, 2), (slow, 1)):
        dead = f"%DLQ%{group}"
        wait_for_messages(connection, dead)
        [record] = connection.read_queue(dead, 0)
        assert (record.body, record.topic, record.reconsume_times) == (b"bad", dead, reconsume_times + 1)
        assert record.properties["RETRY_TOPIC"] == topic
        assert (record.properties["TAGS"], record.properties["KEYS"]) == ("T", "k-bad")
    client.shutdown(named("p"), named("cq"), named("cs"))
