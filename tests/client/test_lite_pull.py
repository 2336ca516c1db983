"""The pull consumer that reads on and on: subscribe, assign, seek, pause, offsets for times, commit."""

import asyncio

import pytest

from pocketmq import Message, MessageQueue, Producer, PullConsumer
from tests.client.live_cluster import Cluster, until
from tests.patience import PATIENCE_S

QUEUE = MessageQueue("broker-a", 0, "T")
OTHER = MessageQueue("broker-a", 1, "T")


async def send(cluster: Cluster, count: int, queues: int = 1) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", queues)
        for number in range(count):
            await producer.send(Message("T", b"%d" % number), select=lambda found: found[number % queues])  # noqa: B023


async def polled(consumer: PullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += [message.body for message in await consumer.poll(1.0)]
    return found


async def test_assigned_queue_is_read_from_the_start_and_committed(cluster: Cluster) -> None:
    await send(cluster, 5)
    async with PullConsumer(cluster.namesrv, "g", start="first", auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        assert consumer.assignment() == [QUEUE]
        (first,) = await consumer.poll(None, 1)
        assert first.body == b"0"
        assert await consumer.position(QUEUE) == 1
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 1
        await polled(consumer, 4)
    async with PullConsumer(cluster.namesrv, "g", start="first") as consumer:
        await consumer.assign([QUEUE])
        assert await polled(consumer, 4) == [b"1", b"2", b"3", b"4"]
    async with PullConsumer(cluster.namesrv, "g") as consumer:
        assert await consumer.committed(QUEUE) == 5, "stored at the end, by auto_commit"


async def test_seek_and_offsets_for_times(cluster: Cluster) -> None:
    await send(cluster, 3)
    async with PullConsumer(cluster.namesrv, "g", start="first") as consumer:
        await consumer.assign([QUEUE])
        assert await polled(consumer, 3) == [b"0", b"1", b"2"]
        consumer.seek(QUEUE, 1)
        assert await consumer.position(QUEUE) == 1
        assert await polled(consumer, 2) == [b"1", b"2"]
        assert await consumer.offsets_for_times({QUEUE: 0}) == {QUEUE: 0}
        assert await consumer.offsets_for_times({QUEUE: 1 << 42}) == {QUEUE: 3}
        with pytest.raises(ValueError, match="is not read by this consumer"):
            consumer.seek(OTHER, 0)


async def test_paused_queue_gives_no_messages(cluster: Cluster) -> None:
    await send(cluster, 4, queues=2)
    async with PullConsumer(cluster.namesrv, "g", start="first") as consumer:
        await consumer.assign([QUEUE, OTHER])
        consumer.pause(QUEUE)
        assert await polled(consumer, 2) == [b"1", b"3"]
        assert await consumer.poll(0.2) == []
        consumer.resume(QUEUE)
        assert await polled(consumer, 2) == [b"0", b"2"]
        await consumer.assign([OTHER])
        assert consumer.assignment() == [OTHER]


async def test_subscribed_queues_are_shared_in_the_group(cluster: Cluster) -> None:
    await send(cluster, 0, queues=4)
    async with PullConsumer(cluster.namesrv, "g") as one, PullConsumer(cluster.namesrv, "g") as two:
        for consumer in (one, two):
            consumer.subscribe("T")
            await consumer.poll()
        await until(lambda: len(one.assignment()) == len(two.assignment()) == 2)
        with pytest.raises(RuntimeError, match="cannot be combined"):
            await one.assign([QUEUE])


async def test_loop_over_a_subscription_with_tags(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        for tag in ("a", "b", "a"):
            await producer.send(Message("T", tag.encode(), tags=tag))
    found = []
    async with PullConsumer(cluster.namesrv, "g", start="first") as consumer:
        consumer.subscribe("T", "a")
        async for message in consumer:
            found.append(message.queue_offset)
            if len(found) == 2:
                break
    assert found == [0, 2]
    async with PullConsumer(cluster.namesrv, "g") as consumer:
        assert await consumer.committed(QUEUE) == 3
        with pytest.raises(RuntimeError, match="no queue: call subscribe"):
            await consumer.poll()
