"""Pop requests to a broker on a virtual clock: first delivery, redelivery, and acks."""

import base64
import random
import time

import msgspec
import pytest

from pocketmq.broker.pop.pop_record import FIRST_POP_TIME, REVIVE_GROUP
from pocketmq.remoting.bodies import decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.delay_bodies import DelayedMessages
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.pop_handle import Handle
from pocketmq.remoting.headers.delay import QueryDelayedRequestHeader
from pocketmq.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import Message, PutResult
from pocketmq.store.format.properties import decode_properties
from tests.broker.popping import GROUP, INVISIBLE_MS, REVIVE_TOPIC, TOPIC, Popper, popping, records
from tests.broker.running import SMALL, ask, until
from tests.store.power_cut_disk import PowerCutDisk


async def test_only_unacknowledged_messages_are_redelivered_after_the_invisible_time() -> None:
    async with popping() as path:
        await path.send("a", "b", "c", "d")
        assert sorted(await path.bodies()) == ["a", "b", "c", "d"]
        assert await path.bodies() == [], "all are invisible"
        for body in "ac":
            assert (await path.ack(body)).code == 0
        await path.advance(INVISIBLE_MS - 2)
        assert await path.bodies() == [], "not before"
        await path.advance(2)
        assert sorted(await path.bodies()) == ["b", "d"]
        for body in "bd":
            assert (await path.ack(body)).code == 0
        await path.advance(2 * INVISIBLE_MS)
        assert await path.bodies() == []


async def test_redelivered_message_differs_in_its_reconsume_times_only() -> None:
    async with popping() as path:
        await path.send("a", tags="tag")
        (first,) = records((await path.pop()).body)
        await path.advance(INVISIBLE_MS)
        (again,) = records((await path.pop()).body)
        assert (again.topic, again.body, again.born_timestamp_ms) == (b"T", b"a", first.born_timestamp_ms)
        assert (first.reconsume_times, again.reconsume_times) == (0, 1)
        properties = decode_properties(again.properties)
        handle = Handle.parse(properties.pop("POP_CK"))
        assert (handle.flag, handle.queue_id, handle.queue_offset) == ("1", 0, 0)
        popped_ms = int(properties.pop(FIRST_POP_TIME))
        assert path.clock.message_time_ms() - popped_ms >= INVISIBLE_MS
        assert properties == decode_properties(first.properties)


async def test_longer_invisible_time_counts_from_the_change() -> None:
    async with popping() as path:
        await path.send("a", "b")
        await path.bodies()
        await path.advance(30_000)
        await path.change("a", 100_000)
        await path.advance(30_000)
        assert await path.bodies() == ["b"]
        await path.advance(69_000)
        assert [body for body in await path.bodies() if body != "b"] == []
        await path.advance(1_000)
        assert "a" in await path.bodies()


async def test_shorter_invisible_time_redelivers_the_message_earlier() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        await path.change("a", 1)
        await path.advance(1)
        assert await path.bodies() == ["a"]


@pytest.mark.parametrize("times_ms", [(INVISIBLE_MS,), (1,), (1000, 2 * INVISIBLE_MS, INVISIBLE_MS)])
async def test_change_in_the_same_millisecond_as_the_pop_loses_nothing(times_ms: tuple[int, ...]) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("a")
        await path.bodies()
        for invisible_ms in times_ms:
            await path.change("a", invisible_ms)
    clock.advance(times_ms[-1] - 1)
    async with popping(disk, clock) as path:
        assert await path.bodies() == [], "not before"
        await path.advance(2 * INVISIBLE_MS)
        assert await path.bodies() == ["a"]
        await path.ack("a")
        await path.advance(2 * INVISIBLE_MS)
        assert await path.bodies() == [], "nor twice"


STEPS = [3_600_000, -3_600_000, 5000, -5000]


async def let_pass(path: Popper, ms: int) -> None:
    """Advance like `Popper.advance`, but by exactly `ms`."""
    if ms > 1500:
        await path.advance(ms)
    else:
        path.clock.advance(ms)
        await until(path.is_idle)


