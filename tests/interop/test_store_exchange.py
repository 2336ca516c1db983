"""A store is used by different brokers in turn: Apache's 4.9.4 and 5.5.0, and PocketMQ.

Each broker writes all kinds of records (`workload`), PocketMQ MANY_COUNT messages more, and ends cleanly or by kill -9. The
next one serves all earlier records byte for byte, by queue offset, key, tag and time (`served`), delivers delayed messages,
and preserves unknown files and unknown keys of JSON documents.

    pytest tests/interop/test_store_exchange.py --exchange-rounds 5     more rounds
"""

import socket
from collections.abc import Iterator
from itertools import product

import pytest

from tests.interop.golden_store import expected_by_key, expected_records, unpack
from tests.interop.served import (
    Records,
    check_begins_with,
    check_by_key,
    check_by_tag,
    check_by_time,
    check_carried,
    complaints,
    files,
    queues_on_disk,
    read_all,
)
from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq
from tests.interop.wire import BORN_HOST_V6, Connection
from tests.interop.workload import (
    GROUP,
    PLAIN,
    TIMER,
    Life,
    commit_half,
    let_in_long_group,
    wait_for_bodies,
    write,
    write_many,
)
from tests.support.amount import cases

MANY_COUNT = cases(5_000, 10_000)
VERSIONS = ("4.9.4", "5.5.0")
# Small files, so that all of them roll; whole queues in a few pulls; nothing is deleted, no transaction is checked.
CONFIG: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "mappedFileSizeTimerLog": 1 << 20,
    "maxMessageSize": 1 << 16,
    "maxTransferCountOnMessageInMemory": 500,
    "maxTransferCountOnMessageInDisk": 500,
    "maxTransferBytesOnMessageInMemory": 4 << 20,
    "maxTransferBytesOnMessageInDisk": 4 << 20,
    "flushConsumerOffsetInterval": 1_000,
    "fileReservedTime": 72_000,
    "diskMaxUsedSpaceRatio": 95,
    "waitTimeMillsInSendQueue": 30_000,
}
NO_CHECKS: dict[str, object] = {"transactionCheckInterval": 3_600_000, "transactionTimeOut": 3_600_000}
# Warnings and errors that Apache's store also logs for files of its own, stopped or killed, with the same requests.
USUAL_COMPLAINTS = (
    "WARN Load default ",
    "WARN found a illegal magic code 0x0",  # at the end of the log
    "WARN maxPhyOffsetOfConsumeQueue(",  # also without a problem
    "WARN Maybe try to build consume queue repeatedly ",  # after a kill, for each record already in a queue
    "WARN Over index file capacity: ",
    "WARN Index file [",
    "WARN Unknown boundary type",
)


@pytest.fixture
def cluster(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """PocketMQ's name server; the fixture `apache` skips the test if there is no Java."""
    made = Cluster(tmp_path_factory.mktemp("exchange"), Pocketmq(), **CONFIG, **NO_CHECKS)
    yield made
    made.close()


class Exchange:
    """A store and the brokers that have used it."""

    def __init__(self, cluster: Cluster, version: str, ending: str) -> None:
        self.cluster = cluster
        self.version = version
        self.ending = ending
        self.lives: list[Life] = []
        self.records: Records = {}
        self.progress = -1
        self.host = ""

    def live(self, flavour: Flavour, ending: str = "") -> None:
        """Run one broker on the store, with the checks at its start."""
        before = files(self.cluster.store) if self.records else {}
        self.begin(flavour)
        if self.records:
            self.check_serves_all(flavour)
        self.write(flavour)
        if (ending or self.ending) == "stop":
            self.cluster.stop_broker()
        else:
            self.cluster.kill_broker()
            self.progress = -1  # saved at intervals: some of it may be lost
        if flavour.name == "pocketmq":
            check_carried(before, files(self.cluster.store))

    def begin(self, flavour: Flavour) -> None:
        (self.cluster.folder / "broker-server.log").unlink(missing_ok=True)
        # At "::" Apache listens for IPv4 and IPv6, PocketMQ for IPv6 only: in half of the runs all its producers use ::1.
        if _has_ipv6() and flavour.name == "apache":
            self.cluster.config["bindAddress"], self.host = "::", "127.0.0.1"
        else:
            self.host = "::1" if _has_ipv6() and self.ending == "kill" else "127.0.0.1"
            self.cluster.config["bindAddress"] = self.host
        self.cluster.start_broker(flavour)

    def check_serves_all(self, flavour: Flavour) -> None:
        """Check that the running broker serves what the previous one did, and delivers the delayed messages."""
        store = self.cluster.store
        with self.connect() as connection:
            served = read_all(connection, queues_on_disk(store))
            check_begins_with(served, self.records)
            assert check_by_key(connection, served) > 20
            assert check_by_tag(connection, served) > 20
            assert check_by_time(connection, served, flavour, self.version, store) > 100
            if self.progress >= 0:
                assert connection.consumer_offset(GROUP, PLAIN, 0) == self.progress
            for life in self.lives:
                wait_for_bodies(connection, store, life.due)
                if life.half is not None:
                    commit_half(connection, life.half)
                    wait_for_bodies(connection, store, {life.half.body.decode(): PLAIN})
                    life.half = None
            if any(topic == TIMER for topic, _ in served):
                assert connection.topic_table()[TIMER]["attributes"] == {"message.type": "DELAY"}
        self.records = served
        if flavour.name == "apache":
            said = complaints(self.cluster.folder / "broker-server.log")
            assert [text for text in said if not text.startswith(USUAL_COMPLAINTS)] == []

    def write(self, flavour: Flavour) -> None:
        """Write all kinds of records, and keep all records served afterwards for the next check."""
        name, is_apache = f"{flavour.name}{len(self.lives)}", flavour.name == "apache"
        with self.connect() as connection:
            life = write(connection, name, version=self.version, is_apache=is_apache)
            if not is_apache:
                write_many(connection, name, MANY_COUNT)
            if _has_ipv6() and is_apache:
                with self.connect("::1") as other:
                    sent = other.send(PLAIN, 0, f"{name} from ::1".encode())
                connection.wait_for_max_offset(PLAIN, 0, int(sent.ext["queueOffset"]) + 1)
                assert connection.read_queue(PLAIN, 0)[-1].sys_flag & BORN_HOST_V6
            self.lives.append(life)
            self.progress = connection.consumer_offset(GROUP, PLAIN, 0)
            self.records = read_all(connection, queues_on_disk(self.cluster.store))

    def connect(self, host: str = "") -> Connection:
        return Connection(f"{host or self.host}:{self.cluster.broker_address.rpartition(':')[2]}")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("version", "ending"), cases([("4.9.4", "kill")], list(product(VERSIONS, ("stop", "kill")))))
