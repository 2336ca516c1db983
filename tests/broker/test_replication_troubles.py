"""Slaves that are slow, misconfigured, or have a full disk: the master is not affected, and the log tells the cause."""

import asyncio
import contextlib
import errno
import struct
from typing import Any

import pytest

from pocketmq.remoting.codes import ResponseCode
from pocketmq.runtime.turn import Phase
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.running import connected, running_broker, running_namesrv, until
from tests.broker.test_replication import SLAVE, end_of, log_of, send


class FullDisk(MemoryDisk):
    """A disk that has no room for a further file of the log while `is_full`."""

    is_full = False

    def map(self, path: str, size: int, **how: Any) -> Any:
        if self.is_full and how.get("create") and "/commitlog/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().map(path, size, **how)


async def test_slave_with_a_full_disk_logs_it_and_continues_with_free_space(caplog: Any) -> None:
    disk, small = FullDisk(), {"mapped_file_size_commit_log": 1 << 16}
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store=small) as master,
        running_broker(ns, store={**small, **SLAVE}, broker_id=1, disk=disk) as slave,
    ):
        await send(client, master, 3)
        await until(lambda: end_of(slave) == end_of(master) > 0)
        disk.is_full = True
        assert set(await send(client, master, 200, size=1000)) == {ResponseCode.SUCCESS}, "the master is unharmed"
        await until(lambda: "No space left on device" in caplog.text)
        assert end_of(slave) < end_of(master)
        disk.is_full = False
        await until(lambda: end_of(slave) == end_of(master))
        assert log_of(slave) == log_of(master)


@pytest.mark.parametrize("size", [100, 300_000], ids=["small", "in large pieces"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_slave_never_acknowledges_a_damaged_record(flush: str, size: int, caplog: Any) -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns, store={"broker_role": "SYNC_MASTER", "slave_timeout": 1000}) as master,
        running_broker(ns, store={**SLAVE, "flush_disk_type": flush}, broker_id=1) as slave,
    ):
        assert master.services.ha is not None and slave.services.ha_client is not None
        await until(lambda: bool(master.services.ha.replicas()))  # type: ignore[union-attr]
        assert await send(client, master, 3) == [ResponseCode.SUCCESS] * 3
        intact = end_of(master)

        def damage() -> None:
            """Damage the body of the master's next record, before it is sent to the slave."""
            if end_of(master) > intact:
                master.services.store.commit_log.mapped_files.files[-1].array[intact + 100] = ord("?")

        master.services.turn.add(Phase.DISPATCH, damage)
        (code,) = await send(client, master, size=size)
        assert code in (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
        await until(lambda: f"the record at {intact} of the master's log is damaged" in caplog.text)
        for _ in range(4):  # also when it connects again
            seen = [one.acknowledged_offset for one in master.services.ha.replicas()]
            assert all(offset <= intact for offset in seen), seen
            await asyncio.sleep(0.5)


async def test_slave_that_does_not_read_takes_no_memory_and_delays_no_send(monkeypatch: Any) -> None:
    async with connected() as client, running_broker(store={"mapped_file_size_commit_log": 1 << 20}) as master:
        assert master.services.ha is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", master.services.ha.port, limit=1)
        writer.write(struct.pack(">q", 0))
        assert set(await send(client, master, 300, size=60_000)) == {ResponseCode.SUCCESS}
        (replica,) = master.services.ha.replicas()
        # The sockets of both sides and one frame hold this much; the rest stays in the log.
        assert replica.lag_size > 15_000_000 and replica.next_offset < 12_000_000
        writer.close()
        await until(lambda: not master.services.ha.replicas())  # type: ignore[union-attr]


async def test_second_master_of_one_name_is_refused_and_the_first_keeps_its_slave(caplog: Any) -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
        running_broker(ns, store=SLAVE, broker_id=1) as slave,
    ):
        with contextlib.suppress(Exception):
            async with running_broker(ns):
                pass
        assert "the second is refused (refuseSecondBroker=true)" in caplog.text
        await send(client, master, 3)
        await until(lambda: end_of(slave) == end_of(master) > 0)


async def test_slave_with_another_name_finds_no_master_and_logs_it(caplog: Any) -> None:
    async with (
        running_namesrv() as ns,
        connected() as client,
        running_broker(ns) as master,
        running_broker(ns, store=SLAVE, broker_id=1, broker_name="other") as slave,
    ):
        await send(client, master, 3)
        await until(
            lambda: "has no master of broker other (cluster DefaultCluster): this slave copies nothing" in caplog.text
        )
        assert end_of(slave) == 0


async def test_slave_of_another_cluster_is_reported_by_the_name_server(caplog: Any) -> None:
    async with (
        running_namesrv() as ns,
        running_broker(ns),
        running_broker(ns, store=SLAVE, broker_id=1, broker_cluster_name="Elsewhere"),
    ):
        await until(lambda: "registered, but other brokers of its name belong to cluster DefaultCluster" in caplog.text)
