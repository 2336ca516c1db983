"""A slave acts as master while its master is away, and hands back when it returns."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, decode_body, encode_body
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.route import (
    BrokerMemberGroupRequestHeader,
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.remoting.server import RemotingServer
from pocketmq.runtime.clock import SystemClock, VirtualClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import decode_record
from tests.broker.popping import Popper
from tests.broker.running import ask, connected, create_topic, route, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, send
from tests.patience import PATIENCE_S

ACTING: dict[str, Any] = {
    "broker_name": "a", "enable_slave_acting_master": True, "enable_remote_escape": True,
    "sync_broker_member_group_period": 100,
}  # fmt: skip


@pytest.fixture(autouse=True)
def patient_slave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a heavy load an answer comes late, and a slave that no longer waits for it delivers the message once more."""
    for name in ("escape_bridge.SEND_TIMEOUT_S", "escape_bridge.DRAIN_S", "acting_services.SETTLE_S"):
        monkeypatch.setattr(f"pocketmq.broker.ha.{name}", PATIENCE_S)


def delivered(*brokers: Broker, topic: str = "T") -> list[tuple[str, int]]:
    """Return body and store time in ms of each message of the topic on the brokers."""
    found = []
    for broker in brokers:
        store = broker.services.store
        for queue in [queue for queue in store.queues if queue.topic == topic]:
            for queue_offset in range(queue.max_offset):
                record = decode_record(store.message_at(queue.unit_at(queue_offset)[0]))  # type: ignore[arg-type, index]
                found.append((record.body.decode().split()[0], record.store_timestamp_ms))
    return found


@contextlib.asynccontextmanager
async def two_names(
    name_server: Any, client: RemotingClient, disk: MemoryDisk, **config: Any
) -> AsyncIterator[tuple[contextlib.AsyncExitStack, Broker, Broker, Broker]]:
    """Yield (stack that stops the master of `a`, that master, its slave, the master of `b`); both names have topic T."""
    async with (
        running_broker(name_server, broker_name="b") as other,
        running_broker(name_server, store=SLAVE, broker_id=1, **ACTING | config) as slave,
        contextlib.AsyncExitStack() as master_s,
    ):
        master = await master_s.enter_async_context(running_broker(name_server, disk=disk, **ACTING | config))
        for broker in (other, master):
            await create_topic(client, broker, "T")
        await until(lambda: slave.services.registration.master is not None)
        yield master_s, master, slave, other


async def until_copied(master: Broker, slave: Broker) -> None:
    await until(lambda: end_of(slave) == end_of(master) and slave.services.topics.get("T") is not None)


def acts(slave: Broker) -> Callable[[], bool]:
    return lambda: slave.services.acting_master is not None and slave.services.acting_master.is_acting


