"""The consumers of our Python client at Apache's brokers of 4.9.4 and 5.5.0: ordered, broadcast, pull, pop, loops."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq import ConsumerOptions, MessageExt, PopConsumer, PullConsumer, PushConsumer, ReconsumeLater, RemotingError
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue
from tests.client.live_cluster import until
from tests.interop.conftest import need_java
from tests.interop.servers import BROKER_NAME, Apache, Cluster
from tests.interop.test_replication import wait_until
from tests.interop.wire import Connection
from tests.support.amount import IS_LONG

GET_BROKER_CLUSTER_INFO = 106


@pytest.fixture(scope="module", params=["4.9.4", "5.5.0"] if IS_LONG else ["5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def apaches(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_java()
    levels = " ".join(["1s"] * 18)
    running = Cluster(tmp_path_factory.mktemp(f"apache-{version}"), Apache(version), messageDelayLevel=levels)
    try:
        running.start_broker()
        with Connection(running.namesrv_address) as namesrv:  # 5.5.0 reports its start before it is registered
            address = running.broker_address.encode()
            wait_until("the broker is registered", lambda: address in namesrv.ask(GET_BROKER_CLUSTER_INFO, {}).body)
        yield running
    finally:
        running.close()


@pytest.fixture
def topic(apaches: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with two queues and twenty messages, numbered in each queue."""
    name = "T-" + request.node.originalname.removeprefix("test_")[:40]
    with Connection(apaches.broker_address) as connection:
        connection.create_topic(name, 2)
        for number in range(20):
            connection.send(name, number % 2, b"%d" % (number // 2), {})
    with Connection(apaches.namesrv_address) as namesrv:
        wait_until("the topic has a route", lambda: namesrv.ask(105, {"topic": name}).code == 0)
    return name


def listening(consumer: Any, topic: str, listener: Callable[[MessageExt], None]) -> Any:
    consumer.subscribe(topic, listener)
    return consumer


async def test_ordered_consumer(apaches: Cluster, topic: str) -> None:
    seen: dict[int, list[bytes]] = {0: [], 1: []}
    dead: list[bytes] = []

    def listen(message: MessageExt) -> None:
        if message.body == b"3" and message.reconsume_times < 2:
            raise ReconsumeLater
        if message.body == b"5" and message.queue_id == 1:
            raise ValueError("never")
        seen[message.queue_id].append(message.body)

    options = ConsumerOptions(suspend_ms=50, max_reconsume_times=3)
    consumer = PushConsumer(apaches.namesrv_address, f"g-{topic}", "first", ordered=True, options=options)
    async with listening(consumer, topic, listen):
        await until(lambda: len(seen[0]) + len(seen[1]) == 19)
        works = [work for work in consumer._queues.held.values() if work.queue.topic == topic]
        assert len(works) == 2 and all(work.locked_s is not None for work in works)
        rival = PushConsumer(apaches.namesrv_address, f"g-{topic}", "first", ordered=True, options=options)
        async with listening(rival, topic, listen):
            await until(lambda: len(rival.queues) > 0 and len(consumer.queues) > 0)
        await consumer._queues.renew_locks()
    assert seen == {0: [b"%d" % n for n in range(10)], 1: [b"%d" % n for n in range(10) if n != 5]}
    graves = PushConsumer(apaches.namesrv_address, f"graves-{topic}", "first")
    with Connection(apaches.namesrv_address) as namesrv:
        wait_until("the dead letters have a route", lambda: namesrv.ask(105, {"topic": f"%DLQ%g-{topic}"}).code == 0)
    async with listening(graves, f"%DLQ%g-{topic}", lambda message: dead.append(message.body)):
        await until(lambda: dead == [b"5"])


async def test_broadcasting_consumers(apaches: Cluster, topic: str, tmp_path: Path) -> None:
    got: dict[str, list[bytes]] = {"one": [], "two": []}

    def consumer(name: str) -> Any:
        options = ConsumerOptions(offsets_folder=tmp_path, instance_name=name)
        made = PushConsumer(apaches.namesrv_address, f"g-{topic}", "first", broadcast=True, options=options)
        return listening(made, topic, lambda message: got[name].append(message.body))

    async with consumer("one") as one, consumer("two"):
        await until(lambda: len(got["one"]) == len(got["two"]) == 20)
    table = fastjson.loads((tmp_path / one.instance.client_id / f"g-{topic}" / "offsets.json").read_bytes())
    assert sorted(table["offsetTable"].values()) == [10, 10]


async def test_pull_consumer_that_reads_on(apaches: Cluster, topic: str) -> None:
    queue = MessageQueue(BROKER_NAME, 1, topic)
    async with PullConsumer(apaches.namesrv_address, f"g-{topic}", start="first", auto_commit=False) as consumer:
        await consumer.assign([queue])
        consumer.seek(queue, 4)
        found: list[bytes] = []
        while len(found) < 6:
            found += [message.body for message in await consumer.poll(5.0)]
        assert found == [b"%d" % number for number in range(4, 10)]
        assert (await consumer.offsets_for_times({queue: 0}))[queue] == 0
        await consumer.commit()
        assert await consumer.committed(queue) == 10
    async with PullConsumer(apaches.namesrv_address, f"g2-{topic}", start="first") as consumer:
        consumer.subscribe(topic)
        count = 0
        async for _ in consumer:
            count += 1
            if count == 20:
                break
        assert len(consumer.assignment()) == 2
    async with PullConsumer(apaches.namesrv_address, f"g2-{topic}") as consumer:
        assert await consumer.committed(queue) == 10


async def test_loop_with_acks_and_a_retry(apaches: Cluster, topic: str) -> None:
    options = ConsumerOptions(auto_ack=False)
    consumer = PushConsumer(apaches.namesrv_address, f"g-{topic}", "first", concurrency=4, options=options)
    consumer.subscribe(topic)
    seen: list[tuple[int, bytes, int]] = []
    async with consumer, asyncio.timeout(60):
        async for message in consumer:
            if message.body == b"7" and not message.reconsume_times:
                await consumer.nack(message, delay_level=1)
                continue
            seen.append((message.queue_id, message.body, message.reconsume_times))
            await consumer.ack(message)
            if len(seen) == 20:
                break
    assert sorted(times for _, _, times in seen) == [0] * 18 + [1] * 2
    async with PullConsumer(apaches.namesrv_address, f"g-{topic}") as puller:
        assert [await puller.committed(queue) for queue in await puller.queues(topic)] == [10, 10]


async def test_pop_consumer(apaches: Cluster, topic: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = PopConsumer(apaches.namesrv_address, f"g-{topic}", "first", concurrency=4)
    seen: list[tuple[bytes, int]] = []

    def listen(message: MessageExt) -> None:
        if message.body == b"7" and not message.reconsume_times:
            raise ReconsumeLater(1)
        seen.append((message.body, message.reconsume_times))

    listening(consumer, topic, listen)
    if version == "4.9.4":
        with pytest.raises(RemotingError, match="does not serve pops"):
            await consumer.start()
        await consumer.close()
        return
    monkeypatch.setattr("pocketmq.client.consuming.pop_source.LATER_S", (1,))
    async with consumer:
        await until(lambda: len(seen) == 20)
    assert sorted(seen) == sorted((b"%d" % number, int(number == 7)) for number in range(10) for _ in range(2))
