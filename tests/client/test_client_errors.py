"""Errors of the client have one base class, and those of connections can also be caught as Python's own."""

import pytest

from pocketmq import BrokerUnreachable, Message, MQError, NameServerUnreachable, Producer, RemotingError, RequestTimeout
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.codes import RequestCode
from tests.client.live_cluster import Cluster


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
