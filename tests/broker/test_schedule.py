"""Delayed messages: on time, in order and once, over restarts, crashes, clock steps and disk errors."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker import wiring
from pocketmq.broker.delay.engine import TIMED_EVERY
from pocketmq.remoting.command import Response
from pocketmq.runtime.clock import SystemClock, VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import SCHEDULE_TOPIC, Message, PutResult, PutStatus
from pocketmq.store.format.properties import decode_properties, encode_properties
from pocketmq.store.format.record import Record, decode_record
from tests.broker import built
from tests.broker.built import InlineExecutor
from tests.broker.data_path import StubChannel
from tests.patience import PATIENCE_S


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


class Scheduled:
    """A store and its schedule service, which can be stopped cleanly or dropped, and opened again on the same disk."""

    def __init__(self, disk: MemoryDisk | None = None, clock: Any = None, levels: str = "1s 5s 10s", **store: Any) -> None:
        self.disk, self.clock = disk or MemoryDisk(), clock or VirtualClock()
        settings = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 100, "max_index_num": 1000, **store}
        self.services = built.build(self.disk, self.clock, settings | {"message_delay_level": levels}, timer_slots=1000)
        self.store, self.turn, self.service = self.services.store, self.services.turn, self.services.schedule
        wiring.recover(self.services)
        wiring.start(self.services)

    def delay(self, body: str, level: int, topic: str = "T", queue_id: int = 2, **more: str) -> None:
        properties = {"TAGS": "a", "DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id), **more}
        message = Message(
            SCHEDULE_TOPIC,
            level - 1,
            body.encode(),
            HOST,
            HOST,
            born_timestamp_ms=7,
            reconsume_times=3,
            properties=properties,
            properties_bytes=encode_properties(properties).encode(),
        )
        assert self.store.commit_log.put(message).status is PutStatus.PUT_OK
        self.turn.run()

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(5):
            await asyncio.sleep(0)

    def records(self, topic: str = "T", queue_id: int = 2) -> list[Record]:
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        units = [queue.unit_at(at) for at in range(queue.max_offset)]
        views = [self.store.message_at(unit[0]) for unit in units if unit is not None]
        return [decode_record(view) for view in views if view is not None]

    def bodies(self, topic: str = "T", queue_id: int = 2) -> list[str]:
        return [record.body.decode() for record in self.records(topic, queue_id)]

    def stop(self) -> None:
        wiring.stop(self.services)
        self.store.flush_service.flush_log()
        wiring.close(self.services)

    def again(self, levels: str = "1s 5s 10s") -> "Scheduled":
        self.stop()
        return Scheduled(self.disk, self.clock, levels)


async def test_message_is_delivered_at_its_time_and_not_earlier() -> None:
    s = Scheduled()
    s.delay("x", 1)
    await s.advance(999)
    assert s.bodies() == []
    await s.advance(1)
    assert s.bodies() == ["x"]
    await s.advance(100_000)
    assert s.bodies() == ["x"]


async def test_delivered_copy_has_the_message_s_fields_and_apache_s_delay_properties() -> None:
    s = Scheduled()
    s.delay("x", 2, KEYS="k")
    await s.advance(5_000)
    (record,) = s.records()
    assert (record.topic, record.queue_id, record.queue_offset) == (b"T", 2, 0)
    assert (record.born_timestamp_ms, record.born_host, record.store_host, record.reconsume_times) == (7, HOST, HOST, 3)
    assert decode_properties(record.properties) == {
        "TAGS": "a", "DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "2", "KEYS": "k",
    }  # fmt: skip
    assert s.store.query_message("T", "k", 10, 0, 1 << 62).views
    queue = s.store.queue("T", 2)
    assert queue is not None
    unit = queue.unit_at(0)
    assert unit is not None and unit[2] == ord("a"), "the tags code is the hash of the tags again"


async def test_held_pulls_of_the_real_queue_are_woken() -> None:
    s = Scheduled()
    s.delay("x", 1)
    found: dict[int, list[str]] = {}
    for queue_id in (1, 2):

        def serve(queue_id: int = queue_id) -> Response:
            found[queue_id] = s.bodies(queue_id=queue_id)
            return Response()

        channel: Any = StubChannel(queue_id)
        s.services.holds.hold("T", queue_id, 0, None, PATIENCE_S, channel, serve)
    await s.advance(999)
    assert found == {}
    await s.advance(1)
    assert found == {2: ["x"]}


async def test_late_levels_are_delivered_in_order_of_due_time() -> None:
    s = Scheduled()
    s.delay("10", 3)
    s.delay("5", 2)
    await s.advance(4_500)
    s.delay("5.5", 1)
    s.delay("9.5", 2)
    await s.advance(60_000)
    assert s.bodies() == ["5", "5.5", "9.5", "10"]


async def test_empty_level_is_woken_by_an_earlier_message() -> None:
    s = Scheduled()
    s.delay("late", 3)
    s.delay("soon", 1)
    await s.advance(1_000)
    assert s.bodies() == ["soon"]


async def test_backlog_is_delivered_in_batches_that_yield_to_the_loop() -> None:
    s = Scheduled()
    s.services.delays._work._budget_s = 0.0
    for number in range(3 * TIMED_EVERY):
        s.delay(str(number), 1)
    s.clock.advance(1_000)
    s.turn.run()
    assert len(s.bodies()) == TIMED_EVERY
    await until(lambda: len(s.bodies()) == 3 * TIMED_EVERY)
    assert s.bodies() == [str(number) for number in range(3 * TIMED_EVERY)]


async def test_offsets_survive_a_restart() -> None:
    s = Scheduled()
    s.delay("a", 1)
    await s.advance(1_000)
    s.delay("b", 1)
    s.service.persist()
    s = s.again()
    await s.advance(1_000)
    assert s.bodies() == ["a", "b"]
    assert json.loads(s.disk.read_file("/store/config/delayOffset.json"))["offsetTable"] == {"1": 1}


async def test_messages_due_during_downtime_are_delivered_at_start() -> None:
    s = Scheduled()
    s.delay("a", 2)
    s.stop()
    s.clock.advance(3_600_000)
    s = Scheduled(s.disk, s.clock)
    await s.advance(0)
    assert s.bodies() == ["a"]


async def test_offsets_are_written_after_the_sync_of_their_copies() -> None:
    s = Scheduled()
    s.delay("a", 1)
    await s.advance(1_000)
    assert s.store.flushed_offset < s.store.max_physical_offset
    s.service.persist_in(InlineExecutor())
    assert not s.disk.exists("/store/config/delayOffset.json")
    s.store.start()
    synced_end = s.store.max_physical_offset
    s.store.request_sync(synced_end)
    await until(lambda: s.store.flushed_offset >= synced_end)
    s.delay("b", 1)
    await s.advance(1_000)  # one more copy, which is not synced
    s.service.persist_in(InlineExecutor())
    assert json.loads(s.disk.read_file("/store/config/delayOffset.json"))["offsetTable"] == {"1": 1}


@pytest.mark.parametrize(("stored", "expected"), [(99, ["b"]), (-3, ["a", "b"])])
async def test_progress_outside_the_queue_is_corrected(stored: int, expected: list[str]) -> None:
    s = Scheduled()
    s.delay("a", 1)
    s.stop()
    s.disk.write_file("/store/config/delayOffset.json", b'{"offsetTable":{1:%d}}' % stored)
    s = Scheduled(s.disk, s.clock)
    s.delay("b", 1)
    await s.advance(1_000)
    assert s.bodies() == expected


async def test_progress_of_a_level_without_queue_starts_at_0() -> None:
    s = Scheduled()
    s.stop()
    s.disk.write_file("/store/config/delayOffset.json", b'{"offsetTable":{2:5}}')
    s = Scheduled(s.disk, s.clock)
    s.delay("a", 2)
    await s.advance(5_000)
    assert s.bodies() == ["a"]


async def test_level_removed_from_the_config_is_still_delivered_in_time() -> None:
    s = Scheduled()
    s.delay("a", 3)
    s = s.again("1s")
    await s.advance(9_999)
    assert s.bodies() == []
    await s.advance(1)
    assert s.bodies() == ["a"]


async def test_clock_set_back_extends_no_wait_beyond_the_level() -> None:
    s = Scheduled()
    s.delay("a", 1)
    s.stop()
    s.clock.set_ms(s.clock.message_time_ms() - 3_600_000)
    s = Scheduled(s.disk, s.clock)
    await s.advance(999)
    assert s.bodies() == []
    await s.advance(1)
    assert s.bodies() == ["a"]


async def test_delivery_is_retried_after_a_store_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Scheduled()
    s.delay("a", 1)
    s.delay("b", 1)
    real_put, failures = s.store.commit_log.put, [OSError("no space"), PutStatus.SERVICE_NOT_AVAILABLE]

    def put(message: Message) -> PutResult:
        if failures:
            failure = failures.pop(0)
            if isinstance(failure, OSError):
                raise failure
            return PutResult(failure, reason="disk full")
        return real_put(message)

    monkeypatch.setattr(s.store.commit_log, "put", put)
    monkeypatch.setattr("pocketmq.broker.delay.engine.RETRY_AFTER_S", 0.001)
    await s.advance(1_000)
    await until(lambda: len(s.bodies()) == 2)
    assert s.bodies() == ["a", "b"]
    assert failures == []


@pytest.mark.parametrize(
    "properties",
    [
        *({"REAL_QID": queue_id} for queue_id in ("x", "-1", str(2**31))),
        *({"REAL_TOPIC": topic} for topic in ("", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 256, "t" * 40_000, "../up", "a\0b")),
    ],
    ids=lambda properties: "{}={:.20}".format(*next(iter(properties.items()))).replace("\0", "zero"),
)
async def test_undeliverable_message_does_not_stop_the_next(properties: dict[str, str]) -> None:
    s = Scheduled()
    real = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2", **properties}
    bad = Message(SCHEDULE_TOPIC, 0, b"bad", HOST, HOST, properties=real)
    bad.properties_bytes = "\x02".join(f"{name}\x01{value}" for name, value in real.items()).encode()[:32_000]
    assert s.store.commit_log.put(bad).status is PutStatus.PUT_OK
    s.delay("good", 1)
    await s.advance(1_000)
    assert s.bodies() == ["good"]
    assert s.service.progress() == {1: (2, 2)}


async def test_delivery_by_the_real_clock_is_within_milliseconds() -> None:
    s = Scheduled(clock=SystemClock(), levels="1s")
    s.delay("a", 1)
    waiting = s.store.queue(SCHEDULE_TOPIC, 0)
    unit = None if waiting is None else waiting.unit_at(0)
    await until(lambda: bool(s.bodies()))
    assert unit is not None
    assert 0 <= s.records()[0].store_timestamp_ms - unit[2] < 500


async def test_clock_step_back_delivers_nothing_early() -> None:
    s = Scheduled()
    s.delay("a", 1)
    s.clock.set_ms(s.clock.message_time_ms() - 5)
    s.delay("b", 2)  # stored with the time of "a": the log's times never decrease
    await s.advance(4_999)
    assert s.bodies() == ["a"]
    await s.advance(1)
    assert s.bodies() == ["a", "b"]


# --- unusual queues, properties and clocks ----------------------------------------------------------------------------


async def test_queue_units_without_record_are_skipped() -> None:
    s = Scheduled()
    s.delay("first", 1)
    s.delay("elsewhere", 2)
    unit = s.store.queues.queues[SCHEDULE_TOPIC, 1].unit_at(0)
    assert unit is not None
    s.store.queues.queues[SCHEDULE_TOPIC, 0].fill_hole(40, unit[0], unit[1])
    s.store.commit_log.tail.queue_offsets[SCHEDULE_TOPIC, 0] = 40
    s.delay("behind", 1)
    await s.advance(1000)
    await until(lambda: s.bodies() == ["first", "behind"])
    assert s.service.progress()[1] == (41, 41)


async def test_due_times_are_read_from_consumequeue_ext() -> None:
    s = Scheduled(enable_consume_queue_ext=True)
    s.delay("x", 2)
    unit = s.store.queues.queues[SCHEDULE_TOPIC, 1].unit_at(0)
    assert unit is not None and unit[2] < 0
    await s.advance(4999)
    assert s.bodies() == []
    await s.advance(1)
    await until(lambda: s.bodies() == ["x"])


@pytest.mark.parametrize(
    "tail", [b"\x02no separator\x02empty\x01", b"\x02INNER_MULTI_QUEUE_OFFSET\x017", b"\x02__CRC32#\x014413297771\x02"]
)
async def test_copy_has_no_stale_or_odd_properties(tail: bytes) -> None:
    s = Scheduled()
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2"}
    odd = encode_properties(properties).encode() + tail
    s.store.commit_log.put(Message(SCHEDULE_TOPIC, 0, b"x", HOST, HOST, properties=properties, properties_bytes=odd))
    s.turn.run()
    await s.advance(1000)
    await until(lambda: s.bodies() == ["x"])
    assert s.records()[0].properties == encode_properties(properties).encode()


@pytest.mark.parametrize("step", [-60_000, 60_000])
async def test_delay_follows_the_monotonic_clock(step: int) -> None:
    s = Scheduled()
    s.delay("x", 3)
    await s.advance(4_000)
    s.clock.step(step)
    await s.advance(5_999)
    assert s.bodies() == []
    await s.advance(1)
    assert s.bodies() == ["x"]


async def test_message_that_cannot_be_put_is_retried_without_stopping_its_level() -> None:
    s = Scheduled()
    put, fails = s.store.commit_log.put, True

    def put_unless_bad(message: Message) -> PutResult:
        if message.topic == "bad" and fails:
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason="no room for it")
        return put(message)

    s.store.commit_log.put = put_unless_bad  # type: ignore[method-assign]
    s.delay("a", 1)
    s.delay("b", 1, topic="bad")
    s.delay("c", 1)
    await s.advance(1_000)
    assert s.bodies() == ["a", "c"]
    assert s.service.encode() == {"offsetTable": {1: 1}}
    assert not s.service.may_remove(s.store.max_physical_offset)
    assert not s.services.delays.is_idle
    fails = False
    await until(lambda: s.bodies("bad") == ["b"])
    assert s.service.encode() == {"offsetTable": {1: 3}}
    assert s.service.may_remove(s.store.max_physical_offset)
    assert s.services.delays.is_idle


@pytest.mark.parametrize("ahead", [60_000, 86_400_000])
async def test_levels_are_on_time_after_a_run_with_the_calendar_ahead(ahead: int) -> None:
    now_ms = VirtualClock().message_time_ms()
    s = Scheduled(clock=VirtualClock(now_ms + ahead))
    s.delay("before", 1)
    await s.advance(1000)
    s.delay("open", 3)
    s.stop()
    s = Scheduled(s.disk, VirtualClock(now_ms + 2000))
    for body, level, wait_ms in (("one", 1, 1000), ("five", 2, 5000), ("again", 1, 1000)):
        s.delay(body, level)
        before = s.bodies()
        await s.advance(wait_ms - 1)
        assert body not in s.bodies() or body in before
        await s.advance(22)
        assert body in s.bodies()
    await s.advance(4000)
    assert "open" in s.bodies()
