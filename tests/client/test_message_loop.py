"""Messages taken by `async for`, acknowledgements, and several messages at the same time."""

import asyncio

import pytest

from pocketmq import (
    ConsumeContext,
    ConsumerOptions,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    ReconsumeLater,
)
from tests.client.live_cluster import Cluster, until

COUNT = 6


async def send(cluster: Cluster, count: int = COUNT, topic: str = "T") -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic(topic, 1)
        for body in bodies:
            await producer.send(Message(topic, body))
    return bodies


def consumer(cluster: Cluster, concurrency: int | None = None, **options: object) -> PushConsumer:
    chosen = ConsumerOptions(**options)  # type: ignore[arg-type]
    made = PushConsumer(cluster.namesrv, "g", "first", concurrency=concurrency, options=chosen)
    made.subscribe("T")
    return made


async def stored(cluster: Cluster) -> int | None:
    async with PullConsumer(cluster.namesrv, "g") as puller:
        return await puller.committed((await puller.queues("T"))[0])


async def taken(consuming: PushConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for message in consuming:
        found.append(message.body)
        if len(found) == count:
            break
    return found


async def test_loop_takes_messages_in_order_and_stores_the_offset(cluster: Cluster) -> None:
    bodies = await send(cluster)
    async with consumer(cluster) as consuming:
        assert await taken(consuming, COUNT) == bodies
    assert await stored(cluster) == COUNT


async def test_second_loop_continues_where_the_first_was_left(cluster: Cluster) -> None:
    bodies = await send(cluster)
    async with consumer(cluster) as consuming:
        assert await taken(consuming, 2) + await taken(consuming, COUNT - 2) == bodies
    assert await stored(cluster) == COUNT


async def test_loop_left_by_an_exception_gives_its_message_back(cluster: Cluster) -> None:
    await send(cluster)
    with pytest.raises(ZeroDivisionError):
        async with consumer(cluster) as consuming:
            async for message in consuming:
                if message.body == b"2":
                    raise ZeroDivisionError
    assert await stored(cluster) == 2
    async with consumer(cluster) as consuming:
        assert await taken(consuming, 1) == [b"2"]


async def test_close_ends_the_loop_of_another_task_after_its_message(cluster: Cluster) -> None:
    await send(cluster)
    consuming, entered, go, found = consumer(cluster), asyncio.Event(), asyncio.Event(), list[bytes]()

    async def loop() -> None:
        async for message in consuming:
            found.append(message.body)
            entered.set()
            await go.wait()

    await consuming.start()
    looping = asyncio.create_task(loop())
    await entered.wait()
    closing = asyncio.create_task(consuming.close())
    await until(lambda: consuming._lifecycle.is_closing)
    go.set()
    await asyncio.gather(looping, closing)
    assert found == [b"0"]
    assert await stored(cluster) == 1


async def test_offset_is_that_of_the_lowest_message_without_ack(cluster: Cluster) -> None:
    await send(cluster)
    options = {"auto_ack": False, "release_timeout_s": 0.1}
    async with consumer(cluster, concurrency=COUNT, **options) as consuming:
        loop, messages = aiter(consuming), list[MessageExt]()
        for _ in range(COUNT):
            messages.append(await anext(loop))
        for message in messages[:2] + messages[3:]:
            await consuming.ack(message)
            await consuming.ack(message)
    assert await stored(cluster) == 2


async def test_concurrency_limits_messages_without_ack(cluster: Cluster) -> None:
    await send(cluster)
    async with consumer(cluster, concurrency=2, auto_ack=False, release_timeout_s=0.1) as consuming:
        loop = aiter(consuming)
        first, _ = await anext(loop), await anext(loop)
        waiting = asyncio.ensure_future(anext(loop))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await consuming.ack(first)
        assert (await waiting).body == b"2"


async def test_nack_sends_the_message_back_with_the_chosen_delay(cluster: Cluster) -> None:
    await send(cluster)
    async with consumer(cluster, auto_ack=False) as consuming:
        loop = aiter(consuming)
        await consuming.nack(await anext(loop), delay_level=1)
        await consuming.ack(await anext(loop))
        assert cluster.broker.services.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1
    assert await stored(cluster) == 2


async def test_message_goes_to_the_dead_letters_after_the_maximum_number_of_attempts(cluster: Cluster) -> None:
    await send(cluster, 1)
    attempts: list[int] = []

    def fail(message: MessageExt) -> None:
        attempts.append(message.reconsume_times)
        raise ReconsumeLater(delay_level=1)

    consuming = PushConsumer(cluster.namesrv, "g", "first", options=ConsumerOptions(max_reconsume_times=1))
    consuming.subscribe("T", fail)
    async with consuming:
        await until(lambda: cluster.broker.services.store.max_offset("%DLQ%g", 0) == 1)
    assert attempts == [0, 1]


async def test_listeners_consume_as_many_messages_at_a_time_as_asked(cluster: Cluster) -> None:
    bodies = await send(cluster, 20)
    now = most = 0
    done: list[bytes] = []

    async def listen(message: MessageExt) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)  # long enough for others to begin
        now -= 1
        done.append(message.body)

    consuming = PushConsumer(cluster.namesrv, "g", "first", concurrency=4)
    consuming.subscribe("T", listen)
    async with consuming:
        await until(lambda: len(done) == 20)
    assert most == 4
    assert sorted(done) == sorted(bodies)
    assert await stored(cluster) == 20


