"""Requests that create or register many groups: the event loop serves other requests in between."""

import asyncio
import logging
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader
from pocketmq.runtime import work_slices
from tests.broker.data_path import DataPath, StubChannel
from tests.broker.running import ask, connected, running_broker, until
from tests.broker.test_creation_rate import send
from tests.broker.test_table_writes import beat, heartbeat

GROUPS = [f"g{number}" for number in range(300)]


@pytest.fixture
def tiny_slices(monkeypatch: Any) -> None:
    """Slices that end after few steps, whatever the machine's speed."""
    monkeypatch.setattr(work_slices, "SLICE_S", 0.0002)


@pytest.fixture
async def path() -> DataPath:
    return DataPath()


async def test_others_are_served_while_a_heartbeat_registers_many_groups(tiny_slices: None) -> None:
    async with running_broker() as broker, connected() as client, connected() as neighbour:
        assert (await send(neighbour, broker, "Neighbour")).code == ResponseCode.SUCCESS
        clients = broker.services.clients
        beating = asyncio.ensure_future(beat(client, broker, *GROUPS))
        registered = set()
        while not beating.done():
            await send(neighbour, broker, "Neighbour")
            registered.add(len(clients.consumers))
        assert (await beating).code == ResponseCode.SUCCESS
        assert len(clients.consumers) == len(GROUPS)
        assert len(registered - {0, len(GROUPS)}) >= 3, "the neighbour is served between the groups"


async def test_connection_is_suspended_until_its_heartbeat_is_complete(path: DataPath, tiny_slices: None) -> None:
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*GROUPS))
    clients = path.services.clients
    assert 0 < len(clients.consumers) < len(GROUPS)
    assert path.channel.is_suspended, "no further request of the connection is served"
    await until(lambda: not path.channel.is_suspended)
    assert len(clients.consumers) == len(GROUPS)


async def test_a_connection_that_closes_during_its_heartbeat_leaves_nothing(path: DataPath, tiny_slices: None) -> None:
    hostile, other = StubChannel(1), StubChannel(2)
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*GROUPS), hostile)
    hostile.close()
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*GROUPS, client_id="d"), other)
    await until(lambda: not other.is_suspended)
    members = [list(group.clients) for group in path.services.clients.consumers.values()]
    assert members == [[other]] * len(GROUPS)


async def test_a_second_request_is_answered_after_the_heartbeat(tiny_slices: None) -> None:
    async with running_broker() as broker, connected() as client:
        beating = asyncio.ensure_future(beat(client, broker, *GROUPS))
        asking = asyncio.ensure_future(
            ask(client, broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(GROUPS[-1]))
        )
        assert (await asking).code == ResponseCode.SUCCESS, "the last group of the heartbeat is registered"
        assert (await beating).code == ResponseCode.SUCCESS


async def test_many_changed_groups_are_notified_in_slices(path: DataPath, tiny_slices: None) -> None:
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*GROUPS))
    await until(lambda: not path.channel.is_suspended)
    path.turn()
    await until(lambda: path.services.slices.is_idle)  # the heartbeat's own notifications
    path.channel.take()
    for group in path.services.clients.consumers.values():
        path.services.clients._notifier.changed(group)
    path.turn()
    told = [command.ext["consumerGroup"] for command in path.channel.take()]
    assert len(told) < len(GROUPS) / 2
    while len(told) < len(GROUPS):
        await asyncio.sleep(0)
        told += [command.ext["consumerGroup"] for command in path.channel.take()]
    assert sorted(told) == sorted(GROUPS)


async def test_a_thousand_new_groups_cause_only_a_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with running_broker() as broker, connected() as client:
            assert (await beat(client, broker, *(f"g{number}" for number in range(1000)))).code == ResponseCode.SUCCESS
            assert (await send(client, broker, "T")).code == ResponseCode.SUCCESS
    lines = [record.getMessage() for record in caplog.records if "created" in record.getMessage()]
    assert "topics created at their first use: T" in lines
    assert 2 <= len(lines) <= 4
    assert any(line.startswith("consumer groups created at their first use: g0, g1") and "more" in line for line in lines)


async def test_a_connection_rests_after_a_refused_creation() -> None:
    path = DataPath({"max_group_creations_per_second": 1})
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*(f"g{number}" for number in range(50))))
    await until(lambda: path.services.slices.is_idle)
    assert path.channel.throttle_s == 0
    path.ask(RequestCode.HEART_BEAT, None, heartbeat(*(f"h{number}" for number in range(100))))
    await until(lambda: path.channel.throttle_s > 0)
