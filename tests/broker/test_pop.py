"""Popping, over the wire, under the virtual clock: what is handed out, comes back, and is never seen again."""

import asyncio
import base64
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from running import SMALL, ask, connected, running_broker, until

from broker.broker import Broker
from broker.pop_record import FIRST_POP_TIME, REVIVE_GROUP, Handle
from remoting.bodies import decode_body
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.delay_bodies import DelayedMessages
from remoting.dispatch import RemotingError
from remoting.headers.delay import QueryDelayedRequestHeader
from remoting.headers.offset import QueryConsumerOffsetRequestHeader
from remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
)
from remoting.headers.send import SendMessageRequestHeader
from remoting.headers.topic import TopicRequestHeader
from runtime.clock import VirtualClock
from store.disk import Disk
from store.memory_disk import MemoryDisk
from store.message import Message, PutResult
from store.properties import decode_properties
from store.record import Record, decode_record

sys.path.append(str(Path(__file__).parents[1] / "store"))
from power_cut_disk import PowerCutDisk  # noqa: E402

TOPIC, GROUP = "T", "g"
INVISIBLE_MS = 60_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


class Popper:
    """A client of one group, and the broker's clock."""

    def __init__(self, client: RemotingClient, broker: Broker, clock: VirtualClock) -> None:
        self.client, self.broker, self.clock = client, broker, clock
        self.handles: dict[str, str] = {}

    async def send(self, *bodies: str, queue_id: int = 0, tags: str = "") -> None:
        for body in bodies:
            header = SendMessageRequestHeader(
                "p", TOPIC, "TBW102", 8, queue_id, 0, 1_700_000_000_000, 0, f"TAGS\x01{tags}" if tags else "", 0
            )
            answer = await ask(self.client, self.broker, RequestCode.SEND_MESSAGE, header, body.encode())
            assert answer.code == 0, answer.remark

    async def pop(self, count: int = 32, queue_id: int = -1, poll_ms: int = 0, **how: object) -> RemotingCommand:
        header = PopMessageRequestHeader(GROUP, TOPIC, queue_id, count, INVISIBLE_MS, poll_ms, **how)  # type: ignore[arg-type]
        return await ask(self.client, self.broker, RequestCode.POP_MESSAGE, header)

    async def waiting_pops(self, count: int) -> "list[asyncio.Future[RemotingCommand]]":
        """Pops that find nothing, and are held."""
        channel = await self.client.channel(f"127.0.0.1:{self.broker.port}")
        header = PopMessageRequestHeader(GROUP, TOPIC, -1, 32, INVISIBLE_MS, 20_000)
        waiting = [channel.invoke(RequestCode.POP_MESSAGE, header, b"", 15.0) for _ in range(count)]
        await until(lambda: self.broker.services.pops.polling.count == count)
        return waiting

    async def bodies(self, *args: int, **how: object) -> list[str]:
        """Pop, and keep the handles as the Java client makes them."""
        answer = await self.pop(*args, **how)  # type: ignore[arg-type]
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return []
        found = records(answer.body)
        starts = {tuple(row.split(" ")[:2]): row.split(" ")[2] for row in answer.ext["startOffsetInfo"].split(";")}
        told = {tuple(row.split(" ")[:2]): row.split(" ")[2].split(",") for row in answer.ext["msgOffsetInfo"].split(";")}
        assert sum(map(len, told.values())) == len(found)
        for record in found:
            given = decode_properties(record.properties).get("POP_CK")
            key = ("0", str(record.queue_id))
            if given is None:
                assert str(record.queue_offset) in told[key]
            fields = starts.get(key), answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"], "0", "b"
            made = " ".join(map(str, (*fields, record.queue_id, record.queue_offset)))
            self.handles[record.body.decode()] = given or made
        return [record.body.decode() for record in found]

    async def ack(self, body: str) -> RemotingCommand:
        handle = Handle.parse(self.handles[body])
        topic = TOPIC if handle.flag == "0" else f"%RETRY%{GROUP}_{TOPIC}"
        header = AckMessageRequestHeader(GROUP, topic, handle.queue_id, str(handle), handle.queue_offset)
        return await ask(self.client, self.broker, RequestCode.ACK_MESSAGE, header)

    async def change(self, body: str, invisible_ms: int) -> None:
        handle = Handle.parse(self.handles[body])
        header = ChangeInvisibleTimeRequestHeader(
            GROUP, TOPIC, handle.queue_id, str(handle), handle.queue_offset, invisible_ms
        )
        answer = await ask(self.client, self.broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert answer.code == 0, answer.remark
        times = {"pop_time_ms": int(answer.ext["popTime"]), "invisible_time_ms": int(answer.ext["invisibleTime"])}
        self.handles[body] = str(handle._replace(start_offset=handle.queue_offset, **times))

    async def advance(self, ms: int) -> None:
        """Let time pass in the broker, and everything be done that is due by then."""
        for part in (ms - 1500, 1000, 500):
            if part > 0:
                self.clock.advance(part)
                await until(self.is_idle)

    def is_idle(self) -> bool:
        services = self.broker.services
        services.turn.run()
        is_delivered = services.timer_messages.delivered_to_ms >= self.clock.message_time_ms()
        return is_delivered and services.timer_messages.is_idle and services.pops.is_idle


def records(body: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(body):
        found.append(decode_record(memoryview(body), position))
        position += found[-1].total_size
    return found


@contextlib.asynccontextmanager
async def popping(disk: Disk | None = None, clock: VirtualClock | None = None, **how: object) -> AsyncIterator[Popper]:
    clock = clock or VirtualClock()
    async with running_broker(disk=disk, clock=clock, **how) as broker, connected() as client:  # type: ignore[arg-type]
        yield Popper(client, broker, clock)


async def test_what_is_acknowledged_never_comes_again_and_the_rest_does_when_its_time_is_over() -> None:
    async with popping() as path:
        await path.send("a", "b", "c", "d")
        assert sorted(await path.bodies()) == ["a", "b", "c", "d"]
        assert await path.bodies() == [], "they are somebody's"
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


async def test_a_message_that_comes_again_is_the_same_but_for_how_often_it_was_consumed() -> None:
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


async def test_a_longer_invisible_time_counts_from_when_it_was_asked_for() -> None:
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


async def test_a_shorter_one_brings_the_message_back_at_once() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        await path.change("a", 1)
        await path.advance(1)
        assert await path.bodies() == ["a"]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_broker_that_starts_knows_what_was_popped_and_what_was_acknowledged(is_cut: bool) -> None:
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
        # A power cut may set consumers back: what was popped is popped again, what is acknowledged of it too.
        assert expected <= set(again) and (is_cut or sorted(again) == sorted(expected))


async def test_acks_of_many_messages_at_once() -> None:
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


async def test_an_ack_makes_no_revive_queue() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        path.handles["a"] = str(Handle.parse(path.handles["a"])._replace(revive_queue=8))
        answer = await path.ack("a")
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "extraInfo: revive queue 8 does not exist (reviveQueueNum)"
        )  # fmt: skip
        assert path.broker.services.store.queue(REVIVE_TOPIC, 8) is None


async def test_where_the_store_refuses_midway_what_is_put_is_not_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_pop_waits_for_a_message_and_one_alone_gets_it() -> None:
    async with popping() as path:
        await path.send("old")
        await path.bodies()
        await path.ack("old")
        waiting = await path.waiting_pops(3)
        polling = path.broker.services.pops.polling
        info = await ask(
            path.client, path.broker, RequestCode.POLLING_INFO, QueryConsumerOffsetRequestHeader(GROUP, TOPIC, -1)
        )
        assert info.ext["pollingNum"] == "3"
        await path.send("new", queue_id=1)
        answer = await waiting[0]
        assert [record.body for record in records(answer.body)] == [b"new"]
        assert polling.count == 2
        polling.stop()
        assert [(await one).code for one in waiting[1:]] == [ResponseCode.POLLING_TIMEOUT] * 2


async def test_a_retry_topic_is_popped_like_another_and_feeds_itself_not_twice() -> None:
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


async def test_a_record_that_the_disk_lost_is_an_answer_and_nothing_is_taken() -> None:
    async with popping() as path:
        await path.send("lost", "b")
        (file,) = path.broker.services.store.commit_log.mapped_files.files
        size = bytes(file.view[:4])
        file.view[:4] = bytes(4)
        answer = await path.pop()
        assert answer.code == ResponseCode.SYSTEM_ERROR and "a record of 0 bytes" in answer.remark
        file.view[:4] = size
        assert await path.bodies() == ["lost", "b"]


async def test_a_waiting_pop_of_a_topic_that_goes_away_is_told() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        (waiting,) = await path.waiting_pops(1)
        answer = await ask(path.client, path.broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(TOPIC))
        assert answer.code == 0
        assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_waiting_pop_gets_what_others_did_not_acknowledge() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        (waiting,) = await path.waiting_pops(1)
        await path.advance(INVISIBLE_MS)
        assert [record.body for record in records((await waiting).body)] == [b"a"]


async def test_only_what_a_group_subscribes_to_is_popped() -> None:
    async with popping() as path:
        await path.send("no", "no", tags="A")
        await path.send("yes", tags="B")
        assert await path.bodies(exp="B || C", exp_type="TAG") == ["yes"]
        assert (await path.pop(exp="||", exp_type="TAG")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pop_goes_on_turn_by_turn_behind_many_that_it_does_not_want() -> None:
    async with popping() as path:
        for _ in range(5):
            await path.send(*["no"] * 1000, tags="A")
        await path.send("yes", tags="B")
        began_s = path.clock.monotonic()
        assert await path.bodies(32, 0, 15_000, exp="B", exp_type="TAG") == ["yes"]
        assert path.clock.monotonic() - began_s < 10, "not when its time was over"


async def test_a_new_group_may_begin_with_the_last_message() -> None:
    async with popping(init_pop_offset_by_check_msg_in_mem=False) as path:
        await path.send("a", "b", "c")
        assert await path.bodies(queue_id=0, init_mode=1) == ["c"]
    async with popping() as path:
        await path.send("a", "b", "c")
        assert await path.bodies(queue_id=0, init_mode=1) == ["a", "b", "c"], "the first is still in memory"


async def test_peeking_takes_nothing_and_notification_tells() -> None:
    async with popping() as path:
        await path.send("a")
        peek = PeekMessageRequestHeader(GROUP, TOPIC, -1, 32)
        for _ in range(2):
            answer = await ask(path.client, path.broker, RequestCode.PEEK_MESSAGE, peek)
            assert [record.body for record in records(answer.body)] == [b"a"]
        ask_for = NotificationRequestHeader(GROUP, TOPIC, -1, 0)
        assert (await ask(path.client, path.broker, RequestCode.NOTIFICATION, ask_for)).ext["hasMsg"] == "true"
        await path.bodies()
        assert (await ask(path.client, path.broker, RequestCode.NOTIFICATION, ask_for)).ext["hasMsg"] == "false"
        assert (await ask(path.client, path.broker, RequestCode.PEEK_MESSAGE, peek)).code == ResponseCode.PULL_NOT_FOUND
        channel = await path.client.channel(f"127.0.0.1:{path.broker.port}")
        held = channel.invoke(RequestCode.NOTIFICATION, NotificationRequestHeader(GROUP, TOPIC, -1, 20_000), b"", 15.0)
        await until(lambda: path.broker.services.pops.polling.count == 1)
        await path.send("b")
        assert (await held).ext["hasMsg"] == "true"
        assert await path.bodies() == ["b"], "it was told of, not taken"


async def test_in_order_a_queue_gives_no_more_until_all_is_acknowledged_or_its_time_over() -> None:
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
        assert [record.body for record in records(answer.body)] == [b"c"], "from where it was, not a retry topic"
        assert answer.ext["orderCountInfo"] == "0 qo0%2 1;0 0 1"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"count": 33}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 8}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_cannot_be_is_refused(how: dict[str, int], code: int) -> None:
    async with popping() as path:
        await path.send("a")
        assert (await path.pop(**how)).code == code
        assert (await path.pop()).code == 0


async def test_acks_that_are_none() -> None:
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


async def test_progress_of_reviving_is_a_consumer_offset() -> None:
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


async def test_what_is_noted_about_pops_is_not_listed_among_delayed_messages() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        for topic, count in ((None, 0), (REVIVE_TOPIC, 1)):
            header = QueryDelayedRequestHeader(topic)
            answer = await ask(path.client, path.broker, RequestCode.QUERY_DELAYED, header)
            assert len(decode_body(DelayedMessages, answer.body).messages) == count


async def test_without_timers_nothing_can_be_popped() -> None:
    async with popping(store={**SMALL, "timer_wheel_enable": False}) as path:
        await path.send("a")
        answer = await path.pop()
        assert answer.code == ResponseCode.SYSTEM_ERROR and "timerWheelEnable" in (answer.remark or "")
