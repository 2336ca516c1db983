"""The client with a master and its slave: consumers read from the slave while the master is down, then from the master."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.running import ask, connected, running_broker, running_namesrv, until

SLAVE: dict[str, Any] = {"broker_role": "SLAVE"}


@pytest.fixture(autouse=True)
def quick_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which clients and slaves look for changes."""
    monkeypatch.setattr("pocketmq.client.client_instance.ROUTE_REFRESH_S", 0.1)
    monkeypatch.setattr("pocketmq.client.consuming.rebalancing.PERSIST_OFFSETS_S", 0.1)
    monkeypatch.setattr("pocketmq.client.consuming.held_queues.HOLD_MS", 500)
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.2)
    monkeypatch.setattr("pocketmq.broker.registration.registration.NO_MASTER_RETRY_S", 0.05)


def address(namesrv: NameServer) -> str:
    return f"127.0.0.1:{namesrv.port}"


class Pair:
    """A master that can be stopped and started again at its port, and its slave."""

    def __init__(self, namesrv: NameServer, slave: Broker) -> None:
        self.namesrv = namesrv
        self.slave = slave
        self.master: Broker
        self._port = 0
        self._disk = MemoryDisk()
        self._running = contextlib.AsyncExitStack()

    async def start_master(self) -> None:
        broker = running_broker(self.namesrv, disk=self._disk, listen_port=self._port)
        self.master = await self._running.enter_async_context(broker)
        self._port = self.master.port

    async def stop_master(self) -> None:
        await self._running.aclose()

    async def copied(self) -> None:
        """Wait until the slave has the log of the master, and its topics."""
        stores = self.master.services.store, self.slave.services.store
        await until(lambda: stores[0].max_physical_offset == stores[1].max_physical_offset)
        await until(lambda: "T" in self.slave.services.topics.table)


@contextlib.asynccontextmanager
async def running_pair(**settings: Any) -> AsyncIterator[Pair]:
    async with running_namesrv() as namesrv, running_broker(namesrv, store=SLAVE, broker_id=1, **settings) as slave:
        pair = Pair(namesrv, slave)
        await pair.start_master()
        try:
            yield pair
        finally:
            await pair.stop_master()


class GatedInbox:
    """A listener that keeps bodies, and waits after `pause_after` of them until `gate` is set."""

    def __init__(self, pause_after: int = 1 << 30) -> None:
        self.bodies: list[bytes] = []
        self.gate = asyncio.Event()
        self._pause_after = pause_after

    async def __call__(self, message: MessageExt) -> None:
        if len(self.bodies) >= self._pause_after:
            await self.gate.wait()
        self.bodies.append(message.body)


def consumer(namesrv: str, listener: GatedInbox, group: str = "G") -> PushConsumer:
    made = PushConsumer(namesrv, group, start="first")
    made.subscribe("T", listener)
    return made


async def send(namesrv: str, numbers: range) -> list[bytes]:
    bodies = [b"%d" % number for number in numbers]
    async with Producer(namesrv, "p") as producer:
        for body in bodies:
            await producer.send(Message("T", body))
    return bodies


async def test_consumption_moves_to_the_slave_and_back_to_the_master() -> None:
    async with running_pair() as pair:
        namesrv, inbox = address(pair.namesrv), GatedInbox(pause_after=40)
        bodies = await send(namesrv, range(400))
        await pair.copied()
        async with consumer(namesrv, inbox):
            await until(lambda: len(inbox.bodies) == 40)
            await pair.stop_master()
            inbox.gate.set()
            await until(lambda: len(inbox.bodies) == 400)
            await pair.start_master()
            bodies += await send(namesrv, range(400, 440))
            await until(lambda: len(inbox.bodies) >= 440)
        assert sorted(inbox.bodies) == sorted(bodies), "nothing lost, nothing twice"
        offsets = pair.master.services.offsets
        assert sum(offsets.query("G", "T", queue_id) for queue_id in range(4)) == 440