async def test_pulling_pauses_while_the_buffer_is_full(cluster: Cluster) -> None:
    await send(cluster, 60)
    options = {"buffer_messages": 8, "pull_batch_size": 4, "auto_ack": False, "release_timeout_s": 0.0}
    async with consumer(cluster, **options) as consuming:
        loop = aiter(consuming)
        for _ in range(20):
            message = await anext(loop)
            await asyncio.sleep(0)
            assert sum(work.unfinished_count for work in consuming._queues.held.values()) <= 8 + 4
            await consuming.ack(message)


async def test_hooks_see_each_message_before_and_after(cluster: Cluster) -> None:
    await send(cluster, 2)
    seen: list[tuple[str, bytes, str | None]] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            seen.append(("before", context.message.body, None))

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(("after", context.message.body, context.failure and type(context.failure).__name__))
            raise RuntimeError("a hook's failure changes nothing")

    def listen(message: MessageExt) -> None:
        if message.body == b"1":
            raise KeyError("price")

    consuming = PushConsumer(cluster.namesrv, "g", "first", options=ConsumerOptions(hooks=(Hook(),)))
    consuming.subscribe("T", listen)
    async with consuming:
        await until(lambda: len(seen) == 4)
    assert seen == [("before", b"0", None), ("after", b"0", None), ("before", b"1", None), ("after", b"1", "KeyError")]


async def test_sql_subscription(cluster: Cluster) -> None:
    cluster.broker.services.config.enable_property_filter = True
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        for price in (5, 15, 25):
            await producer.send(Message("T", b"%d" % price, properties={"price": str(price)}))
    consuming = PushConsumer(cluster.namesrv, "g", "first")
    consuming.subscribe("T", sql="price > 10")
    async with consuming:
        assert await taken(consuming, 2) == [b"15", b"25"]
    with pytest.raises(ValueError, match="tags 'a' and sql are given"):
        PushConsumer(cluster.namesrv, "g").subscribe("T", tags="a", sql="price > 10")


async def test_group_without_offsets_starts_at_a_time(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        await producer.send(Message("T", b"old"))
        await asyncio.sleep(0.02)  # so that their store times differ
        result = await producer.send(Message("T", b"new"))
    async with PullConsumer(cluster.namesrv, "g2") as puller:
        time_ms = (await puller.pull(result.queue, result.queue_offset)).messages[0].store_timestamp_ms
    consuming = PushConsumer(cluster.namesrv, "g", start=time_ms)
    consuming.subscribe("T")
    async with consuming:
        assert await taken(consuming, 1) == [b"new"]


async def test_loop_and_listener_cannot_be_combined(cluster: Cluster) -> None:
    consuming = PushConsumer(cluster.namesrv, "g")
    consuming.subscribe("T", print)
    with pytest.raises(ValueError, match="either all topics"):
        consuming.subscribe("U")
    with pytest.raises(RuntimeError, match="the messages go to listeners"):
        aiter(consuming)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"start": "middle"}, "start must be 'first' or 'last'"),
        ({"concurrency": 0}, "concurrency must be 1 or more"),
        ({"ordered": True, "broadcast": True}, "cannot be ordered"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PushConsumer("127.0.0.1:9876", "g", **settings)  # type: ignore[arg-type]


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ValueError, match="allocation 'BEST' is not one of 'AVG'"):
        ConsumerOptions(allocation="BEST")
    with pytest.raises(ValueError, match="buffer_messages must be 1 or more, not 0"):
        ConsumerOptions(buffer_messages=0)


async def test_consumers_that_come_and_go_consume_each_message_once(cluster: Cluster) -> None:
    bodies = await send(cluster, 200)
    done: list[bytes] = []

    async def listen(message: MessageExt) -> None:
        await asyncio.sleep(0.001 * (len(done) % 5))  # so that messages finish in another order
        done.append(message.body)

    while len(done) < 200:
        goal = min(len(done) + 37, 200)
        consuming = PushConsumer(cluster.namesrv, "g", "first", concurrency=8)
        consuming.subscribe("T", listen)
        async with consuming:
            await until(lambda goal=goal: len(done) >= goal)  # type: ignore[misc]
    assert sorted(done) == sorted(bodies)
    assert await stored(cluster) == 200
