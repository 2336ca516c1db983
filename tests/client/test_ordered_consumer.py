"""Ordered consumers: queue locks, suspension after a failure, dead letters."""

import asyncio
from collections import defaultdict

import pytest

from pocketmq import ConsumerOptions, Message, MessageExt, Producer, PushConsumer
from pocketmq.remoting.bodies import MessageQueue
from tests.client.live_cluster import Cluster, until


def ordered(cluster: Cluster, listener: object, **options: object) -> PushConsumer:
    chosen = ConsumerOptions(suspend_ms=20, **options)  # type: ignore[arg-type]
    made = PushConsumer(cluster.namesrv, "g", "first", ordered=True, options=chosen)
    made.subscribe("T", listener)  # type: ignore[arg-type]
    return made


async def send(cluster: Cluster, count: int, queues: int = 1) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", queues)
        for number in range(count):
            await producer.send(Message("T", b"%d" % number), select=lambda found: found[number % queues])  # noqa: B023


async def test_failed_message_is_consumed_again_before_the_later_ones(cluster: Cluster) -> None:
    await send(cluster, 3)
    seen: list[tuple[bytes, int]] = []

    def listen(message: MessageExt) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"1" and message.reconsume_times < 2:
            raise ValueError("not yet")

    async with ordered(cluster, listen):
        await until(lambda: len(seen) == 5)
    assert seen == [(b"0", 0), (b"1", 0), (b"1", 1), (b"1", 2), (b"2", 0)]


async def test_message_goes_to_the_dead_letters_after_the_maximum_number_of_attempts(cluster: Cluster) -> None:
    await send(cluster, 2)
    seen: list[bytes] = []

    def listen(message: MessageExt) -> None:
        seen.append(message.body)
        if message.body == b"0":
            raise ValueError("never")

    async with ordered(cluster, listen, max_reconsume_times=2):
        await until(lambda: seen[-1:] == [b"1"])
        await until(lambda: cluster.broker.services.store.max_offset("%DLQ%g", 0) == 1)
    assert seen == [b"0", b"0", b"0", b"1"]


async def test_each_queue_is_consumed_in_order_by_one_consumer_at_a_time(cluster: Cluster) -> None:
    busy: set[int] = set()
    seen = defaultdict[int, list[int]](list)

    async def listen(message: MessageExt) -> None:
        assert message.queue_id not in busy, "two messages of a queue at the same time"
        busy.add(message.queue_id)
        await asyncio.sleep(0.002)  # long enough for another message to come in between
        busy.discard(message.queue_id)
        seen[message.queue_id].append(message.queue_offset)

    await send(cluster, 80, queues=4)
    async with ordered(cluster, listen) as first:
        await until(lambda: sum(map(len, seen.values())) > 10)
        async with ordered(cluster, listen) as second:
            await until(lambda: len([queue for queue in second.queues if queue.topic == "T"]) == 2)
            await until(lambda: sum(map(len, seen.values())) == 80)
        await until(lambda: len([queue for queue in first.queues if queue.topic == "T"]) == 4)
    assert dict(seen) == {queue_id: list(range(20)) for queue_id in range(4)}


async def test_queue_locked_by_another_client_is_not_consumed_until_it_is_free(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.client.consuming.rebalancing.REBALANCE_S", 0.2)
    await send(cluster, 2)
    queue, seen = MessageQueue("broker-a", 0, "T"), list[bytes]()
    locks = cluster.broker.services.locks
    assert locks.lock_batch("g", [queue], "other") == [queue]
    async with ordered(cluster, lambda message: seen.append(message.body)) as consuming:
        await asyncio.sleep(0.5)  # some rounds of rebalancing
        assert seen == [] and queue not in consuming.queues
        locks.unlock_batch("g", [queue], "other")
        await until(lambda: len(seen) == 2)


async def test_queue_whose_lock_was_lost_is_given_up(cluster: Cluster) -> None:
    await send(cluster, 1)
    queue, seen = MessageQueue("broker-a", 0, "T"), list[bytes]()
    async with ordered(cluster, lambda message: seen.append(message.body)) as consuming:
        await until(lambda: seen == [b"0"])
        locks = cluster.broker.services.locks
        locks.unlock_batch("g", [queue], consuming.instance.client_id)
        assert locks.lock_batch("g", [queue], "other") == [queue]
        await consuming._queues.renew_locks()
        assert queue not in consuming.queues
