"""Spans of OpenTelemetry around sends and consumptions."""

from collections.abc import Iterator

import pytest

from pocketmq import ConsumerOptions, Message, MessageExt, Producer, PushConsumer
from tests.client.live_cluster import Cluster, until

trace = pytest.importorskip("opentelemetry.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
sdk = pytest.importorskip("opentelemetry.sdk.trace")

EXPORTER = in_memory.InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    made = sdk.TracerProvider()
    made.add_span_processor(export.SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)
    yield
    made.shutdown()


@pytest.fixture
def spans() -> Iterator[list[object]]:
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


async def test_a_consumption_is_a_child_of_its_send(cluster: Cluster, spans) -> None:  # type: ignore[no-untyped-def]
    current: list[str] = []

    def listener(message: MessageExt) -> None:
        current.append(trace.get_current_span().name)
        if message.body == b"bad":
            raise ValueError("cannot be consumed")

    async with Producer(cluster.namesrv, "p") as producer:
        await producer.create_topic("T", 1)
        with trace.get_tracer("shop").start_as_current_span("order"):
            given = Message("T", b"good", tags="a", keys="k1 k2")
            result = await producer.send(given)
        await producer.send_batch([Message("T", b"one"), Message("T", b"two")])
        await producer.send("T", b"bad")
    assert given.properties == {}, "the message of the caller stays as it is"
    consumer = PushConsumer(cluster.namesrv, "g", "first", options=ConsumerOptions(max_reconsume_times=0))
    consumer.subscribe("T", listener)
    async with consumer:
        await until(lambda: len(current) == 4)
    assert current == ["process T"] * 4
    by_name = {name: [span for span in spans.get_finished_spans() if span.name == name] for name in ("send T", "process T")}
    (order,) = [span for span in spans.get_finished_spans() if span.name == "order"]
    send, batch, _ = by_name["send T"]
    assert send.parent.span_id == order.context.span_id and send.kind is trace.SpanKind.PRODUCER
    assert send.attributes["messaging.message.id"] == result.msg_id
    assert send.attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
    assert batch.attributes["messaging.batch.message_count"] == 2
    good, one, two, bad = by_name["process T"]
    assert good.parent.span_id == send.context.span_id and good.context.trace_id == order.context.trace_id
    assert {one.parent.span_id, two.parent.span_id} == {batch.context.span_id}
    assert good.status.status_code is trace.StatusCode.UNSET
    assert bad.status.status_code is trace.StatusCode.ERROR and bad.events[0].name == "exception"


async def test_the_body_of_a_loop_runs_within_the_span_of_its_message(cluster: Cluster, spans) -> None:  # type: ignore[no-untyped-def]
    async with Producer(cluster.namesrv, "p") as producer:
        await producer.create_topic("T", 1)
        for body in (b"1", b"2"):
            await producer.send("T", body)
    consumer = PushConsumer(cluster.namesrv, "g", "first")
    consumer.subscribe("T")
    within = []
    async with consumer:
        async for _ in consumer:
            within.append(trace.get_current_span().get_span_context().span_id)
            if len(within) == 2:
                break
    ended = [span.context.span_id for span in spans.get_finished_spans() if span.name == "process T"]
    assert within == ended
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_failed_send_is_an_error(cluster: Cluster, spans) -> None:  # type: ignore[no-untyped-def]
    async with Producer(cluster.namesrv, "p") as producer:
        with pytest.raises(ValueError, match="topic"):
            await producer.send("not a topic", b"m")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