async def test_stopping_master_suggests_the_slave_to_its_consumers() -> None:
    """A client with an outdated route, such as Apache's, pulls only from the broker that the last answer suggested."""
    async with running_pair() as pair, connected() as client:
        await send(address(pair.namesrv), range(400))
        await pair.copied()
        brokers = {0: pair.master, 1: pair.slave}
        visits = [0]

        async def pull(queue_offset: int) -> PullMessageResponseHeader:
            header = PullMessageRequestHeader("G", "T", 0, queue_offset, 1, 4, 0, 0, subscription="*", sub_version=0)
            answer = await ask(client, brokers[visits[-1]], RequestCode.PULL_MESSAGE, header)
            told = answer.header(PullMessageResponseHeader)
            if answer.code == ResponseCode.SUCCESS:
                assert told.next_begin_offset == queue_offset + 1
            else:
                assert (answer.code, told.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, queue_offset)
            visits.append(told.suggest_which_broker_id)
            return told

        for _ in range(10):
            await pull(0)
        assert visits == [0] * 11
        stopping = asyncio.create_task(pair.stop_master())
        while not stopping.done():
            await pull(len(visits) % 100)
        await stopping
        for queue_offset in range(10):
            await pull(queue_offset)
        assert visits[-11:] == [1] * 11, "the slave keeps consumers while it has messages for them"
        header = PullMessageRequestHeader("G", "T", 0, 100, 1, 4, 0, 0, subscription="*", sub_version=0)
        last = (await ask(client, pair.slave, RequestCode.PULL_MESSAGE, header)).header(PullMessageResponseHeader)
        assert last.suggest_which_broker_id == 0, "the master, if it is back"


async def test_stopping_master_without_a_slave_refuses_pulls() -> None:
    async with running_namesrv() as namesrv, connected() as client, running_broker(namesrv) as broker:
        await send(address(namesrv), range(8))
        broker.services.ha.begin_stop()  # type: ignore[union-attr]
        broker.services.holds.stop()
        header = PullMessageRequestHeader("G", "T", 0, 0, 1, 4, 0, 0, subscription="*", sub_version=0)
        answer = await ask(client, broker, RequestCode.PULL_MESSAGE, header)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_offsets_committed_at_the_slave_are_copied_to_the_master() -> None:
    async with running_pair() as pair:
        namesrv, inbox = address(pair.namesrv), GatedInbox(pause_after=4)
        await send(namesrv, range(40))
        await pair.copied()
        async with consumer(namesrv, inbox) as consuming:
            await until(lambda: len(inbox.bodies) == 4)
            await pair.stop_master()
            inbox.gate.set()
            slave_offsets = pair.slave.services.offsets
            await until(lambda: [slave_offsets.query("G", "T", queue_id) for queue_id in range(4)] == [10] * 4)
            await pair.start_master()
            await until(lambda: "b" in consuming.instance.routes.masters())
        assert [pair.master.services.offsets.query("G", "T", queue_id) for queue_id in range(4)] == [10] * 4


async def test_consumer_started_without_the_master_resumes_at_slave_offsets() -> None:
    async with running_pair() as pair:
        namesrv, first, second = address(pair.namesrv), GatedInbox(), GatedInbox()
        await send(namesrv, range(8))
        async with consumer(namesrv, first):
            await until(lambda: len(first.bodies) == 8)
        rest = await send(namesrv, range(8, 20))
        await pair.copied()
        slave_offsets = pair.slave.services.offsets
        await until(lambda: sum(max(slave_offsets.query("G", "T", queue_id), 0) for queue_id in range(4)) == 8)
        await pair.stop_master()
        async with consumer(namesrv, second):
            await until(lambda: len(second.bodies) >= 12)
        assert sorted(second.bodies) == sorted(rest)


async def test_pull_goes_to_the_broker_that_the_last_answer_suggested() -> None:
    async with running_pair(slave_read_enable=True) as pair:
        await send(address(pair.namesrv), range(32))
        await pair.copied()
        pair.master.services.config.slave_read_enable = True
        pair.master.services.store.reader.in_memory_bytes = 0
        async with PullConsumer(address(pair.namesrv), "G") as puller:
            queue = (await puller.queues("T"))[0]

            async def pulled() -> tuple[int, int]:
                result = await puller.pull(queue, 0, commit_offset=7)
                assert result.next_begin_offset == len(result.messages) == 8
                return tuple(one.services.stats.get_total.nums for one in (pair.master, pair.slave))  # type: ignore[return-value]

            assert await pulled() == (8, 0)
            assert await pulled() == (8, 8), "the master suggested its slave, as its records are not in memory"
            assert await pulled() == (16, 8), "the slave suggested the master again"
        assert pair.master.services.offsets.query("G", "T", queue.queue_id) == 7
        assert pair.slave.services.offsets.query("G", "T", queue.queue_id) in (-1, 7), "7 only as a copy"


async def test_suggested_broker_that_does_not_exist_is_replaced_by_the_master() -> None:
    async with running_pair() as pair:
        await send(address(pair.namesrv), range(32))
        pair.master.services.config.slave_read_enable = True
        pair.master.services.store.reader.in_memory_bytes = 0
        group = pair.master.services.groups.find("G")
        assert group is not None
        group.which_broker_when_consume_slowly = 9
        async with PullConsumer(address(pair.namesrv), "G") as puller:
            queue = (await puller.queues("T"))[0]
            for _ in range(3):
                assert len((await puller.pull(queue, 0)).messages) == 8
        assert pair.master.services.stats.get_total.nums == 24


