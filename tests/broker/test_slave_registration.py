"""Registration of masters and slaves, and the addresses of the master that slaves get by it."""

from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.registration.registration import Master
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from tests.broker.running import ask, connected, route, running_broker, running_namesrv, until

SLAVE: dict[str, Any] = {"broker_role": "SLAVE"}


def master_of(slave: Broker) -> Master | None:
    return slave.services.registration.master


def addresses(master: Broker) -> Master:
    """Return the HA address and the address of a master. The HA port is the next one, or any free one if that is taken."""
    assert master.services.registration.ha_server_address is not None
    return master.services.registration.ha_server_address, master.address


async def test_slave_learns_its_master_s_addresses() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store={"ha_listen_port": 12345}) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        assert master_of(slave) == ("127.0.0.1:12345", master.address)
        assert master_of(master) is None
        found = await route(client, ns, "TBW102")
        assert found is not None
        assert found.broker_datas[0].broker_addrs == {"0": master.address, "1": slave.address}
        cluster: Any = fastjson.loads((await ask(client, ns, RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert list(cluster["brokerAddrTable"]["b"]["brokerAddrs"].values()) == [master.address, slave.address]


async def test_slave_that_starts_first_gets_the_addresses_of_its_master_later(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.registration.registration.NO_MASTER_RETRY_S", 0.01)
    heard: list[tuple[str | None, str]] = []
    async with running_namesrv() as ns, running_broker(ns, store=SLAVE, broker_id=1) as slave:
        slave.services.registration.master_changed.subscribe(lambda *master: heard.append(master))
        assert master_of(slave) is None
        async with running_broker(ns) as first:
            await until(lambda: master_of(slave) is not None)
            assert heard == [addresses(first)]
        await slave.services.registration.register()
        assert master_of(slave) is not None, "kept while the name server has none"
        async with running_broker(ns) as second:
            await slave.services.registration.register()
            assert heard[1:] == [addresses(second)]


async def test_master_s_address_from_a_name_server_is_checked(caplog: Any) -> None:
    async with (
        running_namesrv() as ns,
        running_broker(ns, store={"ha_listen_port": 12345}, broker_ip2="nowhere:x") as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        master.services.registration.ha_server_address = "10.0.0.1:99999"
        await master.services.registration.register()
        await slave.services.registration.register()
        assert "not host:port" in caplog.text
