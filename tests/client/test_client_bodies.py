"""Bodies that cannot be decompressed affect neither other messages of the same pull nor the process."""

import importlib
import zlib

import pytest

from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import DECOMPRESSED_SIZE_MAX
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.client.live_cluster import Cluster, until

COMPRESSED, LZ4, ZSTD, UNKNOWN = 1, 1 | 1 << 8, 1 | 2 << 8, 1 | 5 << 8
BOMB = bytes(DECOMPRESSED_SIZE_MAX + 1)


async def store(producer: Producer, body: bytes, sys_flag: int) -> None:
    """Send a body with arbitrary flags, as other clients may."""
    (address,) = producer.instance.routes.heartbeat_addresses(with_slaves=False)
    header = SendMessageRequestHeaderV2("p", "T", "TBW102", 1, 0, sys_flag, 0, 0, "UNIQ_KEY\x01id\x02", 0)
    await producer.instance.remoting.call(address, RequestCode.SEND_MESSAGE_V2, header, body)


async def test_message_with_bad_body_is_sent_back_and_others_are_consumed(cluster: Cluster) -> None:
    got: list[bytes] = []
    bad = [
        (zlib.compress(BOMB), COMPRESSED),
        (b"noise", COMPRESSED),
        (zlib.compress(b"whole")[:-6], COMPRESSED),
        (b"", UNKNOWN),
    ]
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        await producer.instance.routes.refresh("T")
        await store(producer, b"first", 0)
        for body, sys_flag in bad:
            await store(producer, body, sys_flag)
        await store(producer, zlib.compress(b"packed"), COMPRESSED)
        await store(producer, b"last", 0)
        consumer = PushConsumer(cluster.namesrv, "g", "first")
        consumer.subscribe("T", lambda message: got.append(message.body))
        async with consumer:
            await until(lambda: got == [b"first", b"packed", b"last"])
            await until(lambda: cluster.broker.services.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == len(bad))


@pytest.mark.parametrize(("library", "sys_flag"), [("zlib", COMPRESSED), ("lz4.frame", LZ4), ("zstandard", ZSTD)])
async def test_body_above_the_decompressed_limit_stays_compressed(cluster: Cluster, library: str, sys_flag: int) -> None:
    pytest.importorskip(library)
    bomb = importlib.import_module(library).compress(BOMB)
    async with Producer(cluster.namesrv) as producer, PullConsumer(cluster.namesrv, "g") as consumer:
        await producer.create_topic("T", 1)
        await producer.instance.routes.refresh("T")
        await store(producer, bomb, sys_flag)
        await store(producer, importlib.import_module(library).compress(b"plain"), sys_flag)
        (queue,) = await consumer.queues("T")
        first, second = [(await consumer.pull(queue, offset)).messages[0] for offset in (0, 1)]
        assert first.body == bomb and f"exceeds {DECOMPRESSED_SIZE_MAX} bytes" in str(first.problem)
        assert (second.body, second.problem) == (b"plain", None)
