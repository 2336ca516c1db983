"""Answers about new topics while the name server is slow."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, encode_body
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Route, routes
from pocketmq.remoting.headers.route import BrokerIdentityRequestHeader, RegisterBrokerRequestHeader
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from pocketmq.remoting.server import RemotingServer
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.patience import PATIENCE_S


class SlowNameServer:
    """A name server that answers registrations only once `is_slow` is False again."""

    def __init__(self) -> None:
        self.address = ""
        self.topics: set[str] = set()
        self.is_slow = False
        self._unanswered: list[tuple[Deferred, set[str]]] = []
        self.on_register: Any = self.register

    def register(self, _: Any, request: Request[RegisterBrokerRequestHeader]) -> Response | Deferred:
        document = request.body.decode()
        topics = {name for name in ("New", "New2", "%RETRY%g", "%RETRY%h", "%DLQ%g") if f'"{name}"' in document}
        if not self.is_slow:
            self.topics |= topics
            return Response()
        deferred = Deferred()
        self._unanswered.append((deferred, topics))
        return deferred

    @property
    def unanswered_count(self) -> int:
        return len(self._unanswered)

    def answer(self) -> None:
        """Answer the waiting registrations, and further ones at once."""
        self.is_slow = False
        for deferred, topics in self._unanswered:
            self.topics |= topics
            deferred.complete(Response())
        self._unanswered.clear()


@contextlib.asynccontextmanager
async def slow_name_server() -> AsyncIterator[SlowNameServer]:
    loop, slow = asyncio.get_running_loop(), SlowNameServer()
    table = routes(
        Route(
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequestHeader,
            lambda services, request: slow.on_register(services, request),
        ),
        Route(RequestCode.UNREGISTER_BROKER, BrokerIdentityRequestHeader, lambda services, request: Response()),
    )
    server = RemotingServer(None, table, Channels(Turn(loop), Timers(SystemClock(), loop), is_server=True))
    slow.address = f"127.0.0.1:{await server.listen('127.0.0.1', 0)}"
    yield slow
    slow.answer()
    await server.close()


@contextlib.asynccontextmanager
async def slowly_registered(**config: Any) -> AsyncIterator[tuple[SlowNameServer, Broker, RemotingClient]]:
    """Run a name server that is slow from now on, a broker with topic `Old`, and a client."""
    async with slow_name_server() as ns, connected() as client, running_broker(ns.address, **config) as broker:
        await create_topic(client, broker, "Old")
        ns.is_slow = True
        yield ns, broker, client
        ns.answer()


def sending(client: RemotingClient, broker: Broker, topic: str, **fields: Any) -> "asyncio.Future[Any]":
    header = SendMessageRequestHeaderV2("pg", topic, "TBW102", 4, 0, 0, 0, 0, None, **fields)
    body = b"x" if not fields.get("batch") else struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x\0\0"
    return asyncio.ensure_future(ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, body))


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_only_sends_of_a_new_topic_wait_for_its_route(flush_disk_type: str) -> None:
    async with slowly_registered(store={"flush_disk_type": flush_disk_type}) as (ns, broker, client):
        waiting = [sending(client, broker, "New")]
        await until(lambda: ns.unanswered_count == 1)
        waiting += [sending(client, broker, "New"), sending(client, broker, "New", batch=True)]
        assert (await sending(client, broker, "Old")).code == ResponseCode.SUCCESS, "it waits only for the sync, if any"
        assert broker.services.store.max_offset("New", 0) == 3, "stored; only the route is missing"
        assert not any(one.done() for one in waiting)
        assert ns.unanswered_count == 1, "one registration for all"
        ns.answer()
        answers = await asyncio.gather(*waiting)
        assert [(one.code, one.ext["queueOffset"]) for one in answers] == [(0, "0"), (0, "1"), (0, "2")]
        assert "New" in ns.topics
        assert broker.services.gate.is_open == (flush_disk_type == "ASYNC_FLUSH")


async def test_topic_created_during_a_round_waits_for_the_next() -> None:
    async with slowly_registered() as (ns, broker, client):
        first = sending(client, broker, "New")
        await until(lambda: ns.unanswered_count == 1)
        second = sending(client, broker, "New2")
        await until(lambda: broker.services.store.max_offset("New2", 0) == 1)
        ns.answer()
        await first
        assert (await second).code == ResponseCode.SUCCESS
        assert ns.topics >= {"New", "New2"}


async def test_hanging_name_server_delays_a_send_by_at_most_the_timeout() -> None:
    async with slowly_registered(register_broker_timeout_mills=50) as (ns, broker, client):
        async with asyncio.timeout(PATIENCE_S):
            assert (await sending(client, broker, "New")).code == ResponseCode.SUCCESS
        assert "New" not in ns.topics
        await until(lambda: broker.services.gate.is_open)


async def test_stopping_broker_answers_waiting_sends() -> None:
    async with slowly_registered() as (ns, broker, client):
        waiting = sending(client, broker, "New")
        await until(lambda: ns.unanswered_count == 1)
        await broker.stop()
        assert (await waiting).code == ResponseCode.SUCCESS


async def test_heartbeat_waits_for_the_retry_topics_it_creates() -> None:
    async with slowly_registered() as (ns, broker, client):
        beat = HeartbeatData("c", set(), [ConsumerData("g"), ConsumerData("h")])
        beating = asyncio.ensure_future(ask(client, broker, RequestCode.HEART_BEAT, None, encode_body(beat)))
        await until(lambda: ns.unanswered_count == 1)
        assert not beating.done()
        ns.answer()
        assert (await beating).code == ResponseCode.SUCCESS
        assert ns.topics >= {"%RETRY%g", "%RETRY%h"}
        ns.is_slow = True
        again = await ask(client, broker, RequestCode.HEART_BEAT, None, encode_body(beat))
        assert again.code == ResponseCode.SUCCESS and ns.unanswered_count == 0


@pytest.mark.parametrize(("delay_level", "topic"), [(0, "%RETRY%g"), (-1, "%DLQ%g")])
async def test_send_back_waits_for_the_topic_it_creates(delay_level: int, topic: str) -> None:
    async with slowly_registered() as (ns, broker, client):
        await sending(client, broker, "Old")
        header = ConsumerSendMsgBackRequestHeader(0, "g", delay_level)
        going = asyncio.ensure_future(ask(client, broker, RequestCode.CONSUMER_SEND_MSG_BACK, header))
        await until(lambda: ns.unanswered_count == 1)
        assert not going.done()
        ns.answer()
        assert (await going).code == ResponseCode.SUCCESS
        assert topic in ns.topics
