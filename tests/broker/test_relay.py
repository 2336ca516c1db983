"""Relay of requests to consumers, in the formats of their languages; consumers that are too old, silent or disconnected."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.clients.client_registry import ClientChannelInfo
from pocketmq.broker.handlers import relay
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import ConsumerData
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, Request, Response, encode_request
from pocketmq.remoting.dispatch import Deferred, Route
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import ConsumerStatusRequestHeader
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.headers.query import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader
from tests.broker.data_path import TOPIC, DataPath, StubChannel
from tests.broker.running import ask, connected, create_topic, running_broker, until

GROUP = "cg"
QUEUES = [f'{{"brokerName":"b","queueId":{queue_id},"topic":"{TOPIC}"}}' for queue_id in range(4)]
MAP = ('{"offsetTable":{' + ",".join(f"{queue}:0" for queue in QUEUES) + "}}").encode()
"""A map with objects as keys and without blanks, as Java writes it. The Go client accepts no other form."""
LIST = {"offsetTable": [json.loads(queue) | {"offset": 0} for queue in QUEUES]}


@pytest.fixture
async def path() -> DataPath:
    path = DataPath()
    path.services.config.use_server_side_reset_offset = False
    for queue_id in range(4):
        path.services.offsets.commit(GROUP, TOPIC, queue_id, 1)
    return path


def consumer(path: DataPath, port: int, language: str | int, version: int = 401) -> StubChannel:
    channel: Any = StubChannel(port)
    path.services.clients.register_consumer(
        ConsumerData(GROUP), ClientChannelInfo(channel, f"client-{port}", language, version)
    )
    path.turn()  # sends its notification
    return channel


def ask_as(path: DataPath, language: str, code: int, header: Any) -> RemotingCommand:
    """Ask as a tool that identifies as a client of a language, as mqadmin does with `resetOffsetByTime -c`."""
    path.channel.take()
    for kind, head, body in FrameBuffer().feed(b"".join(encode_request(code, header, b"", 1))):
        path.serve((kind, head.replace(b'"PYTHON"', f'"{language}"'.encode()), body), path.channel)
    (answer,) = path.channel.take()
    return answer


@pytest.mark.parametrize("tool", ["JAVA", "CPP"])
async def test_each_consumer_gets_offsets_in_a_form_it_can_read(path: DataPath, tool: str) -> None:
    java, go = consumer(path, 1, "JAVA"), consumer(path, 2, "GO", 317)
    cpp, cpp_by_number, python = consumer(path, 3, "CPP", 333), consumer(path, 4, 1, 333), consumer(path, 5, "PYTHON", 333)
    for channel in (java, go, cpp, cpp_by_number, python):
        channel.take()
    answer = ask_as(path, tool, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, 0))
    assert (answer.code, answer.body) == (0, MAP)
    for channel, form in ((java, "map"), (go, "map"), (cpp, "list"), (cpp_by_number, "list"), (python, tool)):
        (pushed,) = channel.take()
        assert (pushed.code, pushed.flag & 2) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 2)
        assert pushed.ext == {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "false"}
        if form in ("map", "JAVA"):
            assert pushed.body == MAP
        else:
            assert json.loads(pushed.body) == LIST


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, 0)),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader(TOPIC, GROUP)),
    ],
)
async def test_consumer_too_old_for_offset_requests_is_not_asked(path: DataPath, code: int, header: Any) -> None:
    old = consumer(path, 1, "JAVA", 27)
    old.take()
    answer = path.call(code, header)
    assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=27")
    assert old.take() == []


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader(GROUP, "client-1")),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader(GROUP, "client-1")),
    ],
)
async def test_consumer_too_old_for_relayed_requests_is_not_asked(path: DataPath, code: int, header: Any) -> None:
    old = consumer(path, 1, "JAVA", 61)
    old.take()
    answer = path.call(code, header)
    words = "The Consumer <client-1> Version <61> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
    assert (answer.code, answer.remark) == (1, words)
    assert old.take() == []


# --- over connections -----------------------------------------------------------------------------------------------


class Consumer:
    """A connected consumer; `answer` is its answer to every request."""

    def __init__(self) -> None:
        self.answer: Response | Deferred = Deferred()
        self.asked_count = 0
        self.client: RemotingClient

    def take(self, _: Any, request: Request[Any]) -> Response | Deferred | None:
        self.asked_count += 1
        return self.answer


@asynccontextmanager
async def consuming(broker: Broker, client_id: str) -> AsyncIterator[Consumer]:
    one = Consumer()
    async with connected({code: Route(code, NoHeader, one.take) for code in (221, 307)}) as one.client:
        data = {"groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": []}  # fmt: skip
        heartbeat = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [data]}
        await ask(one.client, broker, RequestCode.HEART_BEAT, None, json.dumps(heartbeat).encode())
        yield one


RUNNING_INFO = ConsumerRunningInfoRequestHeader(GROUP, "silent", True)


async def test_silent_consumer_is_answered_as_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RELAY_TIMEOUT_S", 0.05)
    async with running_broker() as broker, consuming(broker, "silent"), connected() as tool:
        answer = await ask(tool, broker, RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answer.remark or "").startswith(f"consumer <{GROUP}> <silent> Timeout: ")


async def test_consumer_that_disconnects_before_answering_is_an_error() -> None:
    async with running_broker() as broker, connected() as tool:
        async with consuming(broker, "silent") as silent:
            channel = await tool.channel(f"127.0.0.1:{broker.port}")
            answered = channel.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO, b"", 15.0)
            await until(lambda: silent.asked_count == 1)
        answer = await answered
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(f"invoke consumer <{GROUP}> <silent> Exception: connection to 127.0.0.1:")


async def test_consumer_status_has_the_consumers_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "STATUS_TIMEOUT_S", 0.05)
    async with (
        running_broker() as broker,
        consuming(broker, "speaks") as speaks,
        consuming(broker, "silent"),
        consuming(broker, "refuses") as refuses,
        consuming(broker, "garbles") as garbles,
        connected() as tool,
    ):
        await create_topic(tool, broker, TOPIC)
        speaks.answer = Response(body=f'{{"messageQueueTable":{{{QUEUES[0]}:5}}}}'.encode())
        refuses.answer = Response(ResponseCode.SYSTEM_ERROR, remark="no")
        garbles.answer = Response(body=b"<html>")
        header = ConsumerStatusRequestHeader(TOPIC, GROUP)
        answer = await ask(tool, broker, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        assert answer.code == 0
        table = fastjson.loads(answer.body)["consumerTable"]
        assert {client_id: list(rows.values()) for client_id, rows in table.items()} == {"speaks": [5], "garbles": []}
