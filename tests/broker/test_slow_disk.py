"""A slow disk: delayed messages are on time, and the event loop waits for no sync."""

import asyncio
import threading
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import MappedRegion
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.data_path import send_header
from tests.broker.running import ask, connected, create_topic, running_broker, until


class StuckRegion(MappedRegion):
    def __init__(self, disk: "StuckDisk", region: MappedRegion) -> None:
        self.array, self.view = region.array, region.view
        self._disk = disk

    def sync(self, start: int, end: int) -> None:
        self._disk.wait()


class StuckDisk(MemoryDisk):
    """A disk whose syncs hang until `is_free` is set. `waiters` holds the hanging threads."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = threading.Event()
        self.is_free.set()
        self.waiters: set[int] = set()

    def wait(self) -> None:
        if self.is_free.is_set():
            return
        self.waiters.add(threading.get_ident())
        if threading.get_ident() != threading.main_thread().ident:
            assert self.is_free.wait(60)

    def map(self, *arguments: Any, **settings: Any) -> MappedRegion:
        return StuckRegion(self, super().map(*arguments, **settings))

    def replace_file(self, path: str, data: bytes) -> None:
        self.wait()
        super().replace_file(path, data)

    def sync_dir(self, path: str) -> None:
        self.wait()


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("delay", ["TIMER_DELAY_MS\x011500", "TIMER_DELAY_SEC\x013", "DELAY\x012", "DELAY\x011"])
async def test_delayed_messages_are_on_time_while_a_sync_hangs(flush_disk_type: str, delay: str) -> None:
    disk, clock = StuckDisk(), VirtualClock()
    store = {"flush_disk_type": flush_disk_type}
    async with running_broker(disk=disk, clock=clock, store=store) as broker, connected() as client:
        await create_topic(client, broker, "T")
        disk.is_free.clear()
        header = send_header(f"UNIQ_KEY\x01k\x02{delay}", topic="T", queue_id=1)
        answers = [
            asyncio.ensure_future(ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"%d" % n)) for n in range(20)
        ]
        messages = broker.services.store
        await until(lambda: len(disk.waiters) > 0 and broker.services.stats.put_total.nums == 20)

        def delivered() -> int:
            queue = messages.queue("T", 1)
            return queue.max_offset if queue else 0

        assert not delivered()
        clock.advance(5000)
        await until(lambda: delivered() == 20)
        assert threading.main_thread().ident not in disk.waiters
        if flush_disk_type == "ASYNC_FLUSH":
            await until(lambda: all(answer.done() for answer in answers))
        assert all(answer.done() for answer in answers) is (flush_disk_type == "ASYNC_FLUSH")
        disk.is_free.set()
        assert {answer.code for answer in await asyncio.gather(*answers)} == {0}
