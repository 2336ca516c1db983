"""Message traces of consumers, which `mqadmin queryMsgTraceById` shows."""

import pytest

from pocketmq import ConsumerOptions, MessageExt, PopConsumer, Producer, PushConsumer
from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.message_tracks import trace_of
from tests.client.live_cluster import Cluster, until


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_a_consumer_traces_each_consumption(cluster: Cluster, kind: type[PushConsumer] | type[PopConsumer]) -> None:
    failed: list[str] = []
    done: list[str] = []

    def listener(message: MessageExt) -> None:
        if not failed:
            failed.append(message.msg_id)
            raise ValueError
        done.append(message.msg_id)

    async with Producer(cluster.namesrv, "p", trace=True) as producer:
        await producer.create_topic("T", 1)
        result = await producer.send("T", b"m")
    consumer = kind(cluster.namesrv, "g", "first", options=ConsumerOptions(trace=True))
    consumer.subscribe("T", listener)
    async with consumer:
        await until(lambda: bool(failed))
        if kind is PushConsumer:
            await until(lambda: bool(done))
    async with AdminClient([cluster.namesrv]) as admin:
        events = await trace_of(admin, result.msg_id)
    found = [(event.kind, event.group, event.succeeded) for event in events]
    assert found[:2] == [("Pub", "p", True), ("SubAfter", "g", False)]
    assert found[2:] == [("SubAfter", "g", True)] * len(done)
