"""A store and its timer service on a disk and a clock of the test's own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pocketmq.broker.delay.clock_steps import ClockSteps
from pocketmq.broker.put.delivery_time import DeliveryTimes
from pocketmq.broker.timer.timer_service import TimerMessageService, roll_window_slots
from pocketmq.runtime.clock import Clock, VirtualClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Phase, Turn
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.format.properties import decode_properties, encode_properties
from pocketmq.store.format.record import Record, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_store import TimerStore

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


class InlineExecutor(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Timed:
    """`again` stops it cleanly and opens the same disk; a test that kills it just makes another on the disk that is left."""

    def __init__(
        self,
        disk: Disk | None = None,
        clock: Clock | None = None,
        loop: Any = None,
        watch: Callable[["Timed"], None] = lambda timed: None,
        **timers: Any,
    ) -> None:
        """`watch` is called before anything is recovered."""
        loop = loop or asyncio.get_running_loop()
        self.disk, self.clock = disk or MemoryDisk(), clock or VirtualClock()
        self.settings = timers
        config = MessageStoreConfig(
            store_path_root_dir="/store", mapped_file_size_commit_log=timers.get("commit_log_file_size", 1 << 20),
            max_hash_slot_num=16, max_index_num=50, message_index_enable=False,
            mapped_file_size_consume_queue=20_000, file_reserved_time=0,
        )  # fmt: skip
        self.store = MessageStore(config, self.disk, self.clock)
        self.store.load()
        self.turn = Turn(loop)
        self.timers = Timers(self.clock, loop)
        self.timer_store = TimerStore(
            self.disk, wheel_path="/store/timerwheel", log_directory="/store/timerlog",
            checkpoint_path="/store/config/timercheck", log_file_size=timers.get("log_file_size", 1 << 16),
            slots_total=timers.get("slots_total", 7 * 86_400),
            roll_window_slots=roll_window_slots(timers.get("roll_window_slots", 172_800), 1000),
        )  # fmt: skip
        self.steps = ClockSteps(self.clock)
        self.service = TimerMessageService(self.store, self.timer_store, self.steps, self.timers, self.turn)
        self.times = DeliveryTimes(self.clock, self.service, cluster=("CLUSTER", "c"))
        self.turn.add(Phase.DISPATCH, lambda: self.service.arrived(self.store.dispatch()))
        watch(self)
        self.store.ask_before_removing(self.service.may_remove)
        self.service.recover()
        self.service.start()

    def message(self, body: str, topic: str = "T", **properties: Any) -> Message:
        found = {"UNIQ_KEY": f"id-{body}"} | {name: str(value) for name, value in properties.items()}
        return Message(
            topic, 2, body.encode(), HOST, HOST, born_timestamp_ms=7, reconsume_times=3, properties=found,
            properties_bytes=encode_properties(found).encode(),
        )  # fmt: skip

    def put(self, body: str, *, turn: bool = True, **properties: Any) -> PutResult:
        message = self.message(body, **properties)
        self.times.put_aside(message)
        result = self.store.put_message(message)
        assert result.status is PutStatus.PUT_OK, result.reason
        if turn:
            self.turn.run()
        return result

    def cancel(self, body: str, out_ms: int) -> None:
        message = self.times.cancelling("T", f"id-{body}", f"id-{body}", out_ms, "pg", HOST, HOST)
        assert self.store.put_message(message).status is PutStatus.PUT_OK
        self.turn.run()

    async def settle(self) -> None:
        """Until nothing is done any more."""
        state = None
        while (
            state != (state := (self.store.max_physical_offset, self.timer_store.state, self.service.is_idle))
            or not state[2]
        ):
            await asyncio.sleep(0)
            self.turn.run()

    async def advance(self, ms: int) -> None:
        assert isinstance(self.clock, VirtualClock)
        await self.settle()  # what is put off is entered at the time at which it came
        self.clock.advance(ms)
        await self.settle()

    async def remove_files(self) -> None:
        """Some rounds of retention, all that may go goes."""
        for _ in range(5):
            self.store.flush_service.flush_log()
            self.store.clean(manual=True)
            await self.settle()

    def records(self, topic: str = "T", queue_id: int = 2) -> list[Record]:
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        units = [queue.unit_at(at) for at in range(queue.min_offset, queue.max_offset)]
        # No pull gives what stands in a hole's place.
        views = [self.store.message_at(unit[0]) for unit in units if unit is not None and unit[2] != HOLE_TAGS_CODE]
        return [decode_record(view) for view in views if view is not None]

    def bodies(self, topic: str = "T", queue_id: int = 2) -> list[str]:
        return [record.body.decode() for record in self.records(topic, queue_id)]

    def arrivals(self) -> list[tuple[str, int]]:
        """(body, when it was delivered)."""
        return [
            (record.body.decode(), int(decode_properties(record.properties)["TIMER_DEQUEUE_MS"]))
            for record in self.records()
        ]

    def persist(self) -> None:
        self.store.flush_service.flush_log()
        self.service.persist_in(InlineExecutor())

    def stop(self) -> None:
        self.service.stop()
        self.store.flush_service.flush_log()
        self.service.close()
        self.store.shutdown()

    def again(self) -> "Timed":
        self.stop()
        return Timed(self.disk, self.clock, **self.settings)
