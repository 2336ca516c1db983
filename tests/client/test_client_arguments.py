"""Validation of arguments: the error names the argument, and other sends are not affected."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.client.client_instance import BrokerUnreachable
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.bodies import MessageQueue, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.route import RegisterBrokerRequestHeader
from tests.client.live_cluster import Cluster, until
from tests.patience import PATIENCE_S

WRONG: list[tuple[str, Message, type[Exception], str]] = [
    ("a body of text", Message("T", "text"), TypeError, r"body must be bytes, not str.*encode\(\)"),  # type: ignore[arg-type]
    ("no body", Message("T", None), TypeError, "body must be bytes.*NoneType"),  # type: ignore[arg-type]
    ("a body of numbers", Message("T", [1, 2]), TypeError, "body must be bytes.*list"),  # type: ignore[arg-type]
    ("a body above 4 MiB", Message("T", bytes(4 * 1024 * 1024 + 1)), ValueError, "body has 4194305 bytes.*4194304"),
    ("a topic with a slash", Message("a/b", b""), ValueError, "topic 'a/b'"),
    ("an empty topic", Message("", b""), ValueError, "topic is empty"),
    ("a topic too long", Message("T" * 128, b""), ValueError, "128 characters, the maximum is 127"),
    ("a topic of bytes", Message(b"T", b""), TypeError, "topic must be str, not bytes"),  # type: ignore[arg-type]
    ("a level below 0", Message("T", b"", delay_level=-1), ValueError, "delay_level -1"),
    ("a level above 18", Message("T", b"", delay_level=19), ValueError, "delay_level 19.*TIMER_DELAY_MS"),
    ("a level of text", Message("T", b"", delay_level="3"), TypeError, "delay_level must be int"),  # type: ignore[arg-type]
    ("a key with a space", Message("T", b"", keys=["order 1"]), ValueError, "key 'order 1'.*space"),
    ("an empty key", Message("T", b"", keys=["a", ""]), ValueError, "key ''"),
    ("a key of a number", Message("T", b"", keys=[1]), TypeError, "a key must be str, not int"),  # type: ignore[list-item]
    ("two tags", Message("T", b"", tags="a || b"), ValueError, "tags 'a .. b'.*one tag"),
    ("a tag with a separator", Message("T", b"", tags="a\x01b"), ValueError, "tags"),
    ("a tag of half a character", Message("T", b"", tags="\ud800"), ValueError, "tags.*surrogate"),
    ("a value with a separator", Message("T", b"", properties={"colour": "a\x02b"}), ValueError, "property 'colour'"),
    ("a name with a separator", Message("T", b"", properties={"a\x01b": "c"}), ValueError, "property name"),
    ("a value with a zero byte", Message("T", b"", properties={"colour": "\0"}), ValueError, "property 'colour'"),
    ("a value of a number", Message("T", b"", properties={"n": 1}), TypeError, "property 'n' must be str"),  # type: ignore[dict-item]
    ("an empty value", Message("T", b"", properties={"n": ""}), ValueError, "property 'n' has an empty"),
    ("a reserved name", Message("T", b"", properties={"REAL_TOPIC": "x"}), ValueError, "property REAL_TOPIC is reserved"),
    ("a name with a field", Message("T", b"", properties={"TAGS": "x"}), ValueError, "property TAGS.*use tags="),
    ("properties too large", Message("T", b"", properties={"n": "x" * 40_000}), ValueError, "properties have 40.*32767"),
    ("a flag of 33 bits", Message("T", b"", flag=1 << 32), ValueError, "flag 4294967296"),
]


@pytest.mark.parametrize(("message", "kind", "told"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
async def test_invalid_message_is_refused_before_sending(
    cluster: Cluster, message: Message, kind: type[Exception], told: str
) -> None:
    async with Producer(cluster.namesrv) as producer, asyncio.timeout(PATIENCE_S):
        ways: list[Callable[[], Awaitable[Any]]] = [lambda: producer.send(message), lambda: producer.send_oneway(message)]
        if "delay" not in told:
            ways.append(lambda: producer.send_batch([message]))
        for way in ways:
            with pytest.raises(kind, match=told):
                await way()


async def test_invalid_message_does_not_affect_other_sends(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        await producer.send(Message("T", b"first"))
        bad = Message("T", "text")  # type: ignore[arg-type]
        sends = [producer.send(bad if i == 10 else Message("T", b"%d" % i)) for i in range(21)]
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*sends, return_exceptions=True)
        assert [i for i, result in enumerate(results) if isinstance(result, BaseException)] == [10]
        assert cluster.broker.services.store.max_offset("T", 0) == 21


@pytest.mark.parametrize(
    "body", ["text", ["a", "b"], bytearray(b"x"), memoryview(b"abcd").cast("I")], ids=lambda value: type(value).__name__
)
async def test_request_with_invalid_body_does_not_affect_others(cluster: Cluster, body: Any) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"first"))
        (address,) = producer.instance.routes.heartbeat_addresses(with_slaves=False)
        channel = await producer.instance.remoting.channel(address)
        good = producer.send(Message("T", b"good"))
        waiting = asyncio.ensure_future(good)
        with pytest.raises(TypeError, match="body of a request must be bytes"):
            channel.invoke(RequestCode.HEART_BEAT, None, body)
        async with asyncio.timeout(PATIENCE_S):
            assert (await waiting).status == "SEND_OK"


async def test_request_above_the_frame_limit_is_refused_by_the_client(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv, message_size_max=1 << 30, compress_over=None) as producer:
        good = asyncio.ensure_future(producer.send(Message("T", b"good")))
        with pytest.raises(ValueError, match="the limit of a frame is 268435456"):
            await producer.send(Message("T", bytes(257 << 20)))
        async with asyncio.timeout(PATIENCE_S):
            assert (await good).status == "SEND_OK"


@pytest.mark.parametrize(
    "body", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"xabcx")[1:4]], ids=["array", "view", "part"]
)
async def test_bytes_like_bodies_are_sent_unchanged(cluster: Cluster, body: Any) -> None:
    got: list[bytes] = []
    async with Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", body, keys=["k1", "k2"]))
    async with consumer_of(cluster, lambda message: got.append(message.body)):
        await until(lambda: got == [b"abc"])


def consumer_of(cluster: Cluster, listener: Callable[[MessageExt], None]) -> PushConsumer:
    consumer = PushConsumer(cluster.namesrv, "g", "first")
    consumer.subscribe("T", listener)
    return consumer


async def test_list_of_keys_is_sent_as_one_property(cluster: Cluster) -> None:
    got: list[str | None] = []
    async with Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"", keys=["k1", "k2"]))
    async with consumer_of(cluster, lambda message: got.append(message.keys)):
        await until(lambda: got == ["k1 k2"])


async def test_producer_refuses_use_before_start_and_after_close(cluster: Cluster) -> None:
    producer = Producer(cluster.namesrv)
    message = Message("T", b"")
    uses: list[Callable[[], Awaitable[Any]]] = [
        lambda: producer.send(message),
        lambda: producer.send_batch([message]),
        lambda: producer.send_oneway(message),
        lambda: producer.create_topic("T"),
        lambda: producer.recall("T", "x"),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"producer is not started: call its start\(\)"):
            await use()
    async with producer:
        with pytest.raises(RuntimeError, match="started already"):
            producer.start()
        await producer.send(message)
    for use in uses:
        with pytest.raises(RuntimeError, match="producer is closed: create a new one"):
            await use()
    with pytest.raises(RuntimeError, match="closed"):
        producer.start()
    await producer.close()


async def test_consumer_must_subscribe_before_start(cluster: Cluster) -> None:
    consumer = PushConsumer(cluster.namesrv, "g", "first")
    with pytest.raises(RuntimeError, match="no topic: call subscribe"):
        await consumer.start()
    for wrong, told in (((5, print), "topic must be str"), (("T", None), "listener must be callable")):
        with pytest.raises(TypeError, match=told):
            consumer.subscribe(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tags must be str"):
        consumer.subscribe("T", print, None)  # type: ignore[arg-type]
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T")
    consumer.subscribe("T", lambda message: None)
    async with consumer:
        with pytest.raises(RuntimeError, match=r"started already: call subscribe\(\) before start\(\)"):
            consumer.subscribe("U", lambda message: None)
        with pytest.raises(RuntimeError, match=r"started already: start\(\) can be called once"):
            await consumer.start()
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.start()
    await consumer.close()


async def test_pull_consumer_refuses_use_after_close(cluster: Cluster) -> None:
    async with PullConsumer(cluster.namesrv, "g") as consumer:
        pass
    queue = MessageQueue("broker-a", 0, "T")
    uses = (lambda: consumer.queues("T"), lambda: consumer.pull(queue, 0), lambda: consumer.commit(queue, 0))
    for use in uses:
        with pytest.raises(RuntimeError, match="consumer is closed"):
            await use()


@pytest.mark.parametrize("make", [Producer, PushConsumer, PullConsumer])
async def test_invalid_group_or_name_server_is_reported(make: Callable[..., Any]) -> None:
    for group in ("a b", "", "a/b"):
        with pytest.raises(ValueError, match="group"):
            make("127.0.0.1:9876", group)
    for address in ("127.0.0.1", "127.0.0.1:port", ":9876", "h:70000"):
        with pytest.raises(ValueError, match=f"name server address '{address}' is not HOST:PORT"):
            make(address, "g")


async def test_error_for_an_unreachable_broker_names_its_route(unused_tcp_port: int) -> None:
    namesrv = NameServer(NamesrvConfig(listen_port=0, kv_config_path=""))
    await namesrv.start()
    server, broker = f"127.0.0.1:{namesrv.port}", f"127.0.0.1:{unused_tcp_port}"
    try:
        async with Producer(server) as producer:
            await producer.instance.remoting.call(server, RequestCode.REGISTER_BROKER, *registration(broker))
            with pytest.raises(BrokerUnreachable) as failure:
                await producer.send(Message("T", b"x"))
            consumer = PushConsumer(server, "g")
            consumer.subscribe("T", lambda message: None)
            with pytest.raises(BrokerUnreachable, match=broker):
                await consumer.start()
            await consumer.close()
    finally:
        await namesrv.stop()
    for named in ("broker 'broker-far'", broker, f"name server {server}", "--advertise", "brokerIP1"):
        assert named in str(failure.value)


def registration(broker: str) -> tuple[RegisterBrokerRequestHeader, bytes]:
    """Return the registration request of a broker with topic T at an address."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-far", broker_addr=broker, cluster_name="c", ha_server_addr="", broker_id=0
    )
    topic = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
    return header, encode_body({"topicConfigSerializeWrapper": {"topicConfigTable": {"T": topic}}, "filterServerList": []})
