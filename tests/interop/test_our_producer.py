"""Our Python producer at Apache's servers of 4.9.4 and 5.5.0: transactions, request-reply, delays, compression, trace."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pocketmq import Message, MessageExt, Producer, PullConsumer, PushConsumer, RemotingError, TransactionState, reply
from tests.interop.conftest import need_java
from tests.interop.mqadmin_matrix.columns import OurTool
from tests.interop.servers import Apache, Cluster
from tests.interop.test_replication import wait_until
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S
from tests.support.amount import IS_LONG

GET_BROKER_CLUSTER_INFO = 106


@pytest.fixture(scope="module", params=["4.9.4", "5.5.0"] if IS_LONG else ["5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def apaches(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_java()
    running = Cluster(
        tmp_path_factory.mktemp(f"apache-{version}"), Apache(version), traceTopicEnable="true",
        transactionCheckInterval=1000, transactionTimeOut=5000,
    )  # fmt: skip
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
    name = request.node.originalname.replace("test_", "")
    with Connection(apaches.broker_address) as connection:
        connection.create_topic(name, 2)
    return name


async def messages_of(namesrv: str, topic: str) -> list[MessageExt]:
    async with PullConsumer(namesrv, "reader") as reader:
        return [m for queue in await reader.queues(topic) for m in (await reader.pull(queue, 0, tags="*")).messages]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.1)


async def test_transactions(apaches: Cluster, topic: str) -> None:
    asked: list[str] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.body.decode())
        return TransactionState.ROLLBACK if message.body == b"rolled back" else TransactionState.COMMIT

    async with Producer(apaches.namesrv_address, "payments", check=check) as producer:
        async with producer.transaction(Message(topic, b"committed")) as committed:
            pass
        with pytest.raises(KeyError):
            async with producer.transaction(Message(topic, b"rolled back")) as rolled_back:
                raise KeyError
        async with producer.transaction(Message(topic, b"open")) as left_open:
            left_open.leave_open()
        assert committed.is_confirmed and rolled_back.is_confirmed

        async def is_delivered() -> bool:
            found = {message.body for message in await messages_of(apaches.namesrv_address, topic)}
            return found == {b"committed", b"open"}

        await eventually(is_delivered)
    assert "open" in asked  # the others, too, if their ends took longer than the time-out


async def test_request_and_reply(apaches: Cluster, topic: str) -> None:
    consumer = PushConsumer(apaches.namesrv_address, "prices", start="first")

    async def answer(message: MessageExt) -> None:
        await reply(consumer, message, b"price of " + message.body)

    consumer.subscribe(topic, answer)
    async with consumer, Producer(apaches.namesrv_address, "asking") as producer:
        answers = await asyncio.gather(*(producer.request(Message(topic, b"%d" % i), PATIENCE_S) for i in range(3)))
    assert [one.body for one in answers] == [b"price of 0", b"price of 1", b"price of 2"]


async def test_delivery_time(apaches: Cluster, topic: str, version: str) -> None:
    async with Producer(apaches.namesrv_address, "delays") as producer:
        if version == "4.9.4":
            with pytest.raises(RemotingError, match="knows delay levels only"):
                await producer.send(topic, b"later", delay=2)
            assert await messages_of(apaches.namesrv_address, topic) == []
            await producer.send(topic, b"later", delay_level=1)
        else:
            await producer.send(topic, b"later", deliver_at=time.time() + 2)

        async def is_delivered() -> bool:
            return bool(await messages_of(apaches.namesrv_address, topic))

        await eventually(is_delivered)


async def test_long_list_and_compression(apaches: Cluster, topic: str) -> None:
    body = b"0123456789" * 1000
    async with Producer(apaches.namesrv_address, "lists", send_latency_fault=True) as producer:
        await producer.send(topic, body)
        results = await producer.send_all([Message(topic, bytes(100_000)) for _ in range(25)])
        assert sum(len(result.offset_msg_id.split(",")) for result in results) == 25
    async with PullConsumer(apaches.namesrv_address, "reader") as reader:
        queues = await reader.queues(topic)
        assert sum([await reader.max_offset(queue) for queue in queues]) == 26
    found = await messages_of(apaches.namesrv_address, topic)
    assert [message.body for message in found if message.sys_flag & 1] == [body]


async def test_trace(apaches: Cluster, topic: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    async with Producer(apaches.namesrv_address, "traced", trace=True) as producer:
        sent = await producer.send(topic, b"body", keys="k")
    tool = OurTool(tmp_path_factory.mktemp("tool"))

    def printed() -> str:
        return tool.run(apaches.namesrv_address, ["queryMsgTraceById", "-i", sent.msg_id], signed=False)[1]

    async def is_found() -> bool:
        return "success" in await asyncio.to_thread(printed)

    await eventually(is_found)
