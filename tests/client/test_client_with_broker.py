"""The client against a live name server and broker."""

import asyncio
from collections.abc import Callable

import pytest

from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.client.route import Routes
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from tests.client.live_cluster import Cluster, until


class Inbox:
    """A listener that keeps the messages it receives."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []

    def __call__(self, message: MessageExt) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def consumer(
    cluster: Cluster, group: str, topic: str, listener: Callable[[MessageExt], None], tags: str = "*"
) -> PushConsumer:
    made = PushConsumer(cluster.namesrv, group, start="first")
    made.subscribe(topic, listener, tags)
    return made


async def test_message_arrives_unchanged(cluster: Cluster) -> None:
    inbox = Inbox()
    async with Producer(cluster.namesrv, "p") as producer:
        sent = Message("T", "grüße".encode(), tags="a", keys="k1 k2", properties={"colour": "red"}, flag=5)
        result = await producer.send(sent)
        async with consumer(cluster, "g", "T", inbox):
            await until(lambda: bool(inbox.messages))
    (message,) = inbox.messages
    assert (message.body, message.tags, message.keys, message.flag) == (sent.body, "a", "k1 k2", 5)
    assert message.properties["colour"] == "red"
    assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)


async def test_tag_subscription_skips_other_messages_and_their_offsets(cluster: Cluster) -> None:
    inbox = Inbox()
    async with Producer(cluster.namesrv, "p") as producer:
        for tag in ("a", "b", "c", None, "AaBB", "BBAa"):  # the last two have the same hash code
            await producer.send(Message("T", str(tag).encode(), tags=tag), select=lambda queues: queues[0])
        async with consumer(cluster, "g", "T", inbox, "a || c || AaBB"):
            await until(lambda: len(inbox.messages) == 3)
        assert inbox.bodies == [b"a", b"c", b"AaBB"]
    async with PullConsumer(cluster.namesrv, "g") as puller:
        queue = (await puller.queues("T"))[0]
        assert await puller.committed(queue) == 6


async def test_batch_is_stored_and_consumed_in_order(cluster: Cluster) -> None:
    inbox = Inbox()
    async with Producer(cluster.namesrv, "p") as producer:
        result = await producer.send_batch([Message("T", b"%d" % i) for i in range(5)])
        assert len(result.msg_id.split(",")) == len(result.offset_msg_id.split(",")) == 5
        async with consumer(cluster, "g", "T", inbox):
            await until(lambda: len(inbox.messages) == 5)
    assert inbox.bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.msg_id for message in inbox.messages] == result.msg_id.split(",")


@pytest.mark.parametrize(
    "messages",
    [[], [Message("A", b""), Message("B", b"")], [Message("A", b"", delay_level=1)]],
    ids=["none", "two", "delayed"],
)
async def test_invalid_batches_are_refused(cluster: Cluster, messages: list[Message]) -> None:
    async with Producer(cluster.namesrv) as producer:
        with pytest.raises(ValueError, match="batch"):
            await producer.send_batch(messages)


async def test_delayed_message_does_not_arrive_early(cluster: Cluster) -> None:
    arrivals: list[float] = []
    loop = asyncio.get_running_loop()
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T")
        async with consumer(cluster, "g", "T", lambda message: arrivals.append(loop.time())):
            began = loop.time()
            await producer.send(Message("T", b"later", delay_level=1))
            await until(lambda: bool(arrivals))
    assert arrivals[0] - began >= 1.0


async def test_held_pull_is_answered_when_a_message_arrives(cluster: Cluster) -> None:
    inbox = Inbox()
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        async with consumer(cluster, "g", "T", inbox), asyncio.timeout(14):  # the broker holds a pull for 15 s
            for count in range(1, 4):
                await producer.send_oneway(Message("T", b"wake"))
                await until(lambda count=count: len(inbox.messages) == count)  # type: ignore[misc]


async def test_queues_are_reallocated_when_a_member_joins_or_leaves(cluster: Cluster) -> None:
    first, second = Inbox(), Inbox()
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 4)

        def share(of: PushConsumer) -> int:
            return sum(queue.topic == "T" for queue in of.queues)

        async with consumer(cluster, "g", "T", first) as one:
            assert share(one) == 4
            async with consumer(cluster, "g", "T", second) as two:
                await until(lambda: (share(one), share(two)) == (2, 2))
                for i in range(8):
                    await producer.send(Message("T", b"%d" % i))
                await until(lambda: len(first.messages) + len(second.messages) == 8)
                assert first.messages and second.messages
            await until(lambda: share(one) == 4)
            for i in range(8, 12):
                await producer.send(Message("T", b"%d" % i))
            await until(lambda: len(first.messages) + len(second.messages) == 12)
    assert sorted(first.bodies + second.bodies, key=int) == [b"%d" % i for i in range(12)]


async def test_group_continues_at_its_offset(cluster: Cluster) -> None:
    before, after = Inbox(), Inbox()
    async with Producer(cluster.namesrv) as producer:
        for i in range(10):
            await producer.send(Message("T", b"%d" % i))
        async with consumer(cluster, "g", "T", before):
            await until(lambda: len(before.messages) == 10)
        await producer.send(Message("T", b"new"))
        async with consumer(cluster, "g", "T", after):
            await until(lambda: bool(after.messages))
    assert after.bodies == [b"new"]


async def test_message_is_sent_back_when_the_listener_fails(cluster: Cluster) -> None:
    failed = asyncio.Event()

    def listener(message: MessageExt) -> None:
        failed.set()
        raise RuntimeError("not today")

    async with Producer(cluster.namesrv) as producer:
        result = await producer.send(Message("T", b"hard"))
        async with consumer(cluster, "g", "T", listener) as member:
            await failed.wait()
            await until(lambda: cluster.broker.services.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1)  # level 3: 10 s
            assert any(queue.topic == "%RETRY%g" for queue in member.queues)
    async with PullConsumer(cluster.namesrv, "g") as puller:
        await puller.queues("T")
        assert await puller.committed(result.queue) == 1


async def test_finish_stops_consumption(cluster: Cluster) -> None:
    inbox = Inbox()

    def listener(message: MessageExt) -> None:
        inbox(message)
        if len(inbox.messages) == 3:
            member.finish()

    async with Producer(cluster.namesrv) as producer:
        await producer.send_batch([Message("T", b"%d" % i) for i in range(10)])
        async with consumer(cluster, "g", "T", listener) as member:
            await until(lambda: len(inbox.messages) == 3)
        rest = Inbox()
        async with consumer(cluster, "g", "T", rest):
            await until(lambda: len(rest.messages) == 7)
    assert inbox.bodies + rest.bodies == [b"%d" % i for i in range(10)]


async def test_pull_consumer(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        for i in range(5):
            result = await producer.send(Message("T", b"%d" % i), select=lambda queues: queues[0])
    async with PullConsumer(cluster.namesrv, "audit") as puller:
        queue = next(queue for queue in await puller.queues("T") if queue == result.queue)
        assert (await puller.min_offset(queue), await puller.max_offset(queue)) == (0, 5)
        two = await puller.pull(queue, 0, count_max=2)
        assert ([m.body for m in two.messages], two.next_begin_offset, two.max_offset) == ([b"0", b"1"], 2, 5)
        beyond = await puller.pull(queue, 99)
        assert (beyond.is_moved, beyond.next_begin_offset, beyond.messages) == (True, 5, [])
        await puller.commit(queue, 2)
        assert await puller.committed(queue) == 2


async def test_unknown_topic_is_reported(cluster: Cluster) -> None:
    with pytest.raises(RemotingError) as refusal:
        await consumer(cluster, "g", "Nowhere", Inbox()).start()
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST


async def test_second_name_server_is_used_if_the_first_is_down(cluster: Cluster, unused_tcp_port: int) -> None:
    async with Producer(f"127.0.0.1:{unused_tcp_port};{cluster.namesrv}") as producer:
        assert (await producer.send(Message("T", b"x"))).status == "SEND_OK"


async def test_error_without_a_name_server_names_the_address(unused_tcp_port: int) -> None:
    async with Producer(f"127.0.0.1:{unused_tcp_port}") as producer:
        with pytest.raises(ConnectionError, match=f"127.0.0.1:{unused_tcp_port}"):
            await producer.send(Message("T", b"x"))


def test_an_empty_list_of_name_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Routes(None, [])  # type: ignore[arg-type]
