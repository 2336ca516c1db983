"""The synchronous producer, used by a thread without an event loop while the servers run in the test's loop."""

import asyncio
import threading

import pytest

from pocketmq import Message, MessageExt, MQError, PullConsumer, PushConsumer, TransactionState, reply
from pocketmq.sync import Producer
from tests.client.live_cluster import Cluster, until


async def test_sends_of_every_kind(cluster: Cluster) -> None:
    asked_in: list[str] = []

    def check(message: MessageExt) -> TransactionState:
        asked_in.append(threading.current_thread().name)
        return TransactionState.COMMIT

    def program() -> None:
        with Producer(cluster.namesrv, "p", check=check) as producer:
            producer.create_topic("T", 1)
            assert producer.send("T", b"1", tag="a").queue_offset == 0
            assert producer.send(Message("T", b"2")).queue_offset == 1
            producer.send_batch([Message("T", b"3"), Message("T", b"4")])
            assert len(producer.send_all([Message("T", b"5"), Message("T", b"6")])) == 1
            handle = producer.send("T", b"later", delay=3600).recall_handle
            assert handle is not None and producer.recall("T", handle)
            with producer.transaction(Message("T", b"7")) as transaction:
                assert transaction.result.status == "SEND_OK"
            assert transaction.is_confirmed and transaction.state is TransactionState.COMMIT
            with pytest.raises(KeyError), producer.transaction(Message("T", b"no")):
                raise KeyError
            with producer.transaction(Message("T", b"8", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"})) as open_one:
                open_one.leave_open()
            answered.wait(30)
            producer.send_oneway(Message("T", b"9"))
        producer.close()
        with pytest.raises(RuntimeError, match="is closed"):
            producer.send("T", b"x")

    answered = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(program))
    store = cluster.broker.services.store
    await until(lambda: store.max_offset("T", 0) == 8 or running.done())
    answered.set()
    await running
    await until(lambda: store.max_offset("T", 0) == 9)
    assert asked_in and asked_in[0] != "synchronous producer"
    async with PullConsumer(cluster.namesrv, "g") as reader:
        pulled = await reader.pull((await reader.queues("T"))[0], 0)
    assert [message.body for message in pulled.messages] == [b"%d" % number for number in range(1, 10)]


async def test_request_and_reply(cluster: Cluster) -> None:
    def program() -> bytes:
        with Producer(cluster.namesrv, "asking") as producer:
            return producer.request(Message("Prices", b"book"), 20.0).body

    consumer = PushConsumer(cluster.namesrv, "prices", start="first")

    async def answer(message: MessageExt) -> None:
        await reply(consumer, message, b"12.50")

    await asyncio.to_thread(_create, cluster.namesrv, "Prices")
    consumer.subscribe("Prices", answer)
    async with consumer:
        assert await asyncio.to_thread(program) == b"12.50"


def _create(namesrv: str, topic: str) -> None:
    with Producer(namesrv) as producer:
        producer.create_topic(topic)


def test_errors_are_raised_in_the_calling_thread(unused_tcp_port: int) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Producer("nowhere")
    with Producer(f"127.0.0.1:{unused_tcp_port}") as producer, pytest.raises(MQError, match="no name server answers"):
        producer.send("T", b"x")
