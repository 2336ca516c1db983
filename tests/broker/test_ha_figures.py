"""Replication status for tools: GET_BROKER_HA_STATUS, keys of the runtime info, log lines."""

from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.ha_connection import ReplicaLag
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import KVTable, decode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from tests.broker.running import ask, connected, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, send


async def ha_status(client: RemotingClient, broker: Broker) -> dict[str, Any]:
    status = fastjson.loads((await ask(client, broker, RequestCode.GET_BROKER_HA_STATUS)).body)
    assert isinstance(status, dict)
    return status


async def runtime_info(client: RemotingClient, broker: Broker) -> dict[str, str]:
    table = decode_body(KVTable, (await ask(client, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    return {key: value for key, value in table.items() if key.startswith(("ha", "brokerActive"))}


async def test_master_and_slave_report_the_progress_of_replication() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 20)
        end = end_of(master)
        await until(lambda: [one.acknowledged_offset for one in master.services.ha.replicas()] == [end])
        (replica,) = master.services.ha.replicas()
        at_master = await ha_status(client, master)
        (told,) = at_master.pop("haConnectionInfo")
        assert told.pop("transferredByteInSecond") >= 0
        assert told == {
            "addr": replica.address, "slaveAckOffset": end, "diff": 0, "inSync": True, "transferFromWhere": end,
        }  # fmt: skip
        assert at_master.pop("haClientRuntimeInfo")["activated"] is False
        assert at_master == {"inSyncSlaveNums": 1, "master": True, "masterCommitLogMaxOffset": end}
        assert await runtime_info(client, master) == {
            "brokerActive": "true",
            f"haSlaveLagBytes_{replica.address}": "0",
            f"haSlaveLagMs_{replica.address}": "0",
        }

        at_slave = await ha_status(client, slave)
        told = at_slave.pop("haClientRuntimeInfo")
        assert (told["activated"], told["maxOffset"]) == (True, end)
        assert told["masterAddr"] == f"127.0.0.1:{master.services.ha.port}"
        now_ms = slave.services.clock.message_time_ms()
        assert (
            now_ms - 20_000 < told["lastWriteTimestamp"] <= now_ms and now_ms - 20_000 < told["lastReadTimestamp"] <= now_ms
        )
        assert at_slave == {"haConnectionInfo": [], "inSyncSlaveNums": 0, "master": False, "masterCommitLogMaxOffset": 0}
        lines = await runtime_info(client, slave)
        assert 0 <= int(lines.pop("haMasterSilentMs")) < 20_000
        assert lines == {"brokerActive": "false", "haMasterAddress": told["masterAddr"], "haMasterConnected": "true"}


async def test_slave_that_stops_reading_lags_and_is_logged_as_behind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "broker")
    monkeypatch.setattr("pocketmq.broker.ha.ha_service.LOOK_S", 0.05)
    monkeypatch.setattr("pocketmq.broker.ha.ha_service.NEAR_SIZE", 10_000)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store={"ha_slave_fallbehind_max": 20_000}) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 1)
        await until(lambda: "has caught up" in caplog.text)
        connection = slave.services.ha_client._connection  # type: ignore[union-attr]
        assert connection is not None and connection._transport is not None
        connection._transport.pause_reading()
        before = end_of(slave)
        await send(client, master, 50, size=1000)
        await until(lambda: "is behind: it lacks" in caplog.text)
        (told,) = (await ha_status(client, master))["haConnectionInfo"]
        assert (told["diff"], told["inSync"]) == (end_of(master) - before, False)
        (address,) = {replica.address for replica in master.services.ha.replicas()}
        first = int((await runtime_info(client, master))[f"haSlaveLagMs_{address}"])
        await until(lambda: master.services.ha.replicas()[0].lag_ms > first + 50)
        connection._transport.resume_reading()
        await until(lambda: caplog.text.count("has caught up") == 2)
        await until(lambda: master.services.ha.replicas()[0].lag_ms == 0)
    assert "disconnected; it had acknowledged the log up to" in caplog.text


def test_lag_is_the_age_of_the_first_write_that_the_slave_lacks() -> None:
    lag = ReplicaLag()
    lag.written(100, 100, 1.0)
    assert lag.lag_ms(100, 100, 5.0) == 0
    lag.written(200, 100, 10.0)
    lag.written(300, 100, 11.0)
    assert lag.lag_ms(300, 100, 12.0) == 2000
    lag.acknowledged(150, 12.0)
    assert lag.lag_ms(300, 150, 13.0) == 3000
    lag.acknowledged(200, 14.0)
    assert lag.lag_ms(300, 200, 14.0) == 4000, "as long as the last acknowledgement took"
    lag.written(400, 200, 15.0)
    assert lag.lag_ms(400, 200, 15.5) == 4000
    lag.acknowledged(400, 15.5)
    assert lag.lag_ms(400, 400, 15.5) == 0
    lag.written(500, 400, 20.0)
    assert lag.lag_ms(500, 400, 20.1) == 500, "the last acknowledgement took half a second"
