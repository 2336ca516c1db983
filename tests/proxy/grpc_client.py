"""A gRPC client of the tests, which sends what it is told to, and requests that are in order."""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.patience import PATIENCE_S

STREAMS = ("ReceiveMessage", "PullMessage")
DATE_TIME = "20260102T030405Z"
_ids = itertools.count(1)


class GrpcClient:
    """Calls of one client id. `access`: access key and secret key by which calls are signed."""

    def __init__(
        self,
        port: int,
        client_id: str = "client",
        host: str = "127.0.0.1",
        access: tuple[str, str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        target, options = (
            f"{host}:{port}",
            [("grpc.ssl_target_name_override", "broker"), ("grpc.use_local_subchannel_pool", 1)],
        )
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)
        self.port = port
        given = {"x-mq-client-id": client_id, "x-mq-language": "JAVA", "x-mq-client-version": "5.0.8", **(metadata or {})}
        if access is not None:
            given |= signed(*access)
        self.metadata = {name: value for name, value in given.items() if value}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def start(self, request: Any, timeout_s: float | None = None) -> Any:
        """Start the rpc to which a request belongs, and return gRPC's call."""
        name = type(request).__name__.removesuffix("Request")
        kind = self._channel.unary_stream if name in STREAMS else self._channel.unary_unary
        rpc = kind(
            f"/apache.rocketmq.v2.MessagingService/{name}",
            type(request).SerializeToString,
            getattr(pb, f"{name}Response").FromString,
        )
        return rpc(request, timeout=PATIENCE_S if timeout_s is None else timeout_s, metadata=list(self.metadata.items()))

    async def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a call; of a stream all its answers as one object, `Received`."""
        call = self.start(request, timeout_s)
        if type(request).__name__.removesuffix("Request") not in STREAMS:
            return await call
        return Received([answer async for answer in call])

    async def code(self, request: Any, timeout_s: float | None = None) -> str:
        """Return the name of the code of the answer's status."""
        return pb.Code.Name((await self.ask(request, timeout_s)).status.code)

    async def done(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a call that must succeed."""
        answer = await self.ask(request, timeout_s)
        assert answer.status.code == pb.OK, answer.status
        return answer

    async def send(self, topic: str, *bodies: bytes, **system: Any) -> Any:
        """Send messages, and return the answer."""
        return await self.done(pb.SendMessageRequest(messages=[message(topic, body, **system) for body in bodies]))

    async def receive(self, topic: str, group: str, timeout_s: float | None = None, **fields: Any) -> "Received":
        """Receive messages; those that a settings-less client would be refused."""
        return Received([one async for one in self.start(receive_request(topic, group, **fields), timeout_s)])

    @contextlib.asynccontextmanager
    async def telemetry(self, settings: pb.Settings | None = None) -> AsyncIterator["Telemetry"]:
        """Open the telemetry stream, with settings for which the answer must be OK; cut it at the end."""
        rpc = self._channel.stream_stream(
            "/apache.rocketmq.v2.MessagingService/Telemetry",
            pb.TelemetryCommand.SerializeToString,
            pb.TelemetryCommand.FromString,
        )
        stream = Telemetry(rpc(metadata=list(self.metadata.items())))
        try:
            if settings is not None:
                answer = await stream.settle(settings)
                assert answer.status.code == pb.OK, answer.status
                stream.settings = answer.settings
            yield stream
        finally:
            stream.call.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await stream.call.code()


class Telemetry:
    """A telemetry stream; `settings` are those that the front answered."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.settings = pb.Settings()

    async def write(self, **fields: Any) -> None:
        await self.call.write(pb.TelemetryCommand(**fields))

    async def read(self) -> pb.TelemetryCommand:
        """Return the next command of the front."""
        async with asyncio.timeout(PATIENCE_S):
            answer = await self.call.read()
        assert answer is not grpc.aio.EOF, "the stream has ended"
        return answer

    async def settle(self, settings: pb.Settings) -> pb.TelemetryCommand:
        """Send settings and return the answer."""
        await self.write(settings=settings)
        return await self.read()

    async def end(self) -> grpc.StatusCode:
        """Wait until the front has ended the stream, and return why."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            return await self.call.code()


class Received:
    """Answers of a stream, by kind."""

    def __init__(self, answers: list[Any]) -> None:
        self.kinds = [answer.WhichOneof("content") for answer in answers]
        of_kind = {kind: [getattr(one, kind) for one in answers if one.WhichOneof("content") == kind] for kind in self.kinds}
        self.status: pb.Status = of_kind["status"][0]
        self.messages: list[pb.Message] = of_kind.get("message", [])
        self.next_offset: int = of_kind.get("next_offset", [-1])[0]
        self.delivery_timestamp = of_kind.get("delivery_timestamp", [None])[0]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def handles(self) -> list[str]:
        return [message.system_properties.receipt_handle for message in self.messages]


# --- requests that are in order -------------------------------------------------------------------------------------


def signed(access_key: str, secret_key: str, date_time: str = DATE_TIME) -> dict[str, str]:
    """Return the metadata that sign a call."""
    signature = hmac.new(secret_key.encode(), date_time.encode(), hashlib.sha1).hexdigest().upper()
    return {
        "x-mq-date-time": date_time,
        "authorization": f"MQv2-HMAC-SHA1 Credential={access_key}//RocketMQ, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}",
    }


def resource(name: str, namespace: str = "") -> pb.Resource:
    return pb.Resource(resource_namespace=namespace, name=name)


def seconds(value: float) -> Duration:
    result = Duration()
    result.FromMilliseconds(int(value * 1000))
    return result


def endpoints(port: int = 8081, host: str = "127.0.0.1") -> pb.Endpoints:
    return pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=port)])


def message(topic: str, body: bytes = b"body", user: dict[str, str] | None = None, **system: Any) -> pb.Message:
    """Return a message; `system` overwrites its system properties."""
    properties = pb.SystemProperties(**{"message_id": f"01{next(_ids):030d}", "message_type": pb.NORMAL, **system})
    return pb.Message(topic=resource(topic), user_properties=user or {}, system_properties=properties, body=body)


def queue_of(topic: str, queue_id: int = 0, broker: str = "b") -> pb.MessageQueue:
    return pb.MessageQueue(topic=resource(topic), id=queue_id, broker=pb.Broker(name=broker))


def tag(expression: str = "*") -> pb.FilterExpression:
    return pb.FilterExpression(type=pb.TAG, expression=expression)


def receive_request(topic: str, group: str, **fields: Any) -> pb.ReceiveMessageRequest:
    given = {
        "message_queue": queue_of(topic, -1),
        "filter_expression": tag(),
        "batch_size": 32,
        "invisible_duration": seconds(30),
        "long_polling_timeout": seconds(5),
        **fields,
    }
    return pb.ReceiveMessageRequest(group=resource(group), **given)


def ack_request(topic: str, group: str, *handles: str) -> pb.AckMessageRequest:
    entries = [pb.AckMessageEntry(message_id=f"m{number}", receipt_handle=one) for number, one in enumerate(handles)]
    return pb.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)


def producer_settings(*topics: str, **fields: Any) -> pb.Settings:
    publishing = pb.Publishing(topics=[resource(topic) for topic in topics])
    return pb.Settings(client_type=pb.PRODUCER, publishing=publishing, request_timeout=seconds(3), **fields)


def consumer_settings(
    group: str, topic: str, kind: Any = pb.SIMPLE_CONSUMER, expression: str = "*", **fields: Any
) -> pb.Settings:
    entry = pb.SubscriptionEntry(topic=resource(topic), expression=tag(expression))
    subscription = pb.Subscription(group=resource(group), subscriptions=[entry])
    return pb.Settings(client_type=kind, subscription=subscription, request_timeout=seconds(3), **fields)
