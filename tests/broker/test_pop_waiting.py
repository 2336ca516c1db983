"""Waiting pops, peek and NOTIFICATION requests, against a broker on the virtual clock."""

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pop import NotificationRequestHeader, PeekMessageRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, popping, records
from tests.broker.running import ask


async def test_message_answers_exactly_one_waiting_pop() -> None:
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


async def test_waiting_pop_of_a_deleted_topic_is_answered() -> None:
    async with popping() as path:
        await path.send("a")
        await path.bodies()
        (waiting,) = await path.waiting_pops(1)
        answer = await ask(path.client, path.broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(TOPIC))
        assert answer.code == 0
        assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("with_v2", [False, True])
async def test_waiting_pop_gets_redelivered_messages(with_v2: bool) -> None:
    async with popping(enable_retry_topic_v2=with_v2) as path:
        await path.send("a")
        await path.bodies()
        for _ in range(4):
            (waiting,) = await path.waiting_pops(1)
            await path.advance(INVISIBLE_MS)
            assert [record.body for record in records((await waiting).body)] == [b"a"]


async def test_pop_skips_many_unwanted_messages_over_several_turns() -> None:
    async with popping() as path:
        for _ in range(5):
            await path.send(*["no"] * 1000, tags="A")
        await path.send("yes", tags="B")
        began_s = path.clock.monotonic()
        assert await path.bodies(32, 0, 15_000, exp="B", exp_type="TAG") == ["yes"]
        assert path.clock.monotonic() - began_s < 10, "answered before its poll time ends"


async def test_peek_takes_nothing_and_notification_reports_messages() -> None:
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
        (held,) = await path.waiting_notifications(-1)
        await path.send("b")
        assert (await held).ext["hasMsg"] == "true"
        assert await path.bodies() == ["b"], "a notification does not pop the message"


async def test_message_answers_the_newest_notification_of_its_queue_and_of_any_queue() -> None:
    async with popping() as path:
        await path.send("old")
        await path.bodies()
        waiting = await path.waiting_notifications(-1, 0, 1, 0, -1)
        await path.send("a")
        assert [(await waiting[index]).ext["hasMsg"] for index in (3, 4)] == ["true"] * 2
        assert path.broker.services.pops.notifications.count == 3
        await path.send("b")
        assert [(await waiting[index]).ext["hasMsg"] for index in (0, 1)] == ["true"] * 2
        assert not waiting[2].done()


@pytest.mark.parametrize(("queue_id", "has_message"), [(0, "true"), (1, "false")])
async def test_notification_reports_untaken_messages_at_its_deadline(queue_id: int, has_message: str) -> None:
    async with popping() as path:  # requests wait in real time
        await path.send("old")
        await path.bodies()
        older, newer = await path.waiting_notifications(queue_id, 0, poll_ms=1_500)
        await path.send("a")
        assert (await newer).ext["hasMsg"] == "true"
        assert (await older).ext["hasMsg"] == has_message


async def test_message_taken_by_a_waiting_pop_answers_no_notification() -> None:
    async with popping() as path:
        await path.send("old")
        await path.bodies()
        (pop,) = await path.waiting_pops(1)
        (held,) = await path.waiting_notifications(-1)
        asked = QueryConsumerOffsetRequestHeader(GROUP, TOPIC, -1)
        answer = await ask(path.client, path.broker, RequestCode.POLLING_INFO, asked)
        assert answer.ext["pollingNum"] == "1", "NOTIFICATION requests are not counted"
        await path.send("a")
        assert [record.body for record in records((await pop).body)] == [b"a"]
        await path.send("b", queue_id=1)
        assert (await held).ext["hasMsg"] == "true"
        assert await path.bodies() == ["b"]
