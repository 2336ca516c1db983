"""Transactional producers of all client libraries: commits, rollbacks, and checks of open transactions.

Times are short, so that 15 checks take seconds; the clients run in parallel. With ``--server=apache`` the broker is 4.9.4's.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.interop.driver import Driver, Received
from tests.interop.drivers import EACH_LANGUAGE, Drivers, each_language, needed
from tests.interop.patience import wait
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import GET_PRODUCER_CONNECTION_LIST, Connection, Record
from tests.patience import PATIENCE_S

CHECKS_MAX = 15
CONFIG = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
IMMUNITY_S = 2
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class Transactions:
    """Transactions of one client; the fields hold their results."""

    def __init__(self, client_name: str, drivers: Drivers, cluster: Cluster) -> None:
        self.client_name = client_name
        self._drivers = drivers
        self._cluster = cluster
        self.topic = f"Transactions-{client_name}"
        self.producer, self.consumer, self.group = "lives", "c", f"{client_name}-pg"
        self.consumed: list[Received] = []
        self.asked: list[Received] = []
        self.given_up: list[Record] = []

    def run(self) -> "Transactions":
        with Connection(self._cluster.broker_address) as connection:
            connection.create_topic(self.topic, 4)
        client = self._drivers.get(self.client_name, self._cluster)
        # Before the producer of _leave_open dies: 15 checks without an answer take only 15 s.
        self._begin(client, self.producer)
        self._leave_open()
        client.start_consumer(self.consumer, f"{self.client_name}-g", self.topic)
        self._prepare(client, "never ended", "UNKNOWN", "UNKNOWN")
        self._prepare(client, "committed", "COMMIT", "ROLLBACK", tags=["T"], keys=["K"])
        self._prepare(client, "rolled back", "ROLLBACK", "COMMIT")
        self._prepare(client, "asked, committed", "UNKNOWN", "COMMIT", tags=["T"], keys=["K"])
        self._prepare(client, "asked, rolled back", "UNKNOWN", "ROLLBACK")
        immunity = {"property.CHECK_IMMUNITY_TIME_IN_SECONDS": IMMUNITY_S}
        self._prepare(client, "immune", "UNKNOWN", "COMMIT", **immunity)
        wait(self._is_given_up, "the open transaction to be given up after 15 checks", PATIENCE_S)
        client.wait_for(self.consumer, 6)
        self.consumed, self.asked = client.received(self.consumer), client.received(self.producer)
        client.shutdown(self.producer, self.consumer)
        return self

    def _leave_open(self) -> None:
        """Prepare transactions in a process of the same group that dies before it ends them."""
        dying = self._drivers.another(self.client_name, self._cluster)
        try:
            self._begin(dying, "dies")
            sender = threading.Thread(target=self._hang, args=(dying,), daemon=True)
            sender.start()
            dying.wait_for("dies", 1)
        finally:
            dying.kill()
        sender.join()

    def _hang(self, client: Driver) -> None:
        with pytest.raises(RuntimeError, match="the driver ended"):
            self._prepare(client, "left open", "HANG", "COMMIT", producer="dies")

    def _begin(self, client: Driver, producer: str) -> None:
        """Start a producer and wait until the broker knows it: a Go client sends its heartbeat some time after a send."""
        client.start_producer(producer, group=self.group, transactional="true")
        self._prepare(client, f"ready {producer}", "COMMIT", "COMMIT", producer=producer)
        with Connection(self._cluster.broker_address) as connection:
            fields: dict[str, object] = {"producerGroup": self.group}
            wait(
                lambda: connection.call(GET_PRODUCER_CONNECTION_LIST, fields).code == 0,
                "the producer to be registered",
                PATIENCE_S,
            )

    def _prepare(
        self, client: Driver, body: str, local: str, checked: str, producer: str | None = None, **how: object
    ) -> None:
        properties = {"property.local": local, "property.checked": checked}
        name = producer or self.producer
        (sent,) = client.send(name, self.topic, [body], kind="transaction", **properties, **how)
        assert sent.status == "SEND_OK"

    def _is_given_up(self) -> bool:
        with Connection(self._cluster.broker_address) as connection:
            if GIVEN_UP in connection.topic_table():
                records = connection.read_queue(GIVEN_UP, 0)
                self.given_up = [record for record in records if record.properties["REAL_TOPIC"] == self.topic]
        return bool(self.given_up)


@pytest.fixture(scope="session")  # tests are ordered by client: a module fixture would be made three times
def runs(
    flavour: Flavour, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Transactions]"]]:
    cluster = Cluster(tmp_path_factory.mktemp("transactions"), flavour, **CONFIG)
    try:
        cluster.start_broker()
        with ThreadPoolExecutor(len(EACH_LANGUAGE)) as threads:
            yield {name: threads.submit(Transactions(name, drivers, cluster).run) for name in EACH_LANGUAGE}
        drivers.close(cluster)
    finally:
        cluster.close()


@pytest.fixture
def run(client_name: str, runs: dict[str, "Future[Transactions]"]) -> Transactions:
    with needed(client_name):
        return runs[client_name].result()


@each_language
def test_only_committed_messages_are_consumed(run: Transactions, flavour: Flavour) -> None:
    wanted = ["ready dies", "ready lives", "committed", "asked, committed", "immune", "left open"]
    assert {message.body for message in run.consumed} == set(wanted)
    if flavour.name == "pocketmq":  # with Apache, a transaction checked twice on a slow machine may be delivered twice
        assert len(run.consumed) == len(wanted)
    for message in run.consumed:
        if message.body in ("committed", "asked, committed"):
            assert (message.topic, message.tags, message.keys) == (run.topic, "T", "K")
            assert message.properties["UNIQ_KEY"] and message.properties["TRAN_MSG"] == "true"


@each_language
def test_live_producer_is_checked_for_open_transactions(run: Transactions) -> None:
    counts = Counter(message.body for message in run.asked)
    assert counts.keys() == {"never ended", "asked, committed", "asked, rolled back", "immune", "left open"}
    assert counts["never ended"] == CHECKS_MAX
    assert {message.topic for message in run.asked} == {run.topic}
    first = next(message for message in run.asked if message.body == "immune")
    assert first.arrived_at_ms - first.born_timestamp_ms >= IMMUNITY_S * 1000


@each_language
def test_transaction_moves_to_check_max_time_topic_after_15_checks(run: Transactions) -> None:
    (given_up,) = run.given_up
    assert given_up.body == b"never ended"
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == str(CHECKS_MAX)
