"""Registration while name servers come, go and hang."""

import asyncio
import logging

import pytest
from running import connected, create_topic, route, running_broker, running_namesrv, until

from broker.registration import Registration
from remoting.codes import ResponseCode


async def test_a_name_server_that_is_down_is_logged_once_and_found_again(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_a_name_server_that_hangs_holds_up_nobody_but_once() -> None:
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
        async with asyncio.timeout(5):
            for number in range(20):
                assert (await create_topic(client, broker, f"T{number}")).code == ResponseCode.SUCCESS
        assert await route(client, ns, "T19") is not None
    hanging.close()


async def test_a_change_during_a_round_is_in_the_next() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as broker:
        registration: Registration = broker.services.registration
        first = registration.register()
        await asyncio.sleep(0)
        answer = await create_topic(client, broker, "T")
        assert answer.code == ResponseCode.SUCCESS and first.done()
        assert await route(client, ns, "T") is not None


async def test_a_broker_without_write_permission_offers_none() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns, broker_permission=4) as broker:
        await create_topic(client, broker, "T")
        found = await route(client, ns, "T")
        assert found is not None and found.queue_datas[0].perm == 4