@pytest.mark.parametrize("step", STEPS)
async def test_calendar_step_changes_no_invisible_time(step: int) -> None:
    async with popping() as path:
        await path.send("a", "b", "c")
        assert sorted(await path.bodies()) == ["a", "b", "c"]
        assert (await path.ack("a")).code == 0
        await let_pass(path, 10_000)
        path.clock.step(step)
        await until(path.is_idle)
        assert (await path.ack("b")).code == 0
        await path.send("d", "e")
        assert sorted(await path.bodies()) == ["d", "e"]
        assert (await path.ack("d")).code == 0
        await let_pass(path, INVISIBLE_MS - 10_000 - 2)
        assert await path.bodies() == [], "not before"
        await let_pass(path, 2)
        assert await path.bodies() == ["c"]
        assert (await path.ack("c")).code == 0
        await let_pass(path, 10_000 - 4)
        assert await path.bodies() == [], "not before"
        await let_pass(path, 4)
        assert await path.bodies() == ["e"]
        assert (await path.ack("e")).code == 0
        await let_pass(path, 7_200_000)
        assert await path.bodies() == []


@pytest.mark.parametrize("step", STEPS)
async def test_calendar_step_changes_no_changed_invisible_time(step: int) -> None:
    async with popping() as path:
        await path.send("a")
        assert await path.bodies() == ["a"]
        path.clock.step(step)
        await until(path.is_idle)
        await path.change("a", 100_000)
        await let_pass(path, 100_000 - 2)
        assert await path.bodies() == []
        await let_pass(path, 2)
        assert await path.bodies() == ["a"]


@pytest.mark.parametrize("step", STEPS)
async def test_calendar_step_changes_no_invisible_time_of_an_ordered_pop(step: int) -> None:
    async with popping() as path:
        await path.send("a", "b")
        assert await path.bodies(1, queue_id=0, order=True) == ["a"]
        await let_pass(path, 10_000)
        path.clock.step(step)
        await until(path.is_idle)
        await let_pass(path, INVISIBLE_MS - 10_000 - 2)
        assert await path.bodies(1, queue_id=0, order=True) == []
        await let_pass(path, 2)
        assert await path.bodies(1, queue_id=0, order=True) == ["a"]
        path.clock.step(step)
        await until(path.is_idle)
        await path.change("a", 100_000)
        await let_pass(path, 100_000 - 2)
        assert await path.bodies(1, queue_id=0, order=True) == []
        await let_pass(path, 2)
        assert await path.bodies(1, queue_id=0, order=True) == ["a"]


@pytest.mark.parametrize("step", [3_600_000, -3_600_000])
async def test_calendar_step_before_a_restart_delays_no_popped_message(step: int) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("a", "b")
        assert sorted(await path.bodies()) == ["a", "b"]
        assert (await path.ack("a")).code == 0
        clock.step(step)
        await until(path.is_idle)
    async with popping(disk, VirtualClock(clock.message_time_ms() + 1000)) as path:
        # Invisible times from before the start follow the calendar, as timers' delays do; none becomes longer.
        await let_pass(path, INVISIBLE_MS)
        assert await path.bodies() == ["b"]
        assert (await path.ack("b")).code == 0
        await let_pass(path, 7_200_000)
        assert await path.bodies() == []


