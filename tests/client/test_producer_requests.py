"""Request-reply between a producer and a consumer, and message traces."""

import asyncio

import pytest

from pocketmq import Message, MessageExt, Producer, PullConsumer, PushConsumer, RemotingError, RequestTimeout, reply
from pocketmq.admin.api.message_tracks import trace_events
from pocketmq.admin.api.stored_messages import StoredMessage, stored_messages
from pocketmq.client import trace
from pocketmq.remoting.channels import ChannelClosed
from tests.client.live_cluster import Cluster, until


async def test_consumer_replies_to_a_request(cluster: Cluster) -> None:
    replies = []
    async with Producer(cluster.namesrv, "asking") as producer:
        await producer.create_topic("Prices")
        consumer = PushConsumer(cluster.namesrv, "prices", start="first")

        async def answer(message: MessageExt) -> None:
            replies.append(await reply(consumer, message, b"price of " + message.body))

        consumer.subscribe("Prices", answer)
        async with consumer:
            answers = await asyncio.gather(*(producer.request(Message("Prices", b"%d" % i), 10.0) for i in range(5)))
            await until(lambda: len(replies) == 5)
    assert [answer.body for answer in answers] == [b"price of %d" % i for i in range(5)]
    assert {result.status for result in replies} == {"SEND_OK"}
    assert not producer.instance.replies


async def test_request_without_a_reply_times_out(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        with pytest.raises(RequestTimeout, match="no reply to .* of topic T within 0.2 s"):
            await producer.request(Message("T", b"anybody?"), 0.2)
        assert not producer.instance.replies


async def test_late_reply_is_refused_when_the_requester_is_gone(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv, "asking") as producer:
        with pytest.raises(RequestTimeout):
            await producer.request(Message("T", b"anybody?"), 0.2)
    async with PullConsumer(cluster.namesrv, "g") as reader:
        pulled = [m for queue in await reader.queues("T") for m in (await reader.pull(queue, 0)).messages]
        with pytest.raises(RemotingError, match="push reply message fail"):
            await reply(reader, pulled[0], b"too late")


async def test_reply_to_a_plain_message_is_refused(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer, PullConsumer(cluster.namesrv, "g") as reader:
        queue = (await producer.send("T", b"x")).queue
        (message,) = (await reader.pull((await reader.queues("T"))[queue.queue_id], 0)).messages
        with pytest.raises(ValueError, match="is no request"):
            await reply(producer, message, b"x")


async def test_close_ends_waiting_requests(cluster: Cluster) -> None:
    producer = Producer(cluster.namesrv)
    producer.start()
    waiting = asyncio.create_task(producer.request(Message("T", b"x"), 30.0))
    await until(lambda: bool(producer.instance.replies) and "T" in producer.instance.routes.by_topic)
    await producer.close()
    with pytest.raises((ChannelClosed, RuntimeError)):
        await waiting


async def traces(cluster: Cluster) -> list[StoredMessage]:
    async with PullConsumer(cluster.namesrv, "reader") as reader:
        queues = await reader.queues(trace.TRACE_TOPIC)
        messages = [message for queue in queues for message in (await reader.pull(queue, 0)).messages]
    store = cluster.broker.services.store
    records = [store.message_at(message.physical_offset) or b"" for message in messages]
    return [found for record in records for found in stored_messages(record)]


async def test_sends_are_traced_together(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv, "traced", trace=True) as producer:
        first = await producer.send("T", b"body", tag="a", keys="k1")
        batch = await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        delayed = await producer.send("T", b"later", delay_level=3)
    (stored,) = await traces(cluster)  # close sends what waits
    written = stored.message
    ids = [first.msg_id, *batch.msg_id.split(","), delayed.msg_id]
    assert (written.keys or "").split() == [first.msg_id, "k1", *ids[1:]]
    for msg_id in ids:
        (event,) = trace_events(msg_id, stored)
        assert (event.kind, event.group, event.succeeded) == ("Pub", "traced", True)
    fields = [event.split("\x01") for event in written.body.decode().split("\x02") if event]
    assert [row[11] for row in fields] == ["0", "0", "0", "3"]
    assert fields[0][4:8] == ["T", first.msg_id, "a", "k1"]
    assert (fields[0][8], fields[0][9]) == (f"127.0.0.1:{cluster.broker.port}", "4")


async def test_trace_records_of_a_consumption(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer, PullConsumer(cluster.namesrv, "g") as reader:
        sent = await producer.send("T", b"x", keys="k")
        await reader.queues("T")
        (message,) = (await reader.pull(sent.queue, 0)).messages
    before = trace.sub_before("g", message, "r1", 1000)
    assert before.text == f"SubBefore\x011000\x01DefaultRegion\x01g\x01r1\x01{sent.msg_id}\x010\x01k\x02"
    after = trace.sub_after("g", message, "r1", 1100, 100, succeeded=False, code=4)
    assert after.text == f"SubAfter\x01r1\x01{sent.msg_id}\x01100\x01false\x01k\x014\x011100\x01g\x02"
    assert before.keys == after.keys == (sent.msg_id, "k")
