"""Orderly consumers continue at an acting master, which locks their queues; the master takes over their offsets later."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.interop.drivers import Drivers, toolchain_missing
from tests.interop.servers import Cluster, Pocketmq
from tests.interop.test_acting_master import ACTING, NAMESRV_CONFIG
from tests.interop.test_client_failover import Failover, send
from tests.interop.test_replication import log_end, wait_until
from tests.interop.toolchain import ToolchainMissing
from tests.interop.wire import Connection
from tests.support.amount import cases

QUEUES, BEFORE, STORED, AFTER = 4, 40, 400, 40


@pytest.mark.parametrize("client_name", cases(["java_5_5_0"], ["java_4_9_4", "java_5_5_0"]))
def test_orderly_consumer_continues_at_an_acting_master(
    client_name: str, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process, address = Pocketmq().start_namesrv(tmp_path_factory.mktemp("namesrv"), NAMESRV_CONFIG)
    joined: Any = SimpleNamespace(namesrv=process, namesrv_address=address)
    master = Cluster(tmp_path_factory.mktemp("master"), Pocketmq(), None, joined, **ACTING)
    role: dict[str, object] = {"brokerId": 1, "brokerRole": "SLAVE"}
    slave = Cluster(tmp_path_factory.mktemp("slave"), Pocketmq(), None, joined, **ACTING | role)
    try:
        master.start_broker()
        slave.start_broker()
        try:
            client = drivers.get(client_name, master)
        except ToolchainMissing as missing:
            toolchain_missing(str(missing))
        failover = Failover(client, "Orderly", "Orderly-g", True)
        with Connection(master.broker_address) as at_master, Connection(slave.broker_address) as at_slave:
            at_master.create_topic(failover.topic, QUEUES)
            client.start_consumer("stays", failover.group, failover.topic, orderly="true")
            send(master, failover, range(BEFORE))
            failover.wait_for_all("stays", BEFORE)
            client.pause()
            send(master, failover, range(BEFORE, STORED))
            wait_until("the slave has the log", lambda: log_end(at_slave) == log_end(at_master))
            wait_until("the slave has the topic", lambda: failover.topic in at_slave.topic_table())
        master.kill_broker()
        client.resume()
        failover.wait_for_all("stays", STORED)
        failover.wait_for_offset(slave, STORED)
        master.start_broker()
        failover.wait_for_offset(master, STORED)
        send(master, failover, range(STORED, STORED + AFTER))
        failover.wait_for_all("stays", STORED + AFTER)
        numbers = [int(body) for body in failover.bodies() if body is not None]
        for queue_id in range(QUEUES):
            first_seen = list(dict.fromkeys(number for number in numbers if number % QUEUES == queue_id))
            assert first_seen == sorted(first_seen), "each queue is consumed in order"
        drivers.close(master)
    finally:
        slave.close()
        master.close()
        process.kill()