async def test_acting_slave_delivers_delayed_messages_and_master_repeats_none(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.DELAYS_S", 0.1)
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    disk = MemoryDisk()
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        two_names(ns, client, disk) as (master_s, master, slave, other),
    ):
        delays = {"DELAY\x012\x02": 5, "TIMER_DELAY_SEC\x014\x02": 4, "DELAY\x013\x02": 10, "TIMER_DELAY_SEC\x0112\x02": 12}
        sent_ms = {}
        for number, properties in enumerate(delays):
            sent_ms[number] = time.time_ns() // 1_000_000
            await send(client, master, 20, topic="T", properties=f"KEYS\x01{number}\x02{properties}")
        await until_copied(master, slave)
        await master_s.aclose()
        await until(acts(slave))
        slave_end = end_of(slave)
        await until(lambda: len(delivered(other)) >= 40)
        assert Counter(body for body, _ in delivered(other)) == {str(number): 2 for number in range(20)}
        first_ms = min(at_ms for _, at_ms in delivered(other))
        assert first_ms >= min(sent_ms.values()) + 4000, "none early"
        assert end_of(slave) == slave_end, "the log of a slave stays a copy of its master's"
        for record in decoded(other):
            assert not {"DELAY", "TIMER_DELAY_SEC", "REAL_TOPIC"} & record.keys()
        last_s = max(at_ms for _, at_ms in delivered(other)) // 1000
        await until(lambda: time.time_ns() // 10**9 > last_s)  # timers of the current second may come again
        change_s = time.time_ns() // 10**9
        async with running_broker(ns, disk=disk, **ACTING) as returned:
            await until(lambda: not acts(slave)() and returned.services.registration is not None)
            changed_s = time.time_ns() // 10**9
            every = Counter({str(number): 4 for number in range(20)})
            await until(lambda: every <= Counter(body for body, _ in delivered(returned, other)))
            # On a slow machine the change may last until others are due; then those of its seconds may come again.
            found = delivered(returned, other)
            of_change = {body for body, at_ms in found if change_s <= at_ms // 1000 <= changed_s + 1}
            assert (Counter(body for body, _ in found) - every).keys() <= of_change
            await until(lambda: end_of(slave) == end_of(returned))


def decoded(broker: Broker, topic: str = "T") -> list[dict[str, str]]:
    """Return the properties of the messages of a topic on a broker."""
    store, found = broker.services.store, []
    for queue in [queue for queue in store.queues if queue.topic == topic]:
        for queue_offset in range(queue.max_offset):
            record = decode_record(store.message_at(queue.unit_at(queue_offset)[0]))  # type: ignore[arg-type, index]
            found.append(decode_properties(record.properties))
    return found


async def lock(client: RemotingClient, broker: Broker, client_id: str) -> int:
    body = encode_body(
        LockBatchBody(consumer_group="g", client_id=client_id, mq_set=[MessageQueue(topic="T", broker_name="a", queue_id=0)])
    )
    answer = await ask(client, broker, RequestCode.LOCK_BATCH_MQ, None, body)
    return len(decode_body(LockOkBody, answer.body).lock_ok_mq_set)


async def test_acting_master_is_in_the_route_and_serves_locks_and_commits(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    disk = MemoryDisk()
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        two_names(ns, client, disk, enable_remote_escape=False) as (master_s, master, slave, _),
    ):
        await send(client, master, 9, topic="T")
        await send(client, master, 1, topic="T", properties="DELAY\x011\x02")
        await until_copied(master, slave)
        await ask(client, master, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("g", "T", 0, 2))
        await until(lambda: slave.services.offsets.query("g", "T", 0) == 2)
        await master_s.aclose()
        await until(acts(slave))
        found = await route(client, ns, "T")
        assert found is not None
        (data,) = (broker for broker in found.broker_datas if broker.broker_name == "a")
        assert data.broker_addrs == {"0": slave.address}
        assert [queue.perm for queue in found.queue_datas if queue.broker_name == "a"] == [4]
        assert (await lock(client, slave, "one"), await lock(client, slave, "two")) == (1, 0)
        assert await send(client, slave, topic="T") == [ResponseCode.SERVICE_NOT_AVAILABLE]
        await ask(client, slave, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("g", "T", 0, 7))
        async with running_broker(ns, disk=disk, **ACTING) as returned:
            header = QueryConsumerOffsetRequestHeader("g", "T", 0)
            answer = await ask(client, returned, RequestCode.QUERY_CONSUMER_OFFSET, header)
            assert answer.ext["offset"] == "7", "the master takes over what was committed at the slave"
            await until(lambda: not acts(slave)())
            found = await route(client, ns, "T")
            assert found is not None
            (data,) = (broker for broker in found.broker_datas if broker.broker_name == "a")
            assert data.broker_addrs == {"0": returned.address, "1": slave.address}
            await until(lambda: len(delivered(returned)) == 10)


def topic_end(broker: Broker, topic: str) -> int:
    return broker.services.store.max_offset(topic, 0)


async def test_acting_slave_moves_open_transactions_to_another_master_once(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    disk = MemoryDisk()
    half, op = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        two_names(ns, client, disk, transaction_time_out=1000) as (master_s, master, slave, other),
    ):
        prepared = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02KEYS\x01k\x02"
        await send(client, master, 2, topic="T", properties=prepared)
        first = decode_record(master.services.store.message_at(0))  # type: ignore[arg-type]
        header = EndTransactionRequestHeader("pg", first.queue_offset, first.physical_offset, 8, "")
        await ask(client, master, RequestCode.END_TRANSACTION, header)
        await until(lambda: topic_end(master, op) == 1)
        await until_copied(master, slave)
        await master_s.aclose()
        await until(lambda: topic_end(other, half) == 1)
        (escaped,) = (properties for properties in decoded(other, half))
        assert (escaped["REAL_TOPIC"], escaped["KEYS"], escaped["PGROUP"]) == ("T", "k", "pg")
        await until(lambda: slave.services.offsets.query("CID_RMQ_SYS_TRANS", half, 0) == 2)
        async with running_broker(ns, disk=disk, **ACTING, transaction_time_out=1000) as returned:
            assert returned.services.offsets.query("CID_RMQ_SYS_TRANS", half, 0) == 2
            await until(lambda: not acts(slave)())
            assert (topic_end(returned, half), topic_end(other, half)) == (2, 1)


async def test_acting_slave_revives_unacknowledged_pops_on_another_master(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    monkeypatch.setattr("tests.broker.popping.INVISIBLE_MS", 4000)
    retry = "%RETRY%g_T"
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        two_names(ns, client, MemoryDisk()) as (master_s, master, slave, other),
    ):
        await create_topic(client, other, retry, 1)
        await send(client, master, 4, topic="T")
        popper = Popper(client, master, VirtualClock())
        bodies = await popper.bodies()
        assert len(bodies) == 4
        assert (await popper.ack(bodies[0])).code == ResponseCode.SUCCESS
        await until(lambda: topic_end(master, "rmq_sys_wheel_timer") == 2)
        await until_copied(master, slave)
        await master_s.aclose()
        await until(lambda: topic_end(other, retry) == 3)
        assert sorted(body for body, _ in delivered(other, topic=retry)) == ["1", "2", "3"]


async def test_slave_acts_again_if_an_announced_master_does_not_start(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.acting_master.STAND_BACK_S", 0.5)
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        running_broker(ns, store=SLAVE, broker_id=1, **ACTING) as slave,
    ):
        await until(acts(slave))
        header = ExchangeHAInfoRequestHeader("127.0.0.1:1", 0, "127.0.0.1:2")
        assert (await ask(client, slave, RequestCode.EXCHANGE_BROKER_HA_INFO, header)).code == ResponseCode.SUCCESS
        assert not acts(slave)()
        await until(acts(slave))
        for addresses in (("nowhere", "127.0.0.1:2"), ("127.0.0.1:1", None)):
            answer = await ask(
                client,
                slave,
                RequestCode.EXCHANGE_BROKER_HA_INFO,
                ExchangeHAInfoRequestHeader(addresses[0], 0, addresses[1]),
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert acts(slave)()


async def test_slave_copies_only_from_the_master_that_the_name_servers_name(monkeypatch: Any) -> None:
    """Anyone can announce itself as the master that returns."""
    monkeypatch.setattr("pocketmq.broker.ha.acting_master.STAND_BACK_S", 0.5)
    disk, strangers = MemoryDisk(), []

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strangers.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        two_names(ns, client, disk) as (master_s, master, slave, _),
    ):
        await send(client, master, 5, topic="T")
        await until_copied(master, slave)
        known = slave.services.registration.master
        assert known is not None and slave.services.ha_client is not None
        header = ExchangeHAInfoRequestHeader(address, 0, address)
        for is_alive in (True, False):
            if not is_alive:
                await master_s.aclose()
                await until(acts(slave))
            answer = await ask(client, slave, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
            assert answer.header(ExchangeHAInfoResponseHeader).master_ha_address == known.ha_address
            assert slave.services.ha_client.ha_address == known.ha_address
        await until(acts(slave))
        async with running_broker(ns, disk=disk, **ACTING) as returned:
            await until(lambda: slave.services.registration.master != known)
            await send(client, returned, 5, topic="T")
            await until(lambda: end_of(slave) == end_of(returned))
        assert not strangers


async def test_due_messages_wait_until_another_master_has_the_topic(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.escape_bridge.PAUSE_MAX_S", 0.1)
    async with (
        running_namesrv(support_acting_master=True) as ns,
        connected() as client,
        running_broker(ns, store=SLAVE, broker_id=1, **ACTING) as slave,
        running_broker(ns, broker_name="b") as other,
    ):
        async with running_broker(ns, **ACTING) as master:
            await create_topic(client, master, "T")
            master.services.delays.stop()  # on a slow machine it would deliver them before it is gone
            await send(client, master, 3, topic="T", properties="DELAY\x012\x02")
            await send(client, master, 3, topic="T", properties="TIMER_DELAY_SEC\x015\x02")
            await until_copied(master, slave)
        await until(acts(slave))
        await until(lambda: "no other master has a writable queue" in slave_failures(slave))
        assert delivered(other) == []
        await create_topic(client, other, "T")
        await until(lambda: Counter(body for body, _ in delivered(other)) == {"0": 2, "1": 2, "2": 2})


def slave_failures(slave: Broker) -> str:
    """Return why the slave cannot send messages of T to another master."""
    acting = slave.services.acting_master
    services = None if acting is None else acting._services
    return "" if services is None else str(services._bridge._failures._spells.get("T", ""))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"brokerMemberGroup":[]}', b'{"brokerMemberGroup":{"brokerAddrs":{1:"nowhere"}}}',
        b'{"brokerMemberGroup":{"brokerAddrs":{"x":"127.0.0.1:1"}}}', b'{"brokerMemberGroup":{"brokerAddrs":{-1:"h:1"}}}',
        b'{"brokerMemberGroup":{"brokerAddrs":' + b"[" * 100_000,
    ],
    ids=range(8),
)  # fmt: skip
async def test_slave_does_not_act_on_invalid_member_group_answers(body: bytes) -> None:
    asked = []

    def register(services: Any, request: Any) -> Response:
        return Response(header=RegisterBrokerResponseHeader())

    def members(services: Any, request: Any) -> Response:
        asked.append(request.header.broker_name)
        return Response(body=body)

    loop = asyncio.get_running_loop()
    table = routes(
        Route(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, register),
        Route(RequestCode.GET_BROKER_MEMBER_GROUP, BrokerMemberGroupRequestHeader, members),
    )
    server = RemotingServer(None, table, Channels(Turn(loop), Timers(SystemClock(), loop), 120, is_server=True))
    address = f"127.0.0.1:{await server.listen('127.0.0.1', 0)}"
    async with running_broker(address, store=SLAVE, broker_id=1, **ACTING) as slave:
        await until(lambda: len(asked) >= 3)
        assert not acts(slave)()
    await server.close()
