"""Features of the producer's sends: delivery times, compression, batches of any size, latency fault tolerance."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from pocketmq import BatchError, Message, MessageExt, Producer, PullConsumer, RemotingError
from pocketmq.client.sending.message_sender import FAILED_MS, LatencyFaultTolerance
from pocketmq.client.sending.outgoing import split
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from tests.client.live_cluster import Cluster, until


async def stored(cluster: Cluster, topic: str) -> list[MessageExt]:
    """Return the messages in a topic."""
    async with PullConsumer(cluster.namesrv, "reader") as reader:
        return [
            message
            for queue in await reader.queues(topic)
            for message in (await reader.pull(queue, 0, count_max=32)).messages
        ]


async def test_message_of_topic_body_and_fields(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.send("T", b"body", tag="a", keys=["k1", "k2"], properties={"colour": "red"}, flag=3)
    (message,) = await stored(cluster, "T")
    assert (message.body, message.tags, message.keys, message.flag) == (b"body", "a", "k1 k2", 3)
    assert message.properties["colour"] == "red"


async def test_fields_beside_a_message_are_refused(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        with pytest.raises(TypeError, match="set them in Message"):
            await producer.send(Message("T", b""), tag="a")  # type: ignore[call-overload]


@pytest.mark.parametrize("by", ["seconds", "timedelta", "epoch seconds", "datetime"])
async def test_message_is_delivered_at_its_time(cluster: Cluster, by: str) -> None:
    began_s = time.time()
    async with Producer(cluster.namesrv) as producer:
        if by == "seconds":
            result = await producer.send("T", b"later", delay=0.7)
        elif by == "timedelta":
            result = await producer.send("T", b"later", delay=timedelta(milliseconds=700))
        elif by == "epoch seconds":
            result = await producer.send("T", b"later", deliver_at=began_s + 0.7)
        else:
            result = await producer.send("T", b"later", deliver_at=datetime.now(UTC) + timedelta(seconds=0.7))
        assert result.recall_handle is not None
        store = cluster.broker.services.store
        await until(lambda: any(store.max_offset("T", queue_id) for queue_id in range(4)))
    (message,) = await stored(cluster, "T")
    assert message.store_timestamp_ms / 1000 - began_s >= 0.69


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (Message("T", b"", delay=-1), "delay -1 is not 0 or more"),
        (Message("T", b"", delay=float("nan")), "delay nan"),
        (Message("T", b"", delay=1, deliver_at=2), "cannot be combined"),
        (Message("T", b"", delay=1, delay_level=2), "cannot be combined with delay_level"),
        (Message("T", b"", delay=1, properties={"TIMER_DELAY_MS": "5"}), "TIMER_ property"),
        (Message("T", b"", deliver_at=0), "deliver_at 0 is no time"),
    ],
    ids=str,
)
async def test_invalid_delivery_times_are_refused(cluster: Cluster, message: Message, told: str) -> None:
    async with Producer(cluster.namesrv) as producer:
        with pytest.raises(ValueError, match=told):
            await producer.send(message)


async def test_broker_without_timers_gets_no_message_that_it_would_deliver_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.send("T", b"known")
        invoke = producer.instance.invoke
        # Apache's 4.9.4 does not know GET_TIMER_CHECK_POINT; 99 stands for it here.
        monkeypatch.setattr(
            producer.instance, "invoke", lambda name, code, *more: invoke(name, 99 if code == 60 else code, *more)
        )
        with pytest.raises(RemotingError, match="use delay_level=1") as refusal:
            await producer.send("T", b"later", delay=60)
        assert refusal.value.code == ResponseCode.VERSION_NOT_SUPPORTED
        assert (await producer.send("T", b"level", delay_level=3)).status == "SEND_OK"


async def test_large_body_is_compressed_and_arrives_unchanged(cluster: Cluster) -> None:
    body = b"0123456789" * 1000
    async with Producer(cluster.namesrv) as producer:
        await producer.send("T", body)
        await producer.send("T", body[:4095])
    async with Producer(cluster.namesrv, compress_over=None) as producer:
        await producer.send("T", body)
    messages = await stored(cluster, "T")
    assert sorted(len(message.body) for message in messages) == [4095, 10_000, 10_000]
    assert sum(message.sys_flag & 1 for message in messages) == 1


async def test_body_that_compression_does_not_reduce_is_sent_as_it_is(cluster: Cluster) -> None:
    import os

    body = os.urandom(8192)
    async with Producer(cluster.namesrv) as producer:
        await producer.send("T", body)
    (message,) = await stored(cluster, "T")
    assert (message.body, message.sys_flag & 1) == (body, 0)


def test_list_is_split_by_topic_and_size() -> None:
    messages = [Message("ab"[number % 2], bytes(300_000)) for number in range(10)]
    batches = list(split(messages, 4 << 20))
    assert [(batch[0].topic, len(batch)) for batch in batches] == [("a", 3), ("a", 2), ("b", 3), ("b", 2)]
    assert [message for batch in batches for message in batch] == messages[::2] + messages[1::2]


def test_delayed_and_very_large_messages_are_sent_alone() -> None:
    plain, delayed, large = Message("a", b"x"), Message("a", b"x", delay=5), Message("a", bytes(2 << 20))
    assert [list(batch) for batch in split([plain, plain, delayed, plain, large], 4 << 20)] == [
        [plain, plain], [delayed], [plain], [large]
    ]  # fmt: skip


async def test_all_messages_of_a_long_list_are_stored(cluster: Cluster) -> None:
    messages = [Message("T", bytes(100_000), keys=str(number)) for number in range(25)]
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        results = await producer.send_all([*messages, Message("U", b"other")])
    assert [len(result.msg_id.split(",")) for result in results] == [10, 10, 5, 1]
    assert cluster.broker.services.store.max_offset("T", 0) == 25


async def test_failure_tells_which_messages_are_not_sent(cluster: Cluster) -> None:
    messages = [Message(topic, b"x") for topic in ("T", "T", "SCHEDULE_TOPIC_XXXX", "U")]
    async with Producer(cluster.namesrv) as producer:
        with pytest.raises(BatchError, match="2 messages are not sent") as failure:
            await producer.send_all(messages)
    assert len(failure.value.results) == 1
    assert failure.value.unsent == messages[2:]
    assert isinstance(failure.value.__cause__, RemotingError)


async def test_nothing_is_sent_if_one_message_is_invalid(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        with pytest.raises(ValueError, match="tags"):
            await producer.send_all([Message("T", b"x"), Message("T", b"x", tags="a||b")])
    assert cluster.broker.services.store.max_offset("T", 0) == 0


def test_slow_and_failed_brokers_are_avoided_for_a_while() -> None:
    now_s = [1000.0]
    tolerance = LatencyFaultTolerance(lambda: now_s[0])
    queues = [MessageQueue(name, 0, "T") for name in ("a", "b")]

    def usable() -> list[str]:
        return [queue.broker_name for queue in tolerance.usable(queues)]

    tolerance.sent("a", 549)
    assert usable() == ["a", "b"]
    tolerance.sent("a", 550)
    assert usable() == ["b"]
    now_s[0] += 30
    assert usable() == ["a", "b"]
    tolerance.sent("a", FAILED_MS)
    tolerance.sent("b", 3000)
    assert usable() == ["b"], "all are avoided, b for less time"
    now_s[0] += 180
    assert usable() == ["b"]
    tolerance.sent("a", 10)
    assert usable() == ["a", "b"]


async def test_producer_with_latency_fault_tolerance_sends(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv, send_latency_fault=True) as producer:
        assert (await producer.send("T", b"x")).status == "SEND_OK"
