"""Errors of the client have one base class, and those of connections can also be caught as Python's own."""

import pytest

from pocketmq import (
    BrokerUnreachable,
    Message,
    MQError,
    NameServerUnreachable,
    PopConsumer,
    Producer,
    PushConsumer,
    RemotingError,
    RequestTimeout,
)
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime.refusal_log import RefusalLog
from tests.client.live_cluster import Cluster, until


def test_every_error_is_an_mq_error() -> None:
    for kind in (BrokerUnreachable, ChannelClosed, NameServerUnreachable, RemotingError, RequestTimeout):
        assert issubclass(kind, MQError)
    assert issubclass(BrokerUnreachable, ConnectionError) and issubclass(RequestTimeout, TimeoutError)


async def test_absent_name_server(unused_tcp_port: int) -> None:
    async with Producer(f"127.0.0.1:{unused_tcp_port}") as producer:
        with pytest.raises(MQError, match="no name server answers") as failure:
            await producer.send(Message("T", b"x"))
    assert isinstance(failure.value, NameServerUnreachable)


async def test_stopped_broker(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T")
        await producer.send(Message("T", b"x"))
        await cluster.broker.stop()
        with pytest.raises(MQError):
            await producer.send(Message("T", b"x"))


async def test_answer_that_does_not_come_in_time(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T")
        (broker_name,) = producer.instance.routes.masters()
        with pytest.raises(RequestTimeout, match="no answer from .* to code 28 within 0 s"):
            await producer.instance.invoke(broker_name, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=0.0)


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_consumer_logs_failures_once_for_a_broker_that_is_away(
    cluster: Cluster,
    kind: type[PushConsumer | PopConsumer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[str] = []
    refused = RefusalLog.refused

    def counted(self: RefusalLog, cause: str, reason: str) -> None:
        attempts.append(reason)
        refused(self, cause, reason)

    monkeypatch.setattr(RefusalLog, "refused", counted)
    for module in ("consuming.held_queues", "pop_consumer"):
        monkeypatch.setattr(f"pocketmq.client.{module}.PAUSE_S", 0.01)
    consumer = kind(cluster.namesrv, "G", "first")
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 4)
    consumer.subscribe("T", lambda message: None)
    async with consumer:
        await cluster.broker.stop()
        attempts.clear()
        await until(lambda: len(attempts) > 20)
    kinds = "consuming from", "popping from", "could not be stored"
    found = [kind for line in caplog.messages for kind in kinds if kind in line]
    assert found
    assert len(found) == len(set(found))