async def test_pull_beyond_the_end_of_a_slave_queue_keeps_its_offset() -> None:
    async with running_pair() as pair:
        await send(address(pair.namesrv), range(4))
        await pair.copied()
        await pair.stop_master()
        async with PullConsumer(address(pair.namesrv), "G") as puller:
            queue = (await puller.queues("T"))[0]
            result = await puller.pull(queue, 1000)
            assert (result.is_refused_by_slave, result.is_moved, result.next_begin_offset) == (True, False, 1000)
            assert not (await puller.pull(queue, 0)).is_refused_by_slave
            assert (await puller.min_offset(queue), await puller.max_offset(queue)) == (0, 1)


async def test_producer_sends_only_to_broker_names_that_have_a_master() -> None:
    async with running_pair() as pair, running_broker(pair.namesrv, broker_name="other") as other:
        async with Producer(address(pair.namesrv), "p") as producer:
            await producer.create_topic("T")
            await producer.send(Message("T", b"1"))
            await pair.copied()
            await pair.stop_master()
            results = [await producer.send(Message("T", b"2")) for _ in range(20)]
            assert {result.queue.broker_name for result in results} == {"other"}
            await until(lambda: "b" not in producer.instance.routes.masters())
            await pair.start_master()
            await until(lambda: "b" in producer.instance.routes.masters())
            results = [await producer.send(Message("T", b"3")) for _ in range(20)]
            assert {result.queue.broker_name for result in results} == {"b", "other"}
        assert other.services.store.max_physical_offset > 0


async def test_sends_without_any_master_fail_until_a_master_is_back(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.client.client_instance.ROUTE_REFRESH_S", 3600)
    async with running_pair() as pair, Producer(address(pair.namesrv), "p") as producer:
        await producer.send(Message("T", b"1"))
        await pair.copied()
        await pair.stop_master()
        with pytest.raises((RemotingError, OSError)):
            await producer.send(Message("T", b"2"))
        with pytest.raises(RemotingError, match="no writable queue at a broker with a master"):
            await producer.send(Message("T", b"3"))
        await pair.start_master()
        assert (await producer.send(Message("T", b"4"))).status == "SEND_OK"


async def test_slaves_get_the_heartbeats_of_consumers_only() -> None:
    async with running_pair() as pair:
        await send(address(pair.namesrv), range(4))
        await pair.copied()
        async with Producer(address(pair.namesrv), "p") as producer, consumer(address(pair.namesrv), GatedInbox()) as one:
            await producer.send(Message("T", b""))
            await producer.instance.heartbeat()
            for broker in (pair.master, pair.slave):
                group = broker.services.clients.consumers.get("G")
                assert group is not None and group.client_ids() == [one.instance.client_id]
            assert "p" in pair.master.services.clients.producers and "p" not in pair.slave.services.clients.producers
        await until(lambda: pair.slave.services.clients.consumers.get("G") is None)


async def test_heartbeats_reach_other_brokers_if_one_refuses_them() -> None:
    async with running_pair() as pair:
        await send(address(pair.namesrv), range(4))
        await pair.copied()
        pair.master.services.config.max_groups_per_connection = 0
        instance = ClientInstance(address(pair.namesrv))
        try:
            await instance.routes.route("T")
            one = consumer(address(pair.namesrv), GatedInbox())
            instance.consumer_data = one._consumer_data
            await instance.heartbeat()
            assert pair.master.services.clients.consumers.get("G") is None
            assert pair.slave.services.clients.consumers.get("G") is not None
        finally:
            await instance.close("G")


async def test_message_is_sent_back_to_another_master_if_its_own_is_down() -> None:
    gate, taken = asyncio.Event(), list[tuple[int, str, str]]()

    async def listen(message: MessageExt) -> None:
        taken.append((message.reconsume_times, message.broker_name, message.msg_id))
        if message.reconsume_times == 0:
            await gate.wait()
            raise ValueError("not yet")

    levels = {"message_delay_level": "1s 1s 1s 1s"}
    async with running_pair() as pair, running_broker(pair.namesrv, broker_name="other", store=levels):
        namesrv = address(pair.namesrv)
        async with Producer(namesrv, "p") as producer:
            await producer.create_topic("T", 1)
            sent = await producer.send(
                Message("T", b"x"), lambda queues: next(queue for queue in queues if queue.broker_name == "b")
            )
        consuming = PushConsumer(namesrv, "G", start="first")
        consuming.subscribe("T", listen)
        async with consuming:
            await until(lambda: len(taken) == 1)
            await pair.stop_master()
            gate.set()
            await until(lambda: len(taken) > 1)
        assert taken == [(0, "b", sent.msg_id), (1, "other", sent.msg_id)]
