"""Ownership of queues within a group, observed by which consumer gets a message of each queue; for any client library."""

import time
from collections import Counter
from collections.abc import Callable

from tests.interop.driver import Driver

QUEUES = 4
SHARED_ANEW_S = 19  # below the 20 s after which clients rebalance by themselves, so the broker must have notified them


class Rounds:
    """Consumers ``a`` and ``b`` of one group on a topic of four queues. A round is one message to each queue."""

    def __init__(self, client: Driver, topic: str, named: Callable[[str], str]) -> None:
        self._client, self._topic, self._named = client, topic, named
        self.sent: list[str] = []

    def wait_for_shares(self, shares: dict[str, int]) -> None:
        """Sends rounds until each consumer owns the given number of queues."""
        deadline = time.monotonic() + SHARED_ANEW_S
        while Counter(owners := self._owners_of_a_round()) != shares:
            assert time.monotonic() < deadline, f"owners of the queues after {SHARED_ANEW_S} s: {owners}"
            time.sleep(0.1)

    def bodies(self, name: str) -> list[str]:
        return [message.body or "" for message in self._client.received(self._named(name))]

    def got(self) -> list[str]:
        return self.bodies("a") + self.bodies("b")

    def _owners_of_a_round(self) -> list[str]:
        bodies = [str(len(self.sent) + queue_id) for queue_id in range(QUEUES)]
        for queue_id, body in enumerate(bodies):
            self._client.send(self._named("p"), self._topic, [body], queueId=queue_id)
        self.sent += bodies
        self._client.wait_until(lambda: set(bodies) <= set(self.got()), 40, lambda: f"{bodies} in {self.got()}")
        return [name for body in bodies for name in "ab" if body in self.bodies(name)]
