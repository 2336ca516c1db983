"""The synchronous push consumer, used by threads without an event loop while the servers run in the test's loop."""

import asyncio
import threading

import pytest

from pocketmq import ConsumerOptions, Message, MessageExt, ReconsumeLater
from pocketmq.sync import Producer, PushConsumer
from tests.client.live_cluster import Cluster, until

BODIES = [b"%d" % number for number in range(6)]


def send(cluster: Cluster) -> None:
    with Producer(cluster.namesrv, "p") as producer:
        producer.create_topic("T", 1)
        for body in BODIES:
            producer.send("T", body)


def consumer(cluster: Cluster) -> PushConsumer:
    made = PushConsumer(cluster.namesrv, "g", "first")
    made.subscribe("T")
    return made


async def test_listeners_are_called_in_threads_of_a_pool(cluster: Cluster) -> None:
    got: list[tuple[str, bytes]] = []

    def listener(message: MessageExt) -> None:
        if message.body == b"3" and not message.reconsume_times:
            raise ReconsumeLater(1)
        got.append((threading.current_thread().name, message.body))

    def program() -> None:
        made = PushConsumer(cluster.namesrv, "g", "first")
        made.subscribe("T", listener)
        with made:
            done.wait(60)
            with pytest.raises(RuntimeError, match="before start"):
                made.subscribe("U", listener)

    done = threading.Event()
    await asyncio.to_thread(send, cluster)
    running = asyncio.create_task(asyncio.to_thread(program))
    await until(lambda: len(got) == len(BODIES) or running.done())
    done.set()
    await running
    assert sorted(body for _, body in got) == BODIES
    assert all(name not in ("MainThread", "synchronous consumer") for name, _ in got)


async def test_iteration_acknowledges_the_last_message_when_the_next_one_is_asked_for(cluster: Cluster) -> None:
    def program() -> list[bytes]:
        found: list[bytes] = []
        with pytest.raises(KeyError), consumer(cluster) as failing:
            for message in failing:
                found.append(message.body)
                if len(found) == 2:
                    raise KeyError  # its last message is delivered again
        with consumer(cluster) as leaving:
            for message in leaving:
                found.append(message.body)
                if len(found) == 4:
                    break  # its last message is consumed
        with consumer(cluster) as last:
            for message in last:
                found.append(message.body)
                if message.body == BODIES[-1]:
                    break
        return found

    await asyncio.to_thread(send, cluster)
    assert await asyncio.to_thread(program) == [b"0", b"1", b"1", b"2", b"3", b"4", b"5"]


async def test_messages_are_acknowledged_and_given_back_by_hand(cluster: Cluster) -> None:
    def program() -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        made = PushConsumer(cluster.namesrv, "g", "first", options=ConsumerOptions(auto_ack=False))
        made.subscribe("T")
        with made:
            for message in made:
                found.append((message.body, message.reconsume_times))
                if message.body == b"2" and not message.reconsume_times:
                    made.nack(message, 1)
                else:
                    made.ack(message)
                if len(found) == len(BODIES) + 1:
                    return found
        return found

    await asyncio.to_thread(send, cluster)
    found = await asyncio.to_thread(program)
    assert sorted(found) == sorted([(body, 0) for body in BODIES] + [(b"2", 1)])


async def test_iteration_ends_when_another_thread_closes_the_consumer(cluster: Cluster) -> None:
    made = consumer(cluster)
    got: list[bytes] = []

    def program() -> None:
        made.start()
        got.extend(message.body for message in made)

    await asyncio.to_thread(send, cluster)
    running = asyncio.create_task(asyncio.to_thread(program))
    await until(lambda: len(got) == len(BODIES))
    await asyncio.to_thread(made.close)
    await running
    with pytest.raises(RuntimeError, match="is closed"):
        made.start()


async def test_a_message_may_be_sent_by_a_listener(cluster: Cluster) -> None:
    def program() -> None:
        with Producer(cluster.namesrv, "p") as producer:
            producer.create_topic("T", 1)
            producer.create_topic("U", 1)
            made = PushConsumer(cluster.namesrv, "g", "first")
            made.subscribe("T", lambda message: producer.send(Message("U", message.body)) and None)
            with made:
                producer.send("T", b"m")
                sent.wait(60)

    sent = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(program))
    await until(lambda: cluster.broker.services.store.max_offset("U", 0) == 1 or running.done())
    sent.set()
    await running
