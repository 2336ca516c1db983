"""A master and its slave, both PocketMQ: the slave's log, queues and index are copies of the master's."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.ha_service import CONNECTIONS_MAX
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.query import ViewMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.message_store import MessageStore
from tests.broker.running import ask, connected, running_broker, running_namesrv, until

SLAVE: dict[str, Any] = {"broker_role": "SLAVE"}
SMALL_FILES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16}


def send_header(topic: str = "T", queue_id: int = 0, properties: str = "KEYS\x01k\x02") -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2("pg", topic, "TBW102", 4, queue_id, 0, 0, 0, properties=properties)


async def send(client: RemotingClient, broker: Broker, count: int = 1, size: int = 100, **header: Any) -> list[int]:
    codes = []
    for number in range(count):
        body = b"%d " % number + b"x" * size
        codes.append((await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header(**header), body)).code)
    return codes


def end_of(broker: Broker) -> int:
    return broker.services.store.max_physical_offset


def log_of(broker: Broker, begin: int = 0) -> bytes:
    files = broker.services.store.commit_log.mapped_files.files
    return b"".join(bytes(file.view[: file.wrote]) for file in files if file.start_offset >= begin)


async def test_slave_copies_log_queues_and_index() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store=SMALL_FILES) as master,
        running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1) as slave,
    ):
        for topic, queue_id in (("T", 0), ("T", 3), ("U", 1)):
            await send(client, master, 300, topic=topic, queue_id=queue_id)
        await send(client, master, 3, topic="T", properties="DELAY\x013\x02")
        await until(lambda: end_of(slave) == end_of(master))
        assert end_of(master) > 3 << 16, "several files"
        assert log_of(slave) == log_of(master)
        ends = [
            {(queue.topic, queue.queue_id): queue.max_offset for queue in one.services.store.queues}
            for one in (master, slave)
        ]
        await until(lambda: slave.services.store.last_record_offset == master.services.store.last_record_offset)
        ends = [
            {(queue.topic, queue.queue_id): queue.max_offset for queue in one.services.store.queues}
            for one in (master, slave)
        ]
        assert ends[0] == ends[1] and ends[0]["T", 3] == 300
        found = slave.services.store.query_message("T", "k", 64, 0, 1 << 60)
        assert len(found.views) == 64
        offset = master.services.store.last_record_offset
        answer = await ask(client, slave, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        assert answer.body == master.services.store.message_at(offset)


async def test_sync_master_waits_for_its_slave_or_answers_not_available() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store={"broker_role": "SYNC_MASTER", "flush_disk_type": "SYNC_FLUSH"}) as master,
    ):
        assert await send(client, master) == [ResponseCode.SLAVE_NOT_AVAILABLE]
        async with running_broker(ns, store=SLAVE, broker_id=1) as slave:
            await until(lambda: end_of(slave) == end_of(master))
            assert await send(client, master, 20) == [ResponseCode.SUCCESS] * 20
            assert log_of(slave) == log_of(master)
        await until(lambda: not master.services.ha.replicas())
        assert await send(client, master) == [ResponseCode.SLAVE_NOT_AVAILABLE]


async def test_slave_continues_at_its_end_after_a_restart() -> None:
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns, store=SMALL_FILES) as master:
        async with running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1, disk=disk) as slave:
            await send(client, master, 200)
            await until(lambda: end_of(slave) == end_of(master))
        await send(client, master, 1000)
        async with running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1, disk=disk) as slave:
            await until(lambda: end_of(slave) == end_of(master))
            assert log_of(slave) == log_of(master)


async def test_slave_finds_its_master_again_at_other_ports(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.registration.registration.NO_MASTER_RETRY_S", 0.05)
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns, store=SLAVE, broker_id=1) as slave:
        ports = []
        for count in (20, 40):
            async with running_broker(ns, disk=disk, store={"ha_listen_port": 0}) as master:
                await send(client, master, 20)
                await until(lambda: slave.services.store.max_offset("T", 0) == count)  # noqa: B023
                ports.append(master.services.ha.port)
        assert ports[0] != ports[1]


async def test_empty_slave_begins_with_the_last_file_or_the_whole_log() -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns, store=SMALL_FILES) as master:
        await send(client, master, 1000)
        async with (
            running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1) as late,
            running_broker(ns, store={**SMALL_FILES, **SLAVE, "ha_fetch_whole_log": True}, broker_id=2) as whole,
        ):
            await until(lambda: end_of(late) == end_of(whole) == end_of(master))
            last = master.services.store.commit_log.mapped_files.files[-1].start_offset
            assert late.services.store.min_physical_offset == last and log_of(late) == log_of(master, last)
            assert log_of(whole) == log_of(master)


async def test_slave_with_a_diverged_log_copies_nothing_and_logs_the_offset(caplog: Any) -> None:
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns, store=SMALL_FILES) as master:
        await send(client, master, 500)
        async with running_broker(
            ns, store={**SMALL_FILES, **SLAVE, "ha_fetch_whole_log": True}, broker_id=1, disk=disk
        ) as slave:
            await until(lambda: end_of(slave) == end_of(master))
        parting = end_of(master)
        async with running_broker(store=SMALL_FILES, disk=disk, broker_name="alone") as promoted:
            await send(client, promoted, 300)
            other_end = end_of(promoted)
        await send(client, master, 10, size=150)
        async with running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1, disk=disk) as slave:
            await until(lambda: f"differ from {parting} on" in caplog.text)
            await asyncio.sleep(0)
            assert end_of(slave) == other_end


async def test_slave_takes_topics_groups_and_offsets_of_its_master() -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
    ):
        await send(client, master, topic="New")
        master.services.groups.find("G")
        master.services.offsets.commit("G", "New", 0, 1)
        disk = MemoryDisk()
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            await until(lambda: "New" in slave.services.topics.table and slave.services.offsets.query("G", "New", 0) == 1)
            assert slave.services.topics.data_version == master.services.topics.data_version
            assert "G" in slave.services.groups.table
        async with running_broker(store=SLAVE, broker_id=1, disk=disk) as slave:
            assert "New" in slave.services.topics.table and "G" in slave.services.groups.table
            assert slave.services.offsets.query("G", "New", 0) == 1


def pull_header(queue_offset: int, group: str = "G") -> PullMessageRequestHeader:
    return PullMessageRequestHeader(group, "T", 0, queue_offset, 32, 4, 0, 0, subscription="*", sub_version=0)


async def test_consumers_read_from_the_slave_that_the_master_suggests() -> None:
    settings = {"slave_read_enable": True}
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, **settings) as master,
        running_broker(ns, store=SLAVE, broker_id=1, **settings) as slave,
    ):
        await send(client, master, 10)
        await until(lambda: slave.services.store.max_offset("T", 0) == 10 and "T" in slave.services.topics.table)
        near = await ask(client, master, RequestCode.PULL_MESSAGE, pull_header(0))
        assert (near.code, near.ext["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, "0")
        master.services.store.reader.in_memory_bytes = 0
        far = await ask(client, master, RequestCode.PULL_MESSAGE, pull_header(0))
        assert near.body.startswith(far.body) and far.ext["suggestWhichBrokerId"] == "1"
        at_slave = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(0))
        assert (at_slave.body, at_slave.ext["suggestWhichBrokerId"]) == (near.body, "0")
        beyond = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(20))
        assert (beyond.code, beyond.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "20")


async def test_ha_port_closes_connections_of_non_slaves_and_forbidden_hosts(caplog: Any) -> None:
    caplog.set_level("INFO")
    async with connected() as client, running_broker() as open_to_all:
        await send(client, open_to_all, 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", open_to_all.services.ha.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        assert "closing the connection of slave 127.0.0.1:" in caplog.text
        writer.close()
        assert await send(client, open_to_all) == [ResponseCode.SUCCESS]
    async with running_broker(store={"ha_allowed_hosts": "10.0.0.0/8"}) as guarded:
        reader, writer = await asyncio.open_connection("127.0.0.1", guarded.services.ha.port)
        writer.write(bytes(8))
        assert await reader.read() == b""
        assert "127.0.0.1 may not copy the log: haAllowedHosts=10.0.0.0/8" in caplog.text
        writer.close()


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_slave_drops_the_queues_and_offsets_of_a_topic_deleted_at_its_master(
    is_noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the topic is created again before the slave copies the tables the next time."""
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.3 if is_noticed else 1.5)
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:  # noqa: SIM117  # the order of stops
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            for queue_id in (0, 1):
                await send(client, master, 3, queue_id=queue_id)
            for queue_id in (0, 1):
                master.services.offsets.commit("g", "T", queue_id, 3)
            await until(lambda: slave.services.offsets.query("g", "T", 1) == 3 and end_of(slave) == end_of(master))
            await ask(client, master, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader("T"))
            if is_noticed:
                await until(lambda: slave.services.store.queue("T", 1) is None)
                assert slave.services.offsets.groups_of("T") == []
            await send(client, master, 1, queue_id=0)
            store = slave.services.store
            await until(lambda: store.max_offset("T", 0) == 1 and store.queue("T", 1) is None)
            assert slave.services.offsets.groups_of("T") == []
    async with running_broker(disk=disk) as promoted:
        assert promoted.services.store.max_offset("T", 1) == 0 and promoted.services.store.max_offset("T", 0) == 1
        assert promoted.services.offsets.groups_of("T") == []


