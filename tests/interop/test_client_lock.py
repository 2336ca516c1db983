"""An orderly consumer is killed: its queues go to another consumer of the group once its locks have expired.

With `--server=apache` the broker is 4.9.4's. Times are short here: by default a lock expires after 60 s, and clients renew
it every 20 s. The killed consumer has consumed a part of its queues, and is suspended at a message that fails.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import EACH_LANGUAGE, Drivers, needed
from tests.interop.patience import wait
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

LOCK_LIVE_S, ASK_EVERY_S = 5.0, 0.5
# From the expiry of the lock to the first message. Go checks for missing queues only every 20 s, and starts to pull from a
# new queue 3 s later. A machine with much load needs longer.
LATE_S = {"java_4_9_4": 30, "java_5_5_0": 30, "go_v2": 60}
CLIENT_OPTIONS = " ".join(
    f"-Drocketmq.client.rebalance.{name}={int(ASK_EVERY_S * 1000)}"
    for name in ("lockInterval", "waitInterval", "minInterval")
)
QUEUES = 2
BEFORE, AFTER = 200, 50  # messages of a queue
EARLY = 50  # messages consumed before the others are sent: the pulls of the others commit their offsets
STUCK = 100  # the message at which the dying consumer fails repeatedly: the heir gets it and all later ones


class Inheritance:
    """The messages received by two consumers of a group: one that is killed, and one that starts afterwards."""

    def __init__(self, client_name: str, cluster: Cluster, drivers: Drivers) -> None:
        self.topic, self.group = f"Lock-{client_name}", f"Lock-{client_name}-g"
        self._cluster = cluster
        self.died_at_ms = 0.0
        self.dying, self.heir = (drivers.another(client_name, cluster, JAVA_TOOL_OPTIONS=CLIENT_OPTIONS) for _ in "ab")

    def run(self) -> "Inheritance":
        with Connection(self._cluster.broker_address) as connection:
            connection.create_topic(self.topic, QUEUES)
        try:
            self._consume(self.dying, fail=[f"{queue_id}:{STUCK}" for queue_id in range(QUEUES)])
            self._send(0, EARLY)
            self._wait_for(self.dying, EARLY - 1)
            self._send(EARLY, BEFORE - EARLY)
            self._wait_for(self.dying, STUCK)
            self.dying.kill()
            self.died_at_ms = time.time() * 1000
            self._consume(self.heir)
            self._send(BEFORE, AFTER)
            self._wait_for(self.heir, BEFORE + AFTER - 1)
        finally:
            self.dying.kill()
            self.heir.close()
        return self

    def _consume(self, client: Driver, **how: object) -> None:
        client.start_consumer("c", self.group, self.topic, orderly="true", lockIntervalMs=int(ASK_EVERY_S * 1000), **how)

    @staticmethod
    def _wait_for(client: Driver, number: int) -> None:
        """Waits until the consumer has received this message of each queue."""
        wanted = {f"{queue_id}:{number}" for queue_id in range(QUEUES)}
        wait(lambda: wanted <= {one.body or "" for one in client.received("c")}, f"messages {wanted}", PATIENCE_S)

    def _send(self, first: int, count: int) -> None:
        with Connection(self._cluster.broker_address) as connection:
            for number in range(first, first + count):
                for queue_id in range(QUEUES):
                    connection.send(self.topic, queue_id, f"{queue_id}:{number}".encode())


@pytest.fixture(scope="module")
def runs(
    flavour: Flavour, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Inheritance]"]]:
    """All runs in parallel, because they mostly wait."""
    life: dict[str, object] = {"rocketmq.broker.rebalance.lockMaxLiveTime": int(LOCK_LIVE_S * 1000)}
    cluster = Cluster(tmp_path_factory.mktemp("locks"), flavour, **life)
    try:
        cluster.start_broker()
        with ThreadPoolExecutor(len(EACH_LANGUAGE)) as threads:
            yield {
                name: threads.submit(lambda name=name: Inheritance(name, cluster, drivers).run()) for name in EACH_LANGUAGE
            }
    finally:
        cluster.close()


@pytest.mark.parametrize("client_name", EACH_LANGUAGE)
def test_queues_of_a_dead_orderly_consumer_are_taken_over_in_order(
    client_name: str, runs: dict[str, "Future[Inheritance]"]
) -> None:
    with needed(client_name):
        run = runs[client_name].result()
    for queue_id in range(QUEUES):
        had, got = (
            [message for message in client.received("c") if message.queue_id == queue_id] for client in (run.dying, run.heir)
        )
        began = got[0].queue_offset
        assert [message.queue_offset for message in got] == list(range(began, BEFORE + AFTER)), "out of order, or repeated"
        assert [message.queue_offset for message in had] == [*range(STUCK), *[STUCK] * (len(had) - STUCK)]
        assert EARLY // 2 <= began <= STUCK, "the new owner did not continue at the committed offset"
        waited_s = (got[0].arrived_at_ms - run.died_at_ms) / 1000
        assert LOCK_LIVE_S - ASK_EVERY_S - 1 <= waited_s <= LOCK_LIVE_S + LATE_S[client_name], waited_s
