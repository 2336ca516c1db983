"""A gRPC client as far as the server can see: a connection, a telemetry stream with settings, metadata in each call."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.proto.messaging_pb2 import SystemProperties

SERVICE = "/apache.rocketmq.v2.MessagingService/"
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
CALL_S, INVISIBLE_S = 30.0, 60
_numbers = itertools.count()


class Failed(RuntimeError):
    """A call was answered with a status other than OK."""


class GrpcClient:
    """One producer (`group` is None) or simple consumer of a topic."""

    def __init__(self, endpoint: str, name: str, topic: str, group: str | None, body_size: int = 300) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint, OPTIONS)
        self._name, self._topic, self._body = name, pb.Resource(name=topic), b"x" * body_size
        self._group = None if group is None else pb.Resource(name=group)
        host, _, port = endpoint.rpartition(":")
        self._endpoints = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))])
        self._telemetry: Any = None
        self._queue = pb.MessageQueue(topic=self._topic, id=-1)
        self._route = self._unary("QueryRoute")
        self._send, self._ack = self._unary("SendMessage"), self._unary("AckMessage")
        self._receive = self._channel.unary_stream(
            SERVICE + "ReceiveMessage", pb.ReceiveMessageRequest.SerializeToString, pb.ReceiveMessageResponse.FromString
        )

    def _unary(self, name: str) -> Any:
        request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
        return self._channel.unary_unary(SERVICE + name, request.SerializeToString, response.FromString)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return (
            ("x-mq-client-id", self._name),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.0.7"),
            ("x-mq-protocol", "v2"),
            ("x-mq-request-id", f"00000000-0000-0000-0000-{next(_numbers):012x}"),
            ("x-mq-date-time", now),
        )

    async def start(self) -> None:
        """Open the telemetry stream, and wait for the settings. Raises Failed."""
        stream = self._channel.stream_stream(
            SERVICE + "Telemetry", pb.TelemetryCommand.SerializeToString, pb.TelemetryCommand.FromString
        )
        self._telemetry = stream(metadata=self._metadata())
        await self._telemetry.write(pb.TelemetryCommand(settings=self._settings()))
        answer = await asyncio.wait_for(self._telemetry.read(), CALL_S)
        _check(answer.status, "settings")
        request = pb.QueryRouteRequest(topic=self._topic, endpoints=self._endpoints)
        route = await self._route(request, metadata=self._metadata(), timeout=CALL_S)
        _check(route.status, "QueryRoute")
        self._queue.broker.CopyFrom(route.message_queues[0].broker)

    def _settings(self) -> pb.Settings:
        agent = pb.UA(language=pb.JAVA, version="5.0.7", platform="bench", hostname="bench")
        if self._group is None:
            publishing = pb.Publishing(topics=[self._topic])
            return pb.Settings(client_type=pb.PRODUCER, publishing=publishing, user_agent=agent)
        every = pb.FilterExpression(type=pb.TAG, expression="*")
        subscription = pb.Subscription(
            group=self._group, subscriptions=[pb.SubscriptionEntry(topic=self._topic, expression=every)]
        )
        return pb.Settings(client_type=pb.SIMPLE_CONSUMER, subscription=subscription, user_agent=agent)

    async def send(self, count: int = 1) -> None:
        """Send one call with `count` messages. Raises Failed."""
        request = pb.SendMessageRequest(messages=[self._message() for _ in range(count)])
        answer = await self._send(request, metadata=self._metadata(), timeout=CALL_S)
        _check(answer.status, "SendMessage")

    def _message(self) -> pb.Message:
        system = SystemProperties(
            message_id=f"01{next(_numbers):032X}",
            message_type=pb.NORMAL,
            body_encoding=pb.IDENTITY,
            tag="TagA",
            keys=["key"],
            born_host="bench",
        )
        system.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
        return pb.Message(topic=self._topic, user_properties={"index": "1"}, system_properties=system, body=self._body)

    async def receive(self, count: int, poll_s: int = 5) -> list[tuple[str, str]]:
        """Return (message id, receipt handle) of up to `count` messages; none if there are none. Raises Failed."""
        request = pb.ReceiveMessageRequest(
            group=self._group,
            message_queue=self._queue,
            filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
            batch_size=count,
            invisible_duration=Duration(seconds=INVISIBLE_S),
            long_polling_timeout=Duration(seconds=poll_s),
        )
        stream: AsyncIterator[pb.ReceiveMessageResponse] = self._receive(
            request, metadata=self._metadata(), timeout=poll_s + CALL_S
        )
        found = []
        async for answer in stream:
            if answer.HasField("message"):
                system = answer.message.system_properties
                found.append((system.message_id, system.receipt_handle))
            elif answer.HasField("status") and answer.status.code != pb.MESSAGE_NOT_FOUND:
                _check(answer.status, "ReceiveMessage")
        return found

    async def ack(self, message_id: str, handle: str) -> None:
        """Acknowledge a message. Raises Failed."""
        entry = pb.AckMessageEntry(message_id=message_id, receipt_handle=handle)
        request = pb.AckMessageRequest(group=self._group, topic=self._topic, entries=[entry])
        answer = await self._ack(request, metadata=self._metadata(), timeout=CALL_S)
        _check(answer.status, "AckMessage")

    async def close(self) -> None:
        """End the telemetry stream and close the connection."""
        if self._telemetry is not None:
            self._telemetry.cancel()
        await self._channel.close()


def _check(status: pb.Status, what: str) -> None:
    if status.code != pb.OK:
        raise Failed(f"{what}: {pb.Code.Name(status.code)} {status.message}")
