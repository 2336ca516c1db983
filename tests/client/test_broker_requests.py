"""Requests of brokers and tools to a push consumer: running info, offsets, resets, a message consumed directly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client.consumer import PushConsumer
from pocketmq.client.consuming.consumption import Listener
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.producer import Producer
from pocketmq.remoting import fastjson
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.consumer import ConsumerStatusRequestHeader
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.headers.query import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader
from tests.client.live_cluster import Cluster, until
from tests.patience import PATIENCE_S

MESSAGES = 3


class Asked:
    """A consumer of a topic with one queue and three messages, and a producer that sends a tool's requests to the broker."""

    def __init__(self, cluster: Cluster, producer: Producer) -> None:
        self.cluster, self.producer = cluster, producer
        self.got: list[bytes] = []
        self.sent: list[str] = []
        self.listener: Listener = lambda message: self.got.append(message.body)
        self.consumer = PushConsumer(cluster.namesrv, "g", start="first")
        self.consumer.subscribe("T", lambda message: self.listener(message))
        self.client_id = self.consumer.instance.client_id

    async def ask(self, code: int, header: Any) -> RemotingCommand:
        (address,) = self.producer.instance.routes.heartbeat_addresses(with_slaves=False)
        return await self.producer.instance.remoting.invoke(address, code, header, b"", 10.0)

    @property
    def channel(self) -> Channel:
        """The broker's end of the consumer's connection."""
        group = self.cluster.broker.services.clients.consumers.get("g")
        client = None if group is None else group.find_client(self.client_id)
        assert client is not None
        return client.channel

    async def directly(self, msg_id: str) -> RemotingCommand:
        header = ConsumeMessageDirectlyRequestHeader("g", self.client_id, msg_id)
        return await self.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

    async def running_info(self, group: str = "g", jstack: bool = False) -> RemotingCommand:
        header = ConsumerRunningInfoRequestHeader(group, self.client_id, jstack)
        return await self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


@pytest.fixture
async def asked(cluster: Cluster) -> AsyncIterator[Asked]:
    async with Producer(cluster.namesrv) as producer:
        await producer.create_topic("T", 1)
        made = Asked(cluster, producer)
        for number in range(MESSAGES):
            made.sent.append((await producer.send(Message("T", b"%d" % number))).offset_msg_id)
        async with made.consumer:
            await until(lambda: len(made.got) == MESSAGES)
            await until(lambda: MESSAGES in made.consumer.offsets("T").values())
            yield made


def table(body: bytes, name: str) -> dict[str, Any]:
    found: dict[str, Any] = fastjson.loads(bytes(body))[name]
    return found


async def test_running_info_has_settings_queues_and_rates(asked: Asked) -> None:
    answer = await asked.running_info()
    info = fastjson.loads(bytes(answer.body))
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {one["topic"] for one in info["subscriptionSet"]} == {"T", "%RETRY%g"}
    queue = info["mqTable"]['{"brokerName":"broker-a","queueId":0,"topic":"T"}']
    assert (queue["commitOffset"], queue["cachedMsgCount"], queue["droped"]) == (MESSAGES, 0, False)
    assert info["statusTable"]["T"]["consumeOKTPS"] == pytest.approx(MESSAGES / 60)
    assert "jstack" not in info
    with_stacks = fastjson.loads(bytes((await asked.running_info(jstack=True)).body))
    assert "Rebalancing._keep_balanced" in with_stacks["jstack"]


async def test_running_info_counts_messages_waiting_for_the_listener(asked: Asked) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(message: MessageExt) -> None:
        entered.set()
        await go.wait()

    asked.listener = slow
    try:
        await asked.producer.send_batch([Message("T", b"waiting %d" % number) for number in range(4)])
        async with asyncio.timeout(PATIENCE_S):
            await entered.wait()
        info = table((await asked.running_info()).body, "mqTable")['{"brokerName":"broker-a","queueId":0,"topic":"T"}']
        assert (info["cachedMsgCount"], info["cachedMsgMinOffset"], info["cachedMsgMaxOffset"]) == (4, 3, 6)
    finally:
        go.set()


async def test_directly_consumed_message_does_not_change_offsets(asked: Asked) -> None:
    answer = await asked.directly(asked.sent[1])
    result = fastjson.loads(bytes(answer.body))
    assert (result["consumeResult"], result["order"], result["autoCommit"]) == ("CR_SUCCESS", False, True)
    assert asked.got[MESSAGES:] == [b"1"]
    assert list(asked.consumer.offsets("T").values()) == [MESSAGES]


async def test_directly_consumed_message_reports_the_listener_error(asked: Asked) -> None:
    async def fail(message: MessageExt) -> None:
        raise KeyError("price")

    asked.listener = fail
    result = fastjson.loads(bytes((await asked.directly(asked.sent[0])).body))
    assert (result["consumeResult"], result["remark"]) == ("CR_THROW_EXCEPTION", "KeyError: 'price'")
    info = fastjson.loads(bytes((await asked.running_info()).body))
    assert info["statusTable"]["T"]["consumeFailedMsgs"] == 1


async def test_message_of_a_topic_without_listener_is_refused(asked: Asked) -> None:
    other = (await asked.producer.send(Message("Other", b"x"))).offset_msg_id
    answer = await asked.directly(other)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "this consumer has no listener for topic Other, only for T",
    )


async def test_consumer_reports_its_offsets_of_a_topic(asked: Asked) -> None:
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await asked.ask(code, ConsumerStatusRequestHeader("T", "g"))
    offsets = {asked.client_id: {'{"brokerName":"broker-a","queueId":0,"topic":"T"}': MESSAGES}}
    assert table(answer.body.replace(b"consumerTable", b"t"), "t") == offsets


async def test_consumer_follows_an_offset_reset_by_the_broker(asked: Asked) -> None:
    asked.cluster.broker.services.config.use_server_side_reset_offset = False
    await until(lambda: asked.cluster.broker.services.offsets.query("g", "T", 0) == MESSAGES)
    answer = await asked.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader("T", "g", 0))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await until(lambda: len(asked.got) == 2 * MESSAGES)
    assert asked.got[MESSAGES:] == asked.got[:MESSAGES]


async def test_consumer_follows_an_offset_reset_in_list_form(asked: Asked) -> None:
    row = {"brokerName": "broker-a", "queueId": 0, "topic": "T", "offset": MESSAGES - 1}
    body = fastjson.dumps({"offsetTable": [row]})
    asked.channel.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader("T", "g", 0), body)
    await until(lambda: asked.got[MESSAGES:] == [b"%d" % (MESSAGES - 1)])


async def test_request_for_another_group_is_refused(asked: Asked) -> None:
    code, header = RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader("other", asked.client_id)
    answer = await asked.channel.invoke(code, header, b"", 10.0)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR, "The Consumer Group <other> not exist in this consumer",
    )  # fmt: skip
    assert asked.consumer.queues


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"offsetTable":{{"brokerName":1}:2}}', b'{"offsetTable":[{"topic":"T"}]}', b'{"offsetTable":7}',
             b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:-5}}'],
)  # fmt: skip
async def test_invalid_offset_reset_is_ignored(asked: Asked, body: bytes) -> None:
    asked.channel.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader("T", "g", 0), body)
    assert (await asked.running_info()).code == ResponseCode.SUCCESS, "it comes after the reset on the same connection"
    await asked.producer.send(Message("T", b"next"))
    await until(lambda: asked.got[MESSAGES:] == [b"next"])
