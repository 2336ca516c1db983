"""Replies to requests: pushed to the waiting client, stored for inspection, answered with the result of the push."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.handlers import reply
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, Request, Response
from pocketmq.remoting.dispatch import Deferred, Route
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import Record
from tests.broker.data_path import records
from tests.broker.running import ask, connected, running_broker

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"REPLY_TO_CLIENT": "asker@1", "CORRELATION_ID": "c-1", "TTL": "3000", "MSG_TYPE": "reply"}
COMPRESSED = 1


class Asker:
    """A client that waits for replies; `answer` is its answer to each."""

    def __init__(self) -> None:
        self.got: list[Request[Any]] = []
        self.answer: Response | Deferred = Response()
        self.client: RemotingClient

    def take(self, _: Any, request: Request[Any]) -> Response | Deferred:
        self.got.append(request)
        return self.answer


@asynccontextmanager
async def asking(broker: Broker) -> AsyncIterator[Asker]:
    asker, code = Asker(), RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    async with connected({code: Route(code, NoHeader, asker.take)}) as asker.client:
        heartbeat = {"clientID": "asker@1", "consumerDataSet": [], "producerDataSet": [{"groupName": "askers"}]}
        await ask(asker.client, broker, RequestCode.HEART_BEAT, None, json.dumps(heartbeat).encode())
        yield asker


async def send_reply(
    client: RemotingClient, broker: Broker, properties: dict[str, str], body: bytes = b"answer", **fields: Any
) -> RemotingCommand:
    settings = {"producer_group": "repliers", "topic": REPLY_TOPIC, "default_topic": "TBW102", "default_topic_queue_nums": 4,
                "queue_id": 0, "sys_flag": 0, "born_timestamp": 1_600_000_000_000, "flag": 7, "reconsume_times": 0,
                "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items())} | fields  # fmt: skip
    code = settings.pop("code", RequestCode.SEND_REPLY_MESSAGE_V2)
    declared = SendMessageRequestHeader if code == RequestCode.SEND_REPLY_MESSAGE else SendMessageRequestHeaderV2
    return await ask(client, broker, code, declared(**settings), body)


def stored(broker: Broker, topic: str = REPLY_TOPIC) -> list[Record]:
    return records(b"".join(map(bytes, broker.services.store.reader.get_message(topic, 0, 0, 32).views)))


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_reply_is_pushed_to_the_waiting_client_and_stored(code: RequestCode) -> None:
    async with running_broker() as broker, asking(broker) as asker, connected() as replier:
        answer = await send_reply(replier, broker, PROPERTIES, code=code, sys_flag=COMPRESSED)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        (got,), (record,) = asker.got, stored(broker)
        pushed = got.ext()
        shown = decode_properties(pushed.pop("properties"))
        assert int(shown.pop("PUSH_REPLY_TIME")) == int(pushed.pop("storeTimestamp"))
        assert (shown, got.body) == (PROPERTIES, b"answer")
        assert pushed.pop("bornHost").startswith("127.0.0.1:")
        assert pushed == {
            "producerGroup": "repliers", "topic": REPLY_TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "1", "bornTimestamp": "1600000000000", "flag": "7", "reconsumeTimes": "0",
            "unitMode": "false", "storeHost": broker.address,
        }  # fmt: skip
        assert answer.ext == {
            "msgId": broker.services.putter.message_id(record.physical_offset), "queueId": "0", "queueOffset": "0",
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip
        assert (record.body, record.flag, record.sys_flag) == (b"answer", 7, COMPRESSED)
        assert decode_properties(record.properties) == PROPERTIES | {"CLUSTER": "DefaultCluster"}


async def test_replies_are_not_stored_when_storing_is_off() -> None:
    async with running_broker(store_reply_message_enable=False) as broker, asking(broker) as asker, connected() as replier:
        answer = await send_reply(replier, broker, PROPERTIES)
        assert answer.ext is not None
        assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (0, "0", "0")
        assert (len(asker.got), stored(broker)) == (1, [])


async def test_reply_to_a_disconnected_client_fails() -> None:
    async with running_broker() as broker, connected() as replier:
        async with asking(broker):
            assert broker.services.clients.find_producer("asker@1") is not None
        answer = await send_reply(replier, broker, PROPERTIES)
        gone = "push reply message fail, channel of <asker@1> not found."
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, gone)
        assert [record.body for record in stored(broker)] == [b"answer"], "the reply is stored nevertheless"


async def test_reply_to_a_silent_client_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "PUSH_TIMEOUT_S", 0.05)
    async with running_broker() as broker, asking(broker) as asker, connected() as replier:
        asker.answer = Deferred()
        answer = await send_reply(replier, broker, PROPERTIES)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("push reply message to asker@1 fail: no answer from 127.0.0.1:")


async def test_reply_refused_by_the_client_fails() -> None:
    async with running_broker() as broker, asking(broker) as asker, connected() as replier:
        asker.answer = Response(ResponseCode.SYSTEM_ERROR, remark="too late")
        answer = await send_reply(replier, broker, PROPERTIES)
        assert (answer.code, answer.remark) == (1, "push reply message to asker@1 fail: code 1, too late")


async def test_reply_without_client_id_fails() -> None:
    async with running_broker() as broker, asking(broker) as asker, connected() as replier:
        answer = await send_reply(replier, broker, {"CORRELATION_ID": "c-1"})
        assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        assert (asker.got, len(stored(broker))) == ([], 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": "Unknown", "default_topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "bad name"}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 1}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_reply_is_checked_like_a_send(fields: dict[str, Any], code: int) -> None:
    async with running_broker() as broker, asking(broker) as asker, connected() as replier:
        answer = await send_reply(replier, broker, PROPERTIES, **fields)
        assert (answer.code, asker.got, stored(broker)) == (code, [], [])


async def test_reply_that_cannot_be_stored_is_still_pushed() -> None:
    async with running_broker(store={"max_message_size": 100}) as broker, asking(broker) as asker, connected() as replier:
        answer = await send_reply(replier, broker, PROPERTIES, b"x" * 101)
        assert answer.ext is not None
        assert (answer.code, answer.ext["msgId"], stored(broker)) == (0, "0", [])
        assert [got.body for got in asker.got] == [b"x" * 101]


async def test_answer_to_a_reply_waits_for_the_sync() -> None:
    async with (
        running_broker(store={"flush_disk_type": "SYNC_FLUSH"}) as broker,
        asking(broker) as asker,
        connected() as replier,
    ):
        answer = await send_reply(replier, broker, PROPERTIES)
        store = broker.services.store
        assert (answer.code, len(asker.got)) == (0, 1)
        assert store.flushed_offset == store.max_physical_offset > 0