async def test_queue_of_a_master_that_dispatches_late_is_not_taken_for_one_of_a_deleted_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apache's master sends its log to slaves before it has made queues of it."""
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 3, queue_id=0)
        await until(lambda: slave.services.store.max_offset("T", 0) == 3)
        of_master, asked = master.services.store, 0

        def behind(store: MessageStore) -> int:
            nonlocal asked
            asked += store is of_master
            return of_master.max_physical_offset if store is of_master else 0

        with monkeypatch.context() as late:
            late.setattr(MessageStore, "dispatch_behind_bytes", property(behind))
            late.setattr(of_master, "max_offset", lambda topic, queue_id: 1)
            await send(client, master, 1, queue_id=1)
            await until(lambda: asked > 20 or slave.services.store.queue("T", 0) is None)
        await until(lambda: not slave.services.slave_synchronize._left_queues.has_some)
        assert [slave.services.store.max_offset("T", queue_id) for queue_id in (0, 1)] == [3, 1]


async def test_new_slave_has_no_queues_of_topics_deleted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.2)
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:
        await send(client, master, 3, topic="Deleted", queue_id=1)
        await ask(client, master, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader("Deleted"))
        await send(client, master, 3, topic="Kept", queue_id=1)
        async with running_broker(ns, store=SLAVE, broker_id=1) as slave:
            store = slave.services.store
            await until(lambda: store.max_offset("Kept", 1) == 3 and store.queue("Deleted", 1) is None)
            await send(client, master, 1, topic="Kept", queue_id=2)
            await until(lambda: store.max_offset("Kept", 2) == 1)
            assert store.max_offset("Kept", 1) == 3


async def test_idle_strangers_do_not_keep_a_slave_out(caplog: pytest.LogCaptureFixture) -> None:
    async with running_namesrv() as ns, connected() as client, running_broker(ns, store=SMALL_FILES) as master:
        await send(client, master, 3)
        assert master.services.ha is not None
        port = master.services.ha.port
        async with running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=1) as slave:
            await until(lambda: end_of(slave) == end_of(master))
            strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 6)]
            async with running_broker(ns, store={**SMALL_FILES, **SLAVE}, broker_id=2) as second:
                await until(lambda: end_of(second) == end_of(master))
                await send(client, master, 3)
                await until(lambda: end_of(slave) == end_of(second) == end_of(master))
            assert await strangers[0][0].read() == b"", "the oldest stranger was dropped"
            for _, writer in strangers:
                writer.close()
    assert "the limit of haListenPort" in caplog.text
    assert "maxConnections" not in caplog.text
