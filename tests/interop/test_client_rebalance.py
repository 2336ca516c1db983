"""A second consumer joins and leaves: the queues are reallocated each time, and no message is lost."""

from collections import Counter
from collections.abc import Callable

from tests.interop.driver import Driver
from tests.interop.drivers import with_cpp
from tests.interop.rounds import QUEUES, Rounds


@with_cpp
def test_rebalance_on_join_and_leave(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    client.start_producer(named("p"))
    rounds = Rounds(client, topic, named)
    client.start_consumer(named("a"), named("g"), topic)
    rounds.wait_for_shares({"a": QUEUES})
    client.start_consumer(named("b"), named("g"), topic)
    rounds.wait_for_shares({"a": QUEUES // 2, "b": QUEUES // 2})
    settled = len(rounds.sent)
    rounds.wait_for_shares({"a": QUEUES // 2, "b": QUEUES // 2})
    counts = Counter(rounds.got())
    assert all(counts[body] == 1 for body in rounds.sent[settled : settled + QUEUES]), "repeated without a rebalance"
    client.shutdown(named("b"))
    rounds.wait_for_shares({"a": QUEUES})
    assert set(rounds.got()) == set(rounds.sent), "a message is missing"
    client.shutdown(named("p"), named("a"))