@pytest.mark.parametrize("is_cut", [False, True])
async def test_pops_and_acks_survive_a_restart(is_cut: bool) -> None:
    disk, clock, store = PowerCutDisk(), VirtualClock(), {"flush_disk_type": "SYNC_FLUSH"}
    bodies = [f"m{number}" for number in range(50)]
    async with popping(disk, clock, store=store) as path:
        await path.send(*bodies)
        handles = path.handles
        while await path.bodies():
            pass
        for body in bodies[::2]:
            await path.ack(body)
        if is_cut:
            left = disk.power_cut(random.Random(7))
    clock.advance(INVISIBLE_MS // 2)
    async with popping(left if is_cut else disk, clock, store=store) as path:
        path.handles = handles
        assert (await path.ack("m1")).code == 0
        await path.advance(INVISIBLE_MS)
        again: list[str] = []
        while found := await path.bodies():
            again += found
        expected = set(bodies[3::2])
        # A power cut may set consumer offsets back: popped messages, also acknowledged ones, are then popped again.
        assert expected <= set(again) and (is_cut or sorted(again) == sorted(expected))


async def written_offsets(path: Popper) -> None:
    """Write the consumer offsets now; they must not be on disk before the records that they depend on."""
    store = path.broker.services.store
    store.request_sync(store.max_physical_offset)
    await until(lambda: store.flushed_offset == store.max_physical_offset)
    path.broker.services.offsets.persist()


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
async def test_acknowledged_messages_do_not_come_again_after_a_kill(is_late: bool, is_written: bool) -> None:
    """Consumer offsets are written every few seconds; the check points in the log tell what was popped since then."""
    disk, clock = PowerCutDisk(), VirtualClock()
    bodies = [f"m{number}" for number in range(40)]
    async with popping(disk, clock) as path:
        await path.send(*bodies[:10])
        await path.bodies()
        if is_written:
            await written_offsets(path)
        await path.send(*bodies[10:20])
        await path.send(*bodies[20:], queue_id=1)
        while await path.bodies():
            pass
        for body in bodies:
            if body not in ("m5", "m15", "m35"):
                await path.ack(body)
        if is_late:
            await path.advance(INVISIBLE_MS)
        left = disk.killed()
    async with popping(left, clock) as path:
        await path.send("new")
        again = await path.bodies(1, 0) + await path.bodies(1, 1)
        assert "new" in again and set(again) <= {"new", "m5", "m15", "m35"}
        await path.advance(INVISIBLE_MS)
        while found := await path.bodies():
            again += found
        assert {"m5", "m15", "m35"} <= set(again) <= {"m5", "m15", "m35", "new"}


async def test_offset_that_was_reset_and_written_is_not_moved_by_earlier_pops_after_a_kill() -> None:
    disk, clock = PowerCutDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("a", "b")
        assert await path.bodies() == ["a", "b"]
        path.broker.services.offsets.reset(GROUP, TOPIC, 0, 0)
        await written_offsets(path)
        left = disk.killed()
    async with popping(left, clock) as path:
        assert await path.bodies() == ["a", "b"]


async def test_batch_ack_acknowledges_many_messages() -> None:
    async with popping() as path:
        await path.send(*"abcdef")
        await path.bodies(queue_id=0)
        handle = Handle.parse(path.handles["a"])
        row = {
            "c": GROUP, "t": TOPIC, "r": "0", "so": handle.start_offset, "q": 0, "rq": handle.revive_queue,
            "pt": handle.pop_time_ms, "it": handle.invisible_time_ms, "b": base64.b64encode(bytes((0b101101,))).decode(),
        }  # fmt: skip
        body = msgspec.json.encode({"brokerName": "b", "acks": [row]})
        assert (await ask(path.client, path.broker, RequestCode.BATCH_ACK_MESSAGE, None, body)).code == 0
        await path.advance(INVISIBLE_MS)
        assert sorted(await path.bodies()) == ["b", "e"]
        answer = await ask(path.client, path.broker, RequestCode.BATCH_ACK_MESSAGE, None, b'{"acks":[]}')
        assert answer.code == ResponseCode.NO_MESSAGE


def _made_up_acks(size: int, start: int = 0) -> bytes:
    row = {"c": GROUP, "t": TOPIC, "r": "0", "so": start, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": "/" * size}
    return msgspec.json.encode({"brokerName": "b", "acks": [row]})


async def test_batch_ack_beyond_the_limit_acknowledges_nothing() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        path.broker.services.config.max_acks_per_batch = 2
        end = path.broker.services.store.commit_log.max_offset
        acks = msgspec.json.decode(_made_up_acks(4))["acks"] * 3
        body = msgspec.json.encode({"brokerName": "b", "acks": acks})
        answer = await ask(path.client, path.broker, RequestCode.BATCH_ACK_MESSAGE, None, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == "the batch has 3 acks, more than maxAcksPerBatch=2"
        assert path.broker.services.store.commit_log.max_offset == end


async def test_batch_ack_time_is_linear_in_the_bit_map() -> None:
    async with popping() as path:
        await path.send("a")

        async def spent(size: int) -> float:
            body = _made_up_acks(size)
            times_s = []
            for _ in range(3):
                begin_s = time.process_time()
                assert (await ask(path.client, path.broker, RequestCode.BATCH_ACK_MESSAGE, None, body)).code == 0
                times_s.append(time.process_time() - begin_s)
            return min(times_s)

        await spent(1_000)
        assert await spent(200_000) < 8 * await spent(50_000) + 0.02


async def test_batch_ack_of_more_messages_than_a_pop_returns_stores_nothing() -> None:
    async with popping() as path:
        await path.send(*(str(number) for number in range(40)))
        end = path.broker.services.store.commit_log.max_offset
        assert (await ask(path.client, path.broker, RequestCode.BATCH_ACK_MESSAGE, None, _made_up_acks(8))).code == 0
        assert path.broker.services.store.commit_log.max_offset == end


async def test_ack_with_unknown_revive_queue_creates_no_queue() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        path.handles["a"] = str(Handle.parse(path.handles["a"])._replace(revive_queue=8))
        answer = await path.ack("a")
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "extraInfo: revive queue 8 does not exist (reviveQueueNum)"
        )  # fmt: skip
        assert path.broker.services.store.queue(REVIVE_TOPIC, 8) is None


async def test_store_refusal_during_a_revive_causes_no_duplicate_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with popping() as path:
        await path.send(*"abcd")
        await path.bodies()
        putter, put_at_once, bodies = path.broker.services.putter, path.broker.services.putter.put_at_once, []

        def put(message: Message) -> PutResult:
            if len(bodies) == 2:
                raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
            bodies.append(message.body)
            return put_at_once(message)

        monkeypatch.setattr(putter, "put_at_once", put)
        path.clock.advance(INVISIBLE_MS)
        await until(lambda: len(bodies) == 2)
        bodies.append(b"there is room again")
        await path.advance(INVISIBLE_MS)
        assert await path.bodies() == ["a", "b", "c", "d"]


async def test_retry_topic_can_be_popped_directly_and_waited_for() -> None:
    async with popping() as path:
        retry_topic = f"%RETRY%{GROUP}"
        header = SendMessageRequestHeader("p", retry_topic, "TBW102", 1, 0, 0, 1_700_000_000_000, 0, "", 0)
        assert (await ask(path.client, path.broker, RequestCode.SEND_MESSAGE, header, b"a")).code == 0
        header = PopMessageRequestHeader(GROUP, retry_topic, -1, 32, INVISIBLE_MS, 20_000)
        answer = await ask(path.client, path.broker, RequestCode.POP_MESSAGE, header)
        assert [record.body for record in records(answer.body)] == [b"a"]
        assert answer.ext["startOffsetInfo"] == "1 0 0"
        channel = await path.client.channel(f"127.0.0.1:{path.broker.port}")
        polling = path.broker.services.pops.polling
        waiting = channel.invoke(RequestCode.POP_MESSAGE, header, b"", 15.0)
        await until(lambda: polling.count == 1)
        assert polling.stop() == 1
        assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


async def test_unreadable_record_is_answered_and_pops_nothing() -> None:
    async with popping() as path:
        await path.send("lost", "b")
        (file,) = path.broker.services.store.commit_log.mapped_files.files
        size = bytes(file.view[:4])
        file.view[:4] = bytes(4)
        answer = await path.pop()
        assert answer.code == ResponseCode.SYSTEM_ERROR and "a record of 0 bytes" in answer.remark
        file.view[:4] = size
        assert await path.bodies() == ["lost", "b"]


@pytest.mark.parametrize("with_v2", [False, True])
async def test_each_group_is_redelivered_its_unacknowledged_messages(with_v2: bool) -> None:
    async with popping(enable_retry_topic_v2=with_v2) as path:
        await path.send("a")
        others = [Popper(path.client, path.broker, path.clock, f"g{number}") for number in range(5)]
        for _ in range(3):
            assert [await other.bodies() for other in others] == [["a"]] * 5
            await path.advance(INVISIBLE_MS)


async def test_retry_topics_of_both_name_forms_are_popped() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("a", "b")
        await path.bodies()
        await path.advance(INVISIBLE_MS)
    async with popping(disk, clock, enable_retry_topic_v2=True) as path:
        await path.send("c", "d")
        assert sorted(await path.bodies()) == ["a", "b", "c", "d"]
        for _ in range(2):
            await path.advance(INVISIBLE_MS)
            assert sorted(await path.bodies() + await path.bodies()) == ["a", "b", "c", "d"]


async def test_pop_returns_subscribed_messages_only() -> None:
    async with popping() as path:
        await path.send("no", "no", tags="A")
        await path.send("yes", tags="B")
        assert await path.bodies(exp="B || C", exp_type="TAG") == ["yes"]
        assert (await path.pop(exp="||", exp_type="TAG")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_new_group_can_start_at_the_last_message() -> None:
    async with popping(init_pop_offset_by_check_msg_in_mem=False) as path:
        await path.send("a", "b", "c")
        assert await path.bodies(queue_id=0, init_mode=1) == ["c"]
    async with popping() as path:
        await path.send("a", "b", "c")
        assert await path.bodies(queue_id=0, init_mode=1) == ["a", "b", "c"], "the first is still in memory"


async def test_ordered_pop_blocks_the_queue_until_acks_or_timeout() -> None:
    async with popping() as path:
        await path.send("a", "b", "c")
        assert await path.bodies(2, queue_id=0, order=True, attempt_id="1") == ["a", "b"]
        assert await path.bodies(2, queue_id=0, order=True, attempt_id="2") == []
        assert await path.bodies(2, queue_id=0, order=True, attempt_id="1") == ["a", "b"], "the same attempt again"
        await path.ack("a")
        assert await path.bodies(2, queue_id=0, order=True) == []
        await path.ack("b")
        assert await path.bodies(2, queue_id=0, order=True) == ["c"]
        await path.advance(INVISIBLE_MS)
        answer = await path.pop(2, queue_id=0, order=True)
        assert [record.body for record in records(answer.body)] == [b"c"], "redelivered from its queue, not a retry topic"
        assert answer.ext["orderCountInfo"] == "0 qo0%2 1;0 0 1"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"count": 33}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 8}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_invalid_pops_are_refused(how: dict[str, int], code: int) -> None:
    async with popping() as path:
        await path.send("a")
        assert (await path.pop(**how)).code == code
        assert (await path.pop()).code == 0


async def test_invalid_acks_are_refused() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        good = path.handles["a"]
        rows = [
            (AckMessageRequestHeader(GROUP, "Nowhere", 0, good, 0), ResponseCode.TOPIC_NOT_EXIST),
            (AckMessageRequestHeader(GROUP, TOPIC, 99, good, 0), ResponseCode.MESSAGE_ILLEGAL),
            (AckMessageRequestHeader(GROUP, TOPIC, 0, good, 7), ResponseCode.NO_MESSAGE),
            (AckMessageRequestHeader(GROUP, TOPIC, 0, "1 2 3", 0), ResponseCode.SYSTEM_ERROR),
        ]
        for header, code in rows:
            answer = await ask(path.client, path.broker, RequestCode.ACK_MESSAGE, header)
            assert answer.code == code, answer.remark
        await path.advance(INVISIBLE_MS)
        assert await path.bodies() == ["a"]


async def test_revive_progress_is_a_consumer_offset() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("a")
        await path.bodies()
        await path.ack("a")
        await path.advance(INVISIBLE_MS)
        services = path.broker.services
        done = [services.offsets.query(REVIVE_GROUP, REVIVE_TOPIC, queue_id) for queue_id in range(8)]
        ends = [services.store.max_offset(REVIVE_TOPIC, queue_id) for queue_id in range(8)]
        assert sorted(done)[-1] == 1 and [max(at + 1, 0) for at in done] == ends


async def test_check_points_are_not_listed_as_delayed_messages() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        for topic, count in ((None, 0), (REVIVE_TOPIC, 1)):
            header = QueryDelayedRequestHeader(topic)
            answer = await ask(path.client, path.broker, RequestCode.QUERY_DELAYED, header)
            assert len(decode_body(DelayedMessages, answer.body).messages) == count


async def test_pop_is_refused_without_the_timer_wheel() -> None:
    async with popping(store={**SMALL, "timer_wheel_enable": False}) as path:
        await path.send("a")
        answer = await path.pop()
        assert answer.code == ResponseCode.SYSTEM_ERROR and "timerWheelEnable" in (answer.remark or "")


async def delete_topic(path: Popper, topic: str = TOPIC) -> None:
    answer = await ask(path.client, path.broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_messages_of_a_deleted_topic_do_not_come_back_in_a_new_one_of_its_name() -> None:
    async with popping() as path:
        await path.send("old a", "old b")
        assert await path.bodies() == ["old a", "old b"]
        await path.advance(INVISIBLE_MS)
        await path.send("old c", "old d")
        assert sorted(await path.bodies()) == ["old a", "old b", "old c", "old d"]
        await path.ack("old d")
        await path.change("old c", 2 * INVISIBLE_MS)
        await delete_topic(path)
        await path.send("a", "b", "c", "d")
        found = await path.bodies()
        assert found == ["a", "b", "c", "d"]
        for body in "abc":
            await path.ack(body)
        await path.advance(INVISIBLE_MS)
        assert await path.bodies() == ["d"]
        await path.ack("d")
        await path.advance(3 * INVISIBLE_MS)
        assert await path.bodies() == []


async def test_ordered_pop_does_not_wait_for_the_messages_of_a_deleted_topic() -> None:
    disk, clock = PowerCutDisk(), VirtualClock()
    async with popping(disk, clock) as path:
        await path.send("old")
        assert await path.bodies(32, 0, order=True, attempt_id="1") == ["old"]
        await written_offsets(path)
        path.broker.services.pops.orders.persist()
        await delete_topic(path)
        await path.send("new")
        assert await path.bodies(32, 0, order=True, attempt_id="2") == ["new"]
        left = disk.killed()
    async with popping(left, clock) as path:
        assert await path.bodies(32, 0, order=True, attempt_id="3") == ["new"], "nor after a kill"
