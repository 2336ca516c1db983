"""The pop consumer: acks, later deliveries, renewal of the invisible time, dead letters."""

import asyncio

import pytest

from pocketmq import ConsumerOptions, Message, MessageExt, PopConsumer, Producer, ReconsumeLater
from tests.client.live_cluster import Cluster, until


async def send(cluster: Cluster, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 2)
        for number, body in enumerate(bodies):
            await producer.send(Message("T", body, tags="ab"[number % 2]))
    return bodies


def popping(cluster: Cluster, **settings: object) -> PopConsumer:
    return PopConsumer(cluster.namesrv, "g", "first", **settings)  # type: ignore[arg-type]


async def test_loop_acknowledges_all_messages(cluster: Cluster) -> None:
    bodies = await send(cluster, 10)
    found = []
    consumer = popping(cluster)
    consumer.subscribe("T")
    async with consumer:
        async for message in consumer:
            found.append(message.body)
            if len(found) == 10:
                break
    assert sorted(found) == bodies
    assert not consumer._source._unfinished


async def test_two_consumers_share_the_messages_of_all_queues(cluster: Cluster) -> None:
    bodies = await send(cluster, 40)
    first, second = list[bytes](), list[bytes]()

    def listening(got: list[bytes]) -> PopConsumer:
        async def listen(message: MessageExt) -> None:
            await asyncio.sleep(0.001)  # so that both get some
            got.append(message.body)

        consumer = popping(cluster, concurrency=2, options=ConsumerOptions(pull_batch_size=2))
        consumer.subscribe("T", listen)
        return consumer

    async with listening(first), listening(second):
        await until(lambda: len(first) + len(second) == 40)
    assert sorted(first + second) == sorted(bodies)
    assert first and second


async def test_failed_message_is_delivered_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.client.consuming.pop_source.LATER_S", (1,))
    await send(cluster, 1)
    seen: list[int] = []

    def listen(message: MessageExt) -> None:
        seen.append(message.reconsume_times)
        if len(seen) < 2:
            raise ReconsumeLater(1)

    consumer = popping(cluster)
    consumer.subscribe("T", listen)
    async with consumer:
        await until(lambda: len(seen) == 2)
    assert seen == [0, 1]


async def test_message_goes_to_the_dead_letters_when_asked(cluster: Cluster) -> None:
    await send(cluster, 1)
    consumer = popping(cluster)
    consumer.subscribe("T")
    async with consumer:
        await consumer.nack(await anext(aiter(consumer)), delay_level=-1)
    assert cluster.broker.services.store.max_offset("%DLQ%g", 0) == 1


async def test_invisible_time_is_renewed_while_a_message_is_in_hand(cluster: Cluster) -> None:
    await send(cluster, 1)
    consumer = popping(cluster, invisible_ms=5_000)
    consumer.subscribe("T")
    async with consumer:
        async for _ in consumer:
            (popped,) = consumer._source._unfinished.values()
            before, until_s = popped.handle, popped.visible_s
            popped.visible_s -= 4
            await consumer._source.renew()
            assert popped.handle != before and popped.visible_s > until_s
            break


async def test_only_wanted_tags_are_consumed(cluster: Cluster) -> None:
    await send(cluster, 4)
    found = []
    consumer = popping(cluster)
    consumer.subscribe("T", tags="b")
    async with consumer:
        async for message in consumer:
            found.append(message.body)
            if len(found) == 2:
                break
    assert sorted(found) == [b"1", b"3"]


def test_invalid_settings_are_refused() -> None:
    for settings, told in (({"invisible_ms": 100}, "5000 or more"), ({"concurrency": 0}, "1 or more")):
        with pytest.raises(ValueError, match=told):
            PopConsumer("127.0.0.1:9876", "g", **settings)  # type: ignore[arg-type]
