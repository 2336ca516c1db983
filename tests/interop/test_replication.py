"""Pairs of a master and a slave of PocketMQ or Apache: the slave's log is a copy, and it serves every message.

The master gets all kinds of records (`workload`) and PAIR_COUNT messages more (or POCKETMQ_PAIR_COUNT of them). Then
both logs have the same bytes; every record is read at the slave by queue offset, id and key, samples by unique key and tag.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.served import (
    check_begins_with,
    check_by_id,
    check_by_key,
    check_by_tag,
    check_every_key,
    queues_on_disk,
    read_all,
)
from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq
from tests.interop.test_store_exchange import CONFIG, NO_CHECKS
from tests.interop.wire import Connection
from tests.interop.workload import GROUP, PLAIN, let_in_long_group, write, write_many
from tests.patience import PATIENCE_S
from tests.support.amount import cases

PAIR_COUNT = int(os.environ.get("POCKETMQ_PAIR_COUNT", cases(2_000, 5_000)))
TIMEOUT_S = PATIENCE_S + PAIR_COUNT / 500
GET_BROKER_RUNTIME_INFO = 28
SLAVE_CONFIG: dict[str, object] = {**CONFIG, "brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}

Start = Callable[..., tuple[Cluster, Cluster]]


@pytest.fixture
def start(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a name server of PocketMQ, a master and a slave. (The fixture `apache` skips the test if there is no Java.)"""
    made: list[Cluster] = []

    def begin(master_flavour: Flavour, slave_flavour: Flavour, role: str = "ASYNC_MASTER") -> tuple[Cluster, Cluster]:
        master_config = {**CONFIG, **NO_CHECKS, "brokerRole": role}
        master = Cluster(tmp_path_factory.mktemp("master"), Pocketmq(), None, None, **master_config)
        made.append(master)
        let_in_long_group(master.store)
        slave = Cluster(tmp_path_factory.mktemp("slave"), Pocketmq(), None, master, **SLAVE_CONFIG)
        made.append(slave)
        master.start_broker(master_flavour)
        slave.start_broker(slave_flavour)
        return master, slave

    yield begin
    for cluster in reversed(made):
        cluster.close()


def log_end(connection: Connection) -> int:
    """Return the end of the broker's log; -1 while 4.9.4 fails to answer, as it does in its first second."""
    answer = connection.call(GET_BROKER_RUNTIME_INFO, {})
    if "NoSuchElementException" in answer.remark:
        return -1
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.2)


def log_files(cluster: Cluster) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(cluster.store / "commitlog").iterdir())}


def same_logs(master: Cluster, slave: Cluster, end: int) -> bool:
    """Whether both logs have the same bytes up to `end`; a file beyond it may have been prepared."""
    mine, others = log_files(master), log_files(slave)
    used = [name for name in mine if int(name) < end]
    return all(mine[name] == others.get(name) for name in used)


PAIRS = [
    (Pocketmq(), Apache("4.9.4")), (Apache("5.5.0"), Pocketmq()),
    *cases([], [(Pocketmq(), Pocketmq()), (Pocketmq(), Apache("5.5.0")), (Apache("4.9.4"), Pocketmq())]),
]  # fmt: skip


def name_of(flavour: Flavour) -> str:
    return getattr(flavour, "version", flavour.name)


@pytest.mark.parametrize(("master_flavour", "slave_flavour"), PAIRS, ids=[f"{name_of(a)}-{name_of(b)}" for a, b in PAIRS])
def test_slave_has_the_bytes_of_its_master_and_serves_every_message(
    start: Start, master_flavour: Flavour, slave_flavour: Flavour
) -> None:
    master, slave = start(master_flavour, slave_flavour)
    version = name_of(master_flavour) if master_flavour.name == "apache" else "4.9.4"
    with Connection(master.broker_address) as at_master, Connection(slave.broker_address) as at_slave:
        # An empty slave begins with the master's last file, and Apache's sends its first request after some seconds.
        at_master.create_topic(PLAIN, 4)
        at_master.send(PLAIN, 0, b"first")
        wait_until("the slave follows", lambda: log_end(at_slave) == log_end(at_master) > 0)
        write(at_master, "pair", version=version, is_apache=master_flavour.name == "apache")
        write_many(at_master, "pair", PAIR_COUNT)
        wait_until("the slave has the log", lambda: log_end(at_slave) == log_end(at_master))
        end = log_end(at_master)
        wait_until("both logs have the same bytes", lambda: same_logs(master, slave, end))
        topics = at_master.topic_table().keys()
        wait_until("the slave has the topics", lambda: topics <= at_slave.topic_table().keys())
        wait_until(
            "the slave has the group's progress",
            lambda: at_slave.consumer_offset(GROUP, PLAIN, 0) == at_master.consumer_offset(GROUP, PLAIN, 0),
        )
        queues = queues_on_disk(master.store)
        wait_until("the slave has all queues", lambda: set(queues) <= set(queues_on_disk(slave.store)))
        served = read_all(at_slave, queues)
        check_begins_with(served, read_all(at_master, queues))
        assert check_by_id(at_slave, served) == sum(map(len, served.values())) > PAIR_COUNT
        assert check_by_key(at_slave, served) > 20
        assert check_every_key(at_slave, served) > PAIR_COUNT / 2
        assert check_by_tag(at_slave, served) > 20
