"""The rpcs of MessagingService: which function serves each, and how its failures are answered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final

from google.protobuf.message import DecodeError

from pocketmq.proxy.calls import pulling, receiving, routing, sending, telemetry
from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.front import Front
from pocketmq.proxy.http2.call import Rpc, ServerCall
from pocketmq.proxy.http2.grpc_text import Aborted, GrpcStatus
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal

BUSY_S: Final = 1.0
"""Time after which a call is refused because of a limit. A connection has a limited number of calls at a time."""
SERVICE: Final = "apache.rocketmq.v2.MessagingService"
Unary = Callable[[Call, Any], Awaitable[Any]]
Stream = Callable[[Call, Any], AsyncIterator[Any]]
Serve = Callable[[ServerCall], Coroutine[Any, Any, None]]


async def _sync_lite_subscription(call: Call, request: pb.SyncLiteSubscriptionRequest) -> pb.SyncLiteSubscriptionResponse:
    raise Refusal(pb.NOT_IMPLEMENTED, "lite topics are not supported")


_UNARY: Final[dict[str, Unary]] = {
    "QueryRoute": routing.query_route,
    "QueryAssignment": routing.query_assignment,
    "Heartbeat": telemetry.heartbeat,
    "SendMessage": sending.send_message,
    "EndTransaction": sending.end_transaction,
    "RecallMessage": sending.recall_message,
    "AckMessage": receiving.ack_message,
    "ChangeInvisibleDuration": receiving.change_invisible_duration,
    "ForwardMessageToDeadLetterQueue": receiving.forward_to_dead_letters,
    "UpdateOffset": pulling.update_offset,
    "GetOffset": pulling.get_offset,
    "QueryOffset": pulling.query_offset,
    "SyncLiteSubscription": _sync_lite_subscription,
}
_STREAMS: Final[dict[str, Stream]] = {
    "ReceiveMessage": receiving.receive_message,
    "PullMessage": pulling.pull_message,
}


def rpcs(front: Front) -> dict[str, Rpc]:
    """Return how the calls of each method are served, by path."""
    table = {name: Rpc(_unary(front, name, serve)) for name, serve in _UNARY.items()}
    table |= {name: Rpc(_stream(front, name, serve)) for name, serve in _STREAMS.items()}
    table["NotifyClientTermination"] = Rpc(_unary(front, "NotifyClientTermination", _terminate(front)))
    table["Telemetry"] = Rpc(_telemetry(front), is_stream=True)
    return {f"/{SERVICE}/{name}": rpc for name, rpc in table.items()}


def _parsed(kind: Any, message: bytes) -> Any:
    """Decode a message of a type. Raises Aborted if its bytes are invalid."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise Aborted(GrpcStatus.INTERNAL, "Exception deserializing request!") from None


async def _status(front: Front, failure: Exception, context: ServerCall) -> pb.Status:
    """Return the status of a failed call; later if the caller asks too much, so that it cannot ask again at once."""
    status = front.statuses.of(failure, context.peer)
    if status.code == pb.TOO_MANY_REQUESTS:
        await asyncio.sleep(BUSY_S)
    return status


def _unary(front: Front, name: str, serve: Unary) -> Serve:
    request_type, response_type = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")

    async def answer(context: ServerCall, request: Any) -> Any:
        try:
            call = await front.call(context)
            with front.counted(call.session):
                return await serve(call, request)
        except Exception as failure:
            return response_type(status=await _status(front, failure, context))

    async def handle(context: ServerCall) -> None:
        request = _parsed(request_type, context.message)
        await context.write((await answer(context, request)).SerializeToString())

    return handle


def _stream(front: Front, name: str, serve: Stream) -> Serve:
    request_type, response_type = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")

    async def handle(context: ServerCall) -> None:
        request = _parsed(request_type, context.message)
        try:
            call = await front.call(context)
            with front.counted(call.session):
                answers = serve(call, request)
                try:
                    async for answer in answers:
                        await context.write(answer.SerializeToString())
                finally:
                    await answers.aclose()  # type: ignore[attr-defined]
        except Exception as failure:
            await context.write(response_type(status=await _status(front, failure, context)).SerializeToString())

    return handle


def _terminate(front: Front) -> Unary:
    async def terminate(call: Call, request: pb.NotifyClientTerminationRequest) -> pb.NotifyClientTerminationResponse:
        front.gone(call.session)
        return pb.NotifyClientTerminationResponse(status=OK)

    return terminate


async def _commands(context: ServerCall) -> AsyncIterator[pb.TelemetryCommand]:
    while (message := await context.read()) is not None:
        yield _parsed(pb.TelemetryCommand, message)


def _telemetry(front: Front) -> Serve:
    async def handle(context: ServerCall) -> None:
        try:
            call = await front.call(context)
        except Refusal as refusal:
            status = await _status(front, refusal, context)
            await context.write(pb.TelemetryCommand(status=status).SerializeToString())
            return
        try:
            await telemetry.telemetry(call, _commands(context), context)
        except telemetry.SettingsRefused as refused:
            status = await _status(front, refused.failure, context)
            await context.write(pb.TelemetryCommand(status=status).SerializeToString())
            is_clients = pb.BAD_REQUEST <= status.code < pb.INTERNAL_ERROR
            code = GrpcStatus.INVALID_ARGUMENT if is_clients else GrpcStatus.INTERNAL
            raise Aborted(code, status.message) from None
        finally:
            if call.session.stream is context:  # no newer stream has replaced it
                front.gone(call.session)

    return handle
