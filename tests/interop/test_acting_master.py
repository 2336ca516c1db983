"""Acting masters in clusters of PocketMQ and Apache 5.5.0, with different roles played by Apache.

The master of one broker name is killed while delayed messages wait. Its slave becomes acting master: the route shows it as a
read-only master, and it sends due messages to the master of another broker name. Then the master is started again.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.interop.servers import WITHOUT_TIMERS, Apache, Cluster, Flavour, Pocketmq
from tests.interop.test_replication import log_end, wait_until
from tests.interop.test_store_exchange import CONFIG
from tests.interop.wire import Connection

TOPIC, QUEUES, COUNT = "T", 2, 30
GET_ROUTEINFO_BY_TOPIC = 105
DUE_S = 30
"""Delay of level 3: long enough for a slave to act before, also on a machine with much load."""
NAMESRV_CONFIG: dict[str, object] = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": 1000}
# brokerNotActiveTimeoutMillis stays at 10 s. A killed broker is noticed by its closed connection, and a slave that is
# delayed on a busy machine must not be taken for dead: a master starts without the progress of a slave that no name server
# knows.
# totalReplicas: with 1, Apache's master does not ask its slave for progress before it registers.
ACTING: dict[str, object] = {
    **CONFIG, "messageDelayLevel": f"1s 5s {DUE_S}s", "enableSlaveActingMaster": "true", "enableRemoteEscape": "true",
    "brokerIP2": "127.0.0.1",
}  # fmt: skip

Start = Callable[..., tuple[Cluster, Cluster, Cluster]]
OURS, THEIRS = Pocketmq(), Apache("5.5.0")
BY_GROUPS: dict[str, object] = {"totalReplicas": 2, "compatibleWithOldNameSrv": "false"}
BY_ROUTES: dict[str, object] = {"totalReplicas": 2, "compatibleWithOldNameSrv": "true"}


@pytest.fixture
def start(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a name server, then master and slave of one name and the master of another. (`apache` skips without Java.)"""
    made: list[Any] = []

    def begin(
        namesrv: Flavour, master: Flavour, slave: Flavour, config: dict[str, object]
    ) -> tuple[Cluster, Cluster, Cluster]:
        process, address = namesrv.start_namesrv(tmp_path_factory.mktemp("namesrv"), NAMESRV_CONFIG)
        made.append(SimpleNamespace(close=process.kill))
        joined: Any = SimpleNamespace(namesrv=process, namesrv_address=address)
        roles: list[dict[str, object]] = [
            {"brokerName": "a"}, {"brokerName": "a", "brokerId": 1, "brokerRole": "SLAVE"}, {"brokerName": "b"},
        ]  # fmt: skip
        clusters = []
        for role, flavour in zip(roles, (master, slave, master), strict=True):
            folder: Path = tmp_path_factory.mktemp(f"broker-{role['brokerName']}")
            settings = ACTING | role if isinstance(flavour, Pocketmq) else ACTING | WITHOUT_TIMERS | config | role
            clusters.append(Cluster(folder, flavour, None, joined, **settings))
            made.append(clusters[-1])
        for cluster in (clusters[2], *clusters[:2]):
            cluster.start_broker()
        return clusters[0], clusters[1], clusters[2]

    yield begin
    for one in reversed(made):
        one.close()


def route(cluster: Cluster) -> dict[str, tuple[dict[str, str], set[int]]]:
    """Return the addresses by id and the permissions of the topic's queues, by broker name."""
    answer = Connection(cluster.namesrv_address).call(
        GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
    )
    if answer.code:
        return {}
    found = json.loads(answer.body)
    perms = {row["brokerName"]: {row["perm"]} for row in found["queueDatas"]}
    return {one["brokerName"]: (one["brokerAddrs"], perms[one["brokerName"]]) for one in found["brokerDatas"]}


def bodies(*clusters: Cluster) -> list[str]:
    """Return the bodies of the topic's messages on the brokers."""
    found = []
    for cluster, queue_id in itertools.product(clusters, range(QUEUES)):
        found += [one.body.decode() for one in Connection(cluster.broker_address).read_queue(TOPIC, queue_id)]
    return sorted(found)


def said(cluster: Cluster) -> str:
    """Return the broker's warnings and its log lines about slaves."""
    lines = (cluster.folder / "broker.log").read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if "slave" in line or "WARN" in line)


@pytest.mark.parametrize(
    ("flavours", "config"),
    [
        pytest.param((THEIRS, OURS, OURS), {}, id="Apache's name server"),
        pytest.param((OURS, THEIRS, THEIRS), BY_ROUTES, id="Apache's brokers, by routes", marks=pytest.mark.long),
        pytest.param((OURS, THEIRS, THEIRS), BY_GROUPS, id="Apache's brokers, by groups", marks=pytest.mark.long),
        pytest.param((OURS, THEIRS, OURS), BY_GROUPS, id="Apache's master"),
        pytest.param((OURS, OURS, THEIRS), BY_GROUPS, id="Apache's slave", marks=pytest.mark.long),
    ],
)
def test_slave_acts_as_master_until_the_master_is_back(
    start: Start, flavours: tuple[Flavour, Flavour, Flavour], config: dict[str, object]
) -> None:
    """`flavours`: of the name server, of both masters, of the slave."""
    master, slave, other = start(*flavours, config)
    for cluster in (master, other):
        Connection(cluster.broker_address).create_topic(TOPIC, QUEUES)
    both = {"0": master.broker_address, "1": slave.broker_address}
    wait_until("the topic is at the other broker", lambda: "b" in route(master))
    wait_until("it is at the master and its slave", lambda: route(master).get("a") == (both, {6}))
    if master.flavour is THEIRS:  # without saved progress it ignores its slave's later, because its own counts as newer
        wait_until("the master saves its progress", (master.store / "config" / "delayOffset.json").exists)
    connection = Connection(master.broker_address)
    for number in range(COUNT):
        connection.send(TOPIC, number % QUEUES, b"%d" % number, {"DELAY": "3"})
    sent_s = time.monotonic()
    wait_until("the slave has the log", lambda: log_end(Connection(slave.broker_address)) == log_end(connection))
    master.kill_broker()
    wait_until("the slave is shown as master", lambda: route(slave).get("a") == ({"0": slave.broker_address}, {4}))
    assert time.monotonic() - sent_s < DUE_S, "the messages are not due yet"
    expected = sorted(str(number) for number in range(COUNT))
    wait_until("the slave sends what is due", lambda: sorted(set(bodies(other))) == expected)
    assert time.monotonic() - sent_s >= DUE_S - 0.1
    assert bodies(other) == expected
    master.start_broker()
    wait_until(
        "the master is back",
        lambda: route(slave).get("a") == ({"0": master.broker_address, "1": slave.broker_address}, {6}),
    )
    Connection(master.broker_address).send(TOPIC, 0, b"last", {"DELAY": "1"})
    wait_until("the master delivers", lambda: "last" in bodies(master))
    assert bodies(master, other) == sorted([*expected, "last"]), f"the master repeats a message: {said(master)}"
