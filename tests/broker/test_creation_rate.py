"""Limits on the creation of topics and groups by a hostile peer, and their effect on other clients."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.registration.registration import PAUSE_PER_ROUND
from pocketmq.broker.tables.creation_rate import CreationRate
from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.remoting.bodies import ConsumerData, CreateTopicListRequestBody, HeartbeatData, TopicConfig, encode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import Deferred, RemotingError
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.broker.data_path import SteppedClock
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.broker.test_route_wait import slow_name_server

Create = Callable[[RemotingClient, Broker, int], Awaitable[RemotingCommand]]


async def send(client: RemotingClient, broker: Broker, topic: str) -> RemotingCommand:
    header = SendMessageRequestHeaderV2("pg", topic, "TBW102", 4, 0, 0, 0, 0, None)
    return await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")


async def topic_list(client: RemotingClient, broker: Broker, *topics: str) -> RemotingCommand:
    body = encode_body(CreateTopicListRequestBody([TopicConfig(topic) for topic in topics]))
    return await ask(client, broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)


async def group(client: RemotingClient, broker: Broker, name: str) -> RemotingCommand:
    body = encode_body({"groupName": name})
    return await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


async def beat(client: RemotingClient, broker: Broker, *groups: str) -> RemotingCommand:
    data = HeartbeatData("c", consumer_data_set=[ConsumerData(name) for name in groups])
    return await ask(client, broker, RequestCode.HEART_BEAT, None, encode_body(data))


WAYS: dict[str, tuple[str, Create]] = {
    "a send": ("maxTopicCreationsPerSecond=1", lambda c, b, n: send(c, b, f"T{n}")),
    "a send to a name like the system's": ("maxTopicCreationsPerSecond=1", lambda c, b, n: send(c, b, f"rmq_sys_{n}")),
    "an administrator": ("maxTopicCreationsPerSecond=1", lambda c, b, n: create_topic(c, b, f"T{n}")),
    "a list": ("maxTopicCreationsPerSecond=1", lambda c, b, n: topic_list(c, b, f"T{n}", f"U{n}")),
    "a group by hand": ("maxGroupCreationsPerSecond=1", lambda c, b, n: group(c, b, f"g{n}")),
    "a heartbeat": ("maxGroupCreationsPerSecond=1", lambda c, b, n: beat(c, b, f"g{n}")),
}


@pytest.mark.parametrize("way", WAYS)
async def test_creations_beyond_the_rate_are_refused_as_busy(way: str, caplog: pytest.LogCaptureFixture) -> None:
    said, create = WAYS[way]
    limits = {"max_topic_creations_per_second": 1, "max_group_creations_per_second": 1}
    async with running_broker(**limits) as broker, connected() as client:
        answers = [await create(client, broker, number) for number in range(140)]
        refused = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
        assert answers[0].code == ResponseCode.SUCCESS and len(refused) >= 10
        assert f"{said}: 100 " in (refused[0].remark or ""), "key, value and limit are named"
        assert len(broker.services.topics.table) + len(broker.services.groups.table) < 260
        again = await create(client, broker, 0)
        assert again.code == ResponseCode.SUCCESS, "an existing topic or group is served"
    assert caplog.text.count(said) == 1, "logged once a minute"


async def test_six_hundred_topics_and_a_thousand_groups_at_once_are_not_refused() -> None:
    async with running_broker() as broker, connected() as client:
        sends = [send(client, broker, f"T{number}") for number in range(300)]
        by_hand = [create_topic(client, broker, f"U{number}") for number in range(300)]
        answers = await asyncio.gather(*sends, *by_hand, beat(client, broker, *(f"g{number}" for number in range(1000))))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert len(broker.services.topics.table) > 1600, "a retry topic counts with its group"


async def test_rate_0_means_no_limit() -> None:
    limits = {"max_topic_creations_per_second": 0, "max_group_creations_per_second": 0}
    async with running_broker(**limits) as broker, connected() as client:
        assert (await topic_list(client, broker, *(f"T{number}" for number in range(3000)))).code == ResponseCode.SUCCESS
        for start in range(0, 2000, 1000):
            names = (f"g{number}" for number in range(start, start + 1000))
            assert (await beat(client, broker, *names)).code == ResponseCode.SUCCESS


async def test_heartbeat_beyond_the_group_rate_serves_the_known_groups() -> None:
    async with running_broker(max_group_creations_per_second=1) as broker, connected() as client:
        assert (await beat(client, broker, *(f"g{number}" for number in range(100)))).code == ResponseCode.SUCCESS
        clients = broker.services.clients
        known = clients.consumers.get("g7")
        assert known is not None
        clients.unregister_consumer("g7", next(iter(known.clients)))
        assert clients.consumers.get("g7") is None
        answer = await beat(client, broker, "new1", "new2", "new3", "g7")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert clients.consumers.get("g7") is not None


def test_tokens_refill_with_time_and_a_long_list_needs_a_full_bucket() -> None:
    clock = SteppedClock()
    rate = CreationRate(clock, LimitRefusals(clock), "maxThings", 1, "things")
    rate.take(100)
    with pytest.raises(RemotingError, match="maxThings=1: 100 things can be created at once and then 1 a second"):
        rate.take()
    clock.seconds += 5
    rate.take(5)
    with pytest.raises(RemotingError):
        rate.take()
    clock.seconds += 100
    rate.take(200)
    clock.seconds += 100
    with pytest.raises(RemotingError):
        rate.take()
    clock.seconds += 5
    rate.take(5)


async def test_other_connections_are_served_between_first_messages_of_new_queues() -> None:
    async with running_broker() as broker, connected() as client, connected() as neighbour:
        assert (await send(neighbour, broker, "Neighbour")).code == ResponseCode.SUCCESS
        creating = [asyncio.ensure_future(send(client, broker, f"T{number}")) for number in range(300)]
        served_at = []
        while not all(one.done() for one in creating):
            await send(neighbour, broker, "Neighbour")
            served_at.append(sum(one.done() for one in creating))
        assert {(await one).code for one in creating} == {ResponseCode.SUCCESS}
        assert len({count // 20 for count in served_at}) >= 6, "the neighbour is served in between"


async def test_pause_between_registrations_grows_with_their_duration() -> None:
    took_s = 0.1
    begun: list[float] = []
    async with slow_name_server() as ns, connected() as client, running_broker(ns.address) as broker:
        register = ns.register

        def slowly(services: Any, request: Any) -> Any:
            begun.append(time.monotonic())
            ns.is_slow = True
            answer = register(services, request)
            assert isinstance(answer, Deferred)
            asyncio.get_running_loop().call_later(took_s, ns.answer)
            return answer

        ns.on_register = slowly
        for number in range(3):
            assert (await create_topic(client, broker, f"T{number}")).code == ResponseCode.SUCCESS
        await until(lambda: len(begun) >= 3)
        gaps = [later - earlier for earlier, later in zip(begun, begun[1:], strict=False)]
        assert min(gaps) >= took_s * (1 + PAUSE_PER_ROUND) * 0.9, "a fifth of the time at most"