def test_apache_store_to_pocketmq_and_back(cluster: Cluster, version: str, ending: str, pytestconfig: pytest.Config) -> None:
    let_in_long_group(cluster.store)
    exchange = Exchange(cluster, version, ending)
    exchange.live(Apache(version))
    for _ in range(pytestconfig.getoption("exchange_rounds")):
        exchange.live(Pocketmq())
        exchange.live(Apache(version), "kill")  # a clean stop of Apache's broker takes ten seconds
    exchange.begin(Pocketmq())
    exchange.check_serves_all(Pocketmq())


@pytest.mark.parametrize(
    ("version", "ending"), cases([("5.5.0", "stop")], [("4.9.4", "stop"), ("5.5.0", "kill"), ("5.5.0", "stop")])
)
def test_pocketmq_store_to_apache_and_back(cluster: Cluster, version: str, ending: str) -> None:
    let_in_long_group(cluster.store)
    exchange = Exchange(cluster, version, ending)
    exchange.live(Pocketmq())
    exchange.live(Apache(version), "kill")
    exchange.begin(Pocketmq())
    exchange.check_serves_all(Pocketmq())


@pytest.mark.parametrize("name", cases(["v4_clean"], ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"]))
def test_golden_store_is_continued_by_pocketmq_and_then_apache(cluster: Cluster, name: str) -> None:
    cluster.config.update(unpack(name, cluster.folder) | NO_CHECKS)
    version, ending = "4.9.4" if name.startswith("v4") else "5.5.0", "stop" if name.endswith("clean") else "kill"
    exchange = Exchange(cluster, version, ending)
    exchange.records = expected_records(name, cluster.store)
    exchange.live(Pocketmq())
    exchange.begin(Apache(version))
    exchange.check_serves_all(Apache(version))
    with exchange.connect() as connection:
        for topic, key, physical_offsets in expected_by_key(name):
            assert physical_offsets <= {record.physical_offset for record in connection.query(topic, key)}, (topic, key)


@pytest.mark.parametrize("version", cases(["4.9.4"], VERSIONS))
def test_apache_continues_after_quarantined_bytes(cluster: Cluster, version: str) -> None:
    bodies = [b"body %02d" % number for number in range(30)]
    cluster.start_broker()
    with Connection(cluster.broker_address) as connection:
        connection.create_topic(PLAIN, 1)
        for number, body in enumerate(bodies):
            connection.send(PLAIN, 0, body, {"TAGS": f"T{number % 2}", "KEYS": f"k{number}"})
    cluster.kill_broker()
    log = cluster.store / "commitlog" / ("0" * 20)
    log.write_bytes(log.read_bytes().replace(bodies[10], b"damaged"))

    cluster.start_broker()
    with Connection(cluster.broker_address) as connection:
        assert [record.body for record in connection.read_queue(PLAIN, 0)] == bodies[:10] + bodies[11:]
    cluster.stop_broker()

    cluster.start_broker(Apache(version))
    with Connection(cluster.broker_address) as connection:
        served = connection.read_queue(PLAIN, 0)
        # Only a pull of all tags gets the filler record in the lost message's place.
        assert [record.body for record in served if record.topic == PLAIN] == bodies[:10] + bodies[11:]
        assert [(number, record.topic) for number, record in enumerate(served) if record.topic != PLAIN] == [
            (10, "PMQ_QUARANTINE")
        ]
        for tag in (0, 1):
            found = [record.body for record in connection.read_queue(PLAIN, 0, expression=f"T{tag}")]
            assert found == [body for body in bodies[tag::2] if body != bodies[10]]
        for number, body in enumerate(bodies):
            found = [record.body for record in connection.query(PLAIN, f"k{number}")]
            assert found == ([] if number == 10 else [body])
    said = complaints(cluster.folder / "broker-server.log")
    assert [text for text in said if not text.startswith(USUAL_COMPLAINTS)] == []
