"""Test support for timers: a store and its timer service on the test's disk and clock."""

import asyncio
from collections.abc import Callable
from typing import Any

from pocketmq.broker import wiring
from pocketmq.runtime.clock import Clock, VirtualClock
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.format.properties import decode_properties, encode_properties
from pocketmq.store.format.record import Record, decode_record
from tests.broker import built
from tests.broker.built import InlineExecutor

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


class Timed:
    """A store with a timer service. `again` stops it cleanly and opens the same disk; to simulate a kill, a test creates
    another one on that disk."""

    def __init__(
        self,
        disk: Disk | None = None,
        clock: Clock | None = None,
        loop: Any = None,
        watch: Callable[["Timed"], None] = lambda timed: None,
        **timers: Any,
    ) -> None:
        """`watch` is called before anything is recovered."""
        self.disk, self.clock = disk or MemoryDisk(), clock or VirtualClock()
        self.settings = timers
        store = {
            "mapped_file_size_commit_log": timers.get("commit_log_file_size", 1 << 20), "max_hash_slot_num": 16,
            "max_index_num": 50, "message_index_enable": False, "mapped_file_size_consume_queue": 20_000,
            "file_reserved_time": 0, "mapped_file_size_timer_log": timers.get("log_file_size", 1 << 16),
            "timer_roll_window_slot": timers.get("roll_window_slots", 172_800),
            "timer_stop_dequeue": timers.get("stop_dequeue", False),
        }  # fmt: skip
        slots = timers.get("slots_total", 7 * 86_400)
        self.services = built.build(self.disk, self.clock, store, {"broker_cluster_name": "c"}, loop=loop, timer_slots=slots)
        self.store, self.turn = self.services.store, self.services.turn
        self.service, self.delays = self.services.timer_messages, self.services.delays
        self.times = self.services.delivery_times
        self.timer_store = self.service._timer_store
        watch(self)
        wiring.recover(self.services)
        wiring.start(self.services)

    def message(self, body: str, topic: str = "T", **properties: Any) -> Message:
        found = {"UNIQ_KEY": f"id-{body}"} | {name: str(value) for name, value in properties.items()}
        return Message(
            topic, 2, body.encode(), HOST, HOST, born_timestamp_ms=7, reconsume_times=3, properties=found,
            properties_bytes=encode_properties(found).encode(),
        )  # fmt: skip

    def put(self, body: str, *, turn: bool = True, **properties: Any) -> PutResult:
        message = self.message(body, **properties)
        self.times.redirect_if_delayed(message)
        result = self.store.commit_log.put(message)
        assert result.status is PutStatus.PUT_OK, result.reason
        if turn:
            self.turn.run()
        return result

    def cancel(self, body: str, out_ms: int) -> None:
        message = self.times.cancelling("T", f"id-{body}", f"id-{body}", out_ms, "pg", HOST, HOST)
        assert self.store.commit_log.put(message).status is PutStatus.PUT_OK
        self.turn.run()

    async def settle(self) -> None:
        """Wait until nothing happens any more."""
        state = None
        while (
            state != (state := (self.store.max_physical_offset, self.timer_store.state, self.delays.is_idle)) or not state[2]
        ):
            await asyncio.sleep(0)
            self.turn.run()

    async def advance(self, ms: int) -> None:
        assert isinstance(self.clock, VirtualClock)
        await self.settle()  # enters postponed messages into the wheel before time passes
        self.clock.advance(ms)
        await self.settle()

    async def remove_files(self) -> None:
        """Run retention until everything that may be deleted is deleted."""
        for _ in range(5):
            self.store.flush_service.flush_log()
            self.store.clean(manual=True)
            await self.settle()

    def records(self, topic: str = "T", queue_id: int = 2) -> list[Record]:
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        units = [queue.unit_at(at) for at in range(queue.min_offset, queue.max_offset)]
        # Pulls do not return the fillers of holes.
        views = [self.store.message_at(unit[0]) for unit in units if unit is not None and unit[2] != HOLE_TAGS_CODE]
        return [decode_record(view) for view in views if view is not None]

    def bodies(self, topic: str = "T", queue_id: int = 2) -> list[str]:
        return [record.body.decode() for record in self.records(topic, queue_id)]

    def arrivals(self) -> list[tuple[str, int]]:
        """Return (body, delivery time) of each delivered message."""
        return [
            (record.body.decode(), int(decode_properties(record.properties)["TIMER_DEQUEUE_MS"]))
            for record in self.records()
        ]

    def persist(self) -> None:
        self.store.flush_service.flush_log()
        self.delays.mark_in(InlineExecutor())

    def stop(self) -> None:
        wiring.stop(self.services)
        self.store.flush_service.flush_log()
        wiring.close(self.services)

    def again(self) -> "Timed":
        self.stop()
        return Timed(self.disk, self.clock, **self.settings)
