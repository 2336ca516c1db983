"""The real mqadmin, of 4.9.4 and 5.5.0, with a master and a slave of PocketMQ, and with the slave alone."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.interop.conftest import need_java
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Cluster, Pocketmq
from tests.interop.test_replication import SLAVE_CONFIG, log_end, wait_until
from tests.interop.test_store_exchange import CONFIG
from tests.interop.wire import Connection
from tests.support.amount import cases

TOPIC, GROUP, MESSAGES, CONSUMED = "Tools-topic", "Tools-group", 10, 7
VERSIONS = cases(("5.5.0",), ("4.9.4", "5.5.0"))

Pair = tuple[Cluster, Cluster]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A master and a slave, which has a topic's messages and a group's progress."""
    need_java()
    master = Cluster(tmp_path_factory.mktemp("master"), Pocketmq(), **CONFIG)
    slave = Cluster(tmp_path_factory.mktemp("slave"), Pocketmq(), None, master, **SLAVE_CONFIG)
    try:
        master.start_broker()
        slave.start_broker()
        with Connection(master.broker_address) as at_master, Connection(slave.broker_address) as at_slave:
            at_master.create_topic(TOPIC, 1)
            at_master.subscribe(GROUP, TOPIC)
            for number in range(MESSAGES):
                at_master.send(TOPIC, 0, b"%d" % number)
            at_master.commit(GROUP, TOPIC, 0, CONSUMED)
            wait_until("the slave has the log", lambda: log_end(at_slave) == log_end(at_master))
            wait_until("the slave has the progress", lambda: at_slave.consumer_offset(GROUP, TOPIC, 0) == CONSUMED)
        yield master, slave
    finally:
        slave.close()
        master.close()


@pytest.fixture(scope="module")
def admins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Mqadmin]]:
    need_java()
    shells = {version: Mqadmin(tmp_path_factory.mktemp("mqadmin"), version) for version in VERSIONS}
    yield shells
    for shell in shells.values():
        shell.close()


@pytest.fixture(params=VERSIONS)
def admin(request: pytest.FixtureRequest, admins: dict[str, Mqadmin], pair: Pair) -> Callable[..., str]:
    def run(command: str, *arguments: str) -> str:
        printed = admins[request.param].run(pair[0].namesrv_address, command, *arguments)
        assert "Exception" not in printed, printed
        return printed

    return run


@pytest.fixture
def admin_5(admins: dict[str, Mqadmin], pair: Pair) -> Callable[..., str]:
    return lambda command, *arguments: admins["5.5.0"].run(pair[0].namesrv_address, command, *arguments)


def keys_of(printed: str) -> dict[str, str]:
    """Return the rows `key : value` of brokerStatus and haStatus."""
    return {key: value for key, value in re.findall(r"^(\S+)[ \t]+:? *(.*?) *$", printed, re.MULTILINE)}


def progress_rows(printed: str) -> list[list[str]]:
    """Return broker name, queue, broker offset, consumer offset and lag of each queue of the topic."""
    rows = [row.split() for row in printed.splitlines() if row.startswith(f"{TOPIC} ")]
    return [[cell for cell in row[1:] if cell != "N/A"][:5] for row in rows]


EXPECTED_PROGRESS = [[BROKER_NAME, "0", str(MESSAGES), str(CONSUMED), str(MESSAGES - CONSUMED)]]


def test_cluster_list_and_broker_status_show_master_and_slave(admin: Callable[..., str], pair: Pair) -> None:
    master, slave = pair
    printed = admin("clusterList")
    for broker_id, cluster in enumerate((master, slave)):
        assert re.search(
            rf"^{CLUSTER_NAME} +{BROKER_NAME} +{broker_id} +{cluster.broker_address} +V4_9_4 ", printed, re.MULTILINE
        ), printed
    status = admin("brokerStatus", "-b", master.broker_address)
    (lag_bytes,) = re.findall(r"^haSlaveLagBytes_127\.0\.0\.1:\d+ +: (\d+)$", status, re.MULTILINE)
    (lag_ms,) = re.findall(r"^haSlaveLagMs_127\.0\.0\.1:\d+ +: (\d+)$", status, re.MULTILINE)
    assert (lag_bytes, lag_ms) == ("0", "0")
    keys = keys_of(admin("brokerStatus", "-b", slave.broker_address))
    assert (keys["haMasterConnected"], keys["brokerActive"]) == ("true", "false")
    by_cluster = admin("brokerStatus", "-c", CLUSTER_NAME)
    assert master.broker_address in by_cluster and slave.broker_address in by_cluster


def test_ha_status_shows_the_slave_and_its_master(admin_5: Callable[..., str], pair: Pair) -> None:
    master, slave = pair
    with Connection(master.broker_address) as at_master:
        end = log_end(at_master)
    of_master = admin_5("haStatus", "-b", master.broker_address)
    assert f"#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t1\n#InSyncSlaveNum\t1" in of_master, of_master
    assert re.search(rf"^127\.0\.0\.1:\d+ +{end} +0 +[\d.]+ +OK +{end}$", of_master, re.MULTILINE), of_master
    of_slave = keys_of(admin_5("haStatus", "-b", slave.broker_address))
    assert of_slave["#MasterAddr"].startswith("127.0.0.1:") and of_slave["#CommitLogMaxOffset"] == str(end), of_slave
    assert {"#LastReadTime", "#LastWriteTime", "#TransferSpeed(KB/s)"} <= of_slave.keys()
    assert f"#MasterAddr\t{master.broker_address}" in admin_5("haStatus", "-c", CLUSTER_NAME)


def test_progress_of_a_group_at_the_master(admin: Callable[..., str]) -> None:
    assert progress_rows(admin("consumerProgress", "-g", GROUP)) == EXPECTED_PROGRESS


@pytest.fixture
def slave_alone(admin: Callable[..., str], pair: Pair) -> Iterator[Cluster]:
    """The slave, while its master is dead and in no route."""
    master, slave = pair
    master.kill_broker()
    wait_until("the master is in no route", lambda: master.broker_address not in admin("clusterList"))
    yield slave
    master.start_broker()
    wait_until("the master is in the route", lambda: master.broker_address in admin("clusterList"))


def test_tools_use_the_slave_while_the_master_is_dead(admin: Callable[..., str], slave_alone: Cluster) -> None:
    assert progress_rows(admin("consumerProgress", "-g", GROUP)) == EXPECTED_PROGRESS
    keys = keys_of(admin("brokerStatus", "-b", slave_alone.broker_address))
    assert keys["haMasterConnected"] == "false"
    assert re.search(rf"^{BROKER_NAME} +0 +0 +{MESSAGES} ", admin("topicStatus", "-t", TOPIC), re.MULTILINE)
    assert re.search(r"^OffsetID: +\S+$", admin("queryMsgByOffset", "-t", TOPIC, "-b", BROKER_NAME, "-i", "0", "-o", "3"),
                     re.MULTILINE)  # fmt: skip
