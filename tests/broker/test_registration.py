"""Registration while name servers start, stop and hang."""

import asyncio
import logging
import time
from typing import Any

import pytest

from pocketmq.broker.registration import registration
from pocketmq.broker.registration.registration import Registration
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.running import connected, create_topic, route, running_broker, running_namesrv, until
from tests.patience import PATIENCE_S

RARELY = {"register_name_server_period": 60_000}


async def test_unreachable_name_server_is_logged_once_and_registered_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker")
    async with running_namesrv() as later:
        address = f"127.0.0.1:{later.port}"
        await later.stop()
        async with running_broker(address) as broker, connected() as client:
            for _ in range(3):
                await broker.services.registration.register()
            await until(lambda: broker.services.registration._name_servers[0]._running.done())  # type: ignore[union-attr]
            assert caplog.text.count("cannot register") == 1
            later.config.listen_port = later.port
            await later.start()
            broker.services.registration.register()
            await until(lambda: "registered again" in caplog.text)
            assert await route(client, later, "TBW102") is not None


async def test_hanging_name_server_delays_at_most_one_answer() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = hanging.sockets[0].getsockname()[1]
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, f"127.0.0.1:{port}", register_broker_timeout_mills=50) as broker,
    ):
        async with asyncio.timeout(PATIENCE_S):
            for number in range(20):
                assert (await create_topic(client, broker, f"T{number}")).code == ResponseCode.SUCCESS
        while await route(client, ns, "T19") is None:  # sent again if this name server did not answer in 50 ms
            await asyncio.sleep(0.01)
    hanging.close()


async def test_change_during_a_round_is_sent_in_the_next() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as broker:
        services: Registration = broker.services.registration
        first = services.register()
        await asyncio.sleep(0)
        answer = await create_topic(client, broker, "T")
        assert answer.code == ResponseCode.SUCCESS and first.done()
        assert await route(client, ns, "T") is not None


async def test_broker_without_write_permission_registers_topics_without_it() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns, broker_permission=4) as broker:
        await create_topic(client, broker, "T")
        found = await route(client, ns, "T")
        assert found is not None and found.queue_datas[0].perm == 4


async def test_a_broker_is_registered_a_second_after_its_name_server_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async with running_namesrv() as ns, running_broker(ns, **RARELY), connected() as client:
        ns.config.listen_port = ns.port
        for _ in range(2):
            await ns.stop()
            await until(lambda: "cannot register" in caplog.text)
            await ns.start()
            back_s = time.monotonic()
            await until(lambda: bool(ns.routes.brokers()))
            assert time.monotonic() - back_s < 30, "not only at the next of the registrations that it sends every minute"
        assert await route(client, ns, "TBW102") is not None


async def test_broker_registers_when_a_name_server_appears_after_its_start() -> None:
    async with running_namesrv() as ns:
        await ns.stop()
        async with running_broker(f"127.0.0.1:{ns.port}", **RARELY):
            ns.config.listen_port = ns.port
            await ns.start()
            back_s = time.monotonic()
            await until(lambda: bool(ns.routes.brokers()))
            assert time.monotonic() - back_s < 30


async def test_unreachable_name_server_is_retried_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(time.monotonic())
        writer.close()

    closing = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with running_broker(f"127.0.0.1:{closing.sockets[0].getsockname()[1]}"):
        await until(lambda: len(asked) >= 5)
        assert asked[-1] - asked[0] > 1.0, "no more than two or three times a second"
    closing.close()
    assert caplog.text.count("cannot register") == 1


async def test_second_broker_with_the_same_name_and_id_is_logged_by_both(caplog: pytest.LogCaptureFixture) -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as first:
        async with running_broker(ns) as second:
            assert second.address != first.address
            said = [(record.name, record.levelname) for record in caplog.records if "two living brokers" in record.message]
            assert said == [("namesrv", "WARNING"), ("broker", "ERROR")]
            found = await route(client, ns, "TBW102")
            assert found is not None and found.broker_datas[0].broker_addrs == {"0": first.address}
        found = await route(client, ns, "TBW102")
        assert found is not None, "the second does not unregister the first"


async def test_second_broker_takes_over_the_name_when_the_first_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "REFUSED_RETRY_S", 0.1)
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as first, running_broker(ns) as second:
        await first.stop()
        await until(lambda: bool(ns.routes.brokers()))
        found = await route(client, ns, "TBW102")
        assert found is not None and found.broker_datas[0].broker_addrs == {"0": second.address}


async def test_old_address_is_unregistered_between_two_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache's name server removes the new address along with the old one, so the new one is registered again."""
    async with running_namesrv() as ns, running_broker(ns) as broker:
        sent: list[tuple[int, str]] = []
        client, old, new = broker.services.client, broker.address, "127.0.0.1:4711"
        call = client.call

        async def recording_call(address: str, code: int, header: Any, *rest: Any) -> RemotingCommand:
            sent.append((code, header.broker_addr))
            return await call(address, code, header, *rest)

        monkeypatch.setattr(client, "call", recording_call)
        broker.services.registration.move(new)
        await until(lambda: len(sent) == 3)
        assert sent == [
            (RequestCode.REGISTER_BROKER, new), (RequestCode.UNREGISTER_BROKER, old), (RequestCode.REGISTER_BROKER, new),
        ]  # fmt: skip
        await until(lambda: [one.broker_addrs for one in ns.routes.brokers().values()] == [{"0": new}])
        assert broker.services.registration.ha_server_address.startswith("127.0.0.1:")
