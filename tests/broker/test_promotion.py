"""A slave's store is started as a master, after its master was lost."""

import time
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import TIMER_CHECKPOINT_SIZE, TIMER_CHECKPOINT_STRUCT
from pocketmq.store.format.record import bounds, store_timestamp_of
from tests.broker.running import ask, connected, route, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, send, send_header

LEVEL_1, LEVEL_2 = "DELAY\x011\x02", "DELAY\x012\x02"
TIMER_1, TIMER_9 = "TIMER_DELAY_SEC\x011\x02", "TIMER_DELAY_SEC\x019\x02"


def delivered(broker: Broker) -> list[tuple[str, int]]:
    """Return body and store time in ms of each message of the topic."""
    store, found = broker.services.store, []
    for queue_offset in range(store.max_offset("T", 0)):
        unit = store.queue("T", 0).unit_at(queue_offset)  # type: ignore[union-attr]
        record = store.message_at(unit[0])  # type: ignore[index]
        assert record is not None
        body_start, topic_start = bounds(record, 0)[1:3]
        found.append((bytes(record[body_start : topic_start - 1]).decode().split()[0], store_timestamp_of(record)))
    return found


def timers_known_delivered_ms(disk: MemoryDisk) -> int:
    """Return the time up to which timers are delivered according to the slave's disk."""
    path = "/store/config/timercheck"
    return (
        int(TIMER_CHECKPOINT_STRUCT.unpack(disk.read_range(path, 0, TIMER_CHECKPOINT_SIZE))[0]) if disk.exists(path) else 0
    )


async def test_promoted_slave_delivers_pending_messages_in_time_and_repeats_none(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.DELAYS_S", 0.2)
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:  # noqa: SIM117  # the order of stops
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            await send(client, master, 2, properties=LEVEL_1)
            await send(client, master, 2, properties=TIMER_1)
            await until(lambda: master.services.store.max_offset("T", 0) == 4)
            sent_ms = time.time_ns() // 1_000_000
            await send(client, master, 2, properties=LEVEL_2)
            await send(client, master, 2, properties=TIMER_9)
            await until(lambda: slave.services.schedule.progress().get(1) == (2, 2))
            await until(lambda: timers_known_delivered_ms(disk) >= sent_ms and end_of(slave) == end_of(master))
    async with running_broker(disk=disk) as promoted:
        await until(lambda: promoted.services.store.max_offset("T", 0) >= 8)
        found = delivered(promoted)
        bodies = [body for body, _ in found]
        # Levels and timers that are due together are delivered by different services.
        assert sorted(bodies[:4]) == ["0", "0", "1", "1"] and bodies[4:] == ["0", "1", "0", "1"]
        late_ms = [at_ms - sent_ms - delay for (_, at_ms), delay in zip(found[4:], (5000, 5000, 9000, 9000), strict=True)]
        assert all(-10 <= late < 3000 for late in late_ms), late_ms


async def test_promoted_slave_takes_over_from_a_living_master_which_then_takes_no_messages(caplog: Any) -> None:
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            assert await send(client, master) == [ResponseCode.SUCCESS]
            await until(lambda: end_of(slave) == end_of(master) and "T" in slave.services.topics.table)
        async with running_broker(ns, disk=disk) as promoted:
            assert (await route(client, ns, "T")).broker_datas[0].broker_addrs == {"0": promoted.address}  # type: ignore[union-attr]
            assert await send(client, promoted) == [ResponseCode.SUCCESS]
            await until(lambda: master.services.store.commit_log.refusal is not None)
            answer = await ask(client, master, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"lost")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "another master of broker b, which has taken over" in (answer.remark or "")
            assert "which has taken over: this one takes no messages until it is restarted" in caplog.text
        master.services.registration.register()
        assert await send(client, master) == [ResponseCode.SERVICE_NOT_AVAILABLE], "also while the promoted one is away"


async def test_master_refused_as_second_by_all_name_servers_takes_messages_once_the_first_is_gone(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.registration.registration.REFUSED_RETRY_S", 0.2)
    async with running_namesrv() as ns, running_namesrv() as other_ns, connected() as client:
        async with running_broker(ns, other_ns), running_broker(ns, other_ns) as second:
            answer = await ask(client, second, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"body")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "the name servers have another master of broker b" in (answer.remark or "")
        async with running_broker(ns), running_broker(ns, other_ns) as second:
            assert await send(client, second) == [ResponseCode.SUCCESS], "one name server has it"
        async with running_broker(ns) as first, running_broker(ns) as second:
            await until(lambda: second.services.store.commit_log.refusal is not None)
            await first.services.registration.stop()
            await until(lambda: second.services.store.commit_log.refusal is None)
            assert await send(client, second) == [ResponseCode.SUCCESS]


async def test_promoted_slave_repeats_no_delivery_whose_progress_it_did_not_copy(monkeypatch: Any) -> None:
    disk = MemoryDisk()
    now = "TIMER_DELIVER_MS\x01{}\x02"
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:  # noqa: SIM117  # the order of stops
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            await send(client, master, 2, properties=TIMER_1)
            await send(client, master, 1, properties=LEVEL_1)
            await until(lambda: master.services.store.max_offset("T", 0) == 3)
            await until(lambda: slave.services.schedule.progress().get(1) == (1, 1) and timers_known_delivered_ms(disk) > 0)
            monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.SlaveSynchronize._begin", lambda *_, **__: None)
            due_ms = time.time_ns() // 1_000_000 + 1000
            alike = f"UNIQ_KEY\x01same\x02{now.format(due_ms)}"
            for properties in (TIMER_1, alike, alike, now.format(due_ms + 1)):
                await send(client, master, 2, properties=properties)
            for key in "ab":
                await send(client, master, 1, properties=f"{LEVEL_1}UNIQ_KEY\x01{key}\x02")
            await until(lambda: master.services.store.max_offset("T", 0) == 13)
            await send(client, master, 1, properties=TIMER_9)
            await until(lambda: end_of(slave) == end_of(master))
    async with running_broker(disk=disk) as promoted:
        await until(lambda: promoted.services.store.max_offset("T", 0) >= 14)
        assert [body for body, _ in delivered(promoted)[13:]] == ["0"], "only what is due now"


async def test_slave_has_a_new_topic_as_soon_as_it_has_its_first_message(monkeypatch: Any) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 3600.0)
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        await send(client, master, 1)
        await until(lambda: "T" in slave.services.topics.table)


async def test_promoted_slave_completes_tables_that_lack_a_topic(monkeypatch: Any, caplog: Any) -> None:
    async def copy_nothing(self: Any) -> None:
        return None

    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.SlaveSynchronize._copy_tables", copy_nothing)
    disk = MemoryDisk()
    async with running_namesrv() as ns, connected() as client, running_broker(ns) as master:  # noqa: SIM117  # the order of stops
        async with running_broker(ns, store=SLAVE, broker_id=1, disk=disk) as slave:
            await send(client, master, 3)
            await until(lambda: end_of(slave) == end_of(master) > 0)
            assert "T" not in slave.services.topics.table
    async with running_broker(disk=disk) as promoted:
        assert "T" in promoted.services.topics.table
        assert "topic T is recovered from its queues" in caplog.text
        promoted.services.topics.delete("T")
    caplog.clear()
    async with running_broker(disk=disk):
        assert "is recovered" not in caplog.text, "only the first start as a master completes them"
