"""The rpcs of MessagingService: which function serves each, and how its failures are answered."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from pocketmq.proxy.calls import pulling, receiving, routing, sending, telemetry
from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.front import Front
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal

log = logging.getLogger("proxy")

BUSY_S: Final = 1.0
"""Time after which a call is refused because of a limit. A connection has a limited number of calls at a time."""
SERVICE: Final = "apache.rocketmq.v2.MessagingService"
Unary = Callable[[Call, Any], Awaitable[Any]]
Stream = Callable[[Call, Any], AsyncIterator[Any]]


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


def handlers(front: Front) -> grpc.GenericRpcHandler:
    """Return the handlers of all rpcs."""
    table = {name: _unary(front, name, serve) for name, serve in _UNARY.items()}
    table |= {name: _stream(front, name, serve) for name, serve in _STREAMS.items()}
    table["NotifyClientTermination"] = _unary(front, "NotifyClientTermination", _terminate(front))
    table["Telemetry"] = grpc.stream_stream_rpc_method_handler(
        _telemetry(front), pb.TelemetryCommand.FromString, pb.TelemetryCommand.SerializeToString
    )
    return grpc.method_handlers_generic_handler(SERVICE, table)


async def _status(front: Front, failure: Exception, context: Any) -> pb.Status:
    """Return the status of a failed call; later if the caller asks too much, so that it cannot ask again at once."""
    status = front.statuses.of(failure, front.address_of(context.peer()))
    if status.code == pb.TOO_MANY_REQUESTS:
        await asyncio.sleep(BUSY_S)
    return status


def _unary(front: Front, name: str, serve: Unary) -> grpc.RpcMethodHandler:
    request_type, response_type = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")

    async def handle(request: Any, context: Any) -> Any:
        try:
            call = await front.call(context)
            with front.counted(call.session):
                return await serve(call, request)
        except Exception as failure:
            return response_type(status=await _status(front, failure, context))

    return grpc.unary_unary_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)


def _stream(front: Front, name: str, serve: Stream) -> grpc.RpcMethodHandler:
    request_type, response_type = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")

    async def handle(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            call = await front.call(context)
            with front.counted(call.session):
                answers = serve(call, request)
                try:
                    async for answer in answers:
                        yield answer
                finally:
                    await answers.aclose()  # type: ignore[attr-defined]
        except Exception as failure:
            yield response_type(status=await _status(front, failure, context))

    return grpc.unary_stream_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)


def _terminate(front: Front) -> Unary:
    async def terminate(call: Call, request: pb.NotifyClientTerminationRequest) -> pb.NotifyClientTerminationResponse:
        front.gone(call.session)
        return pb.NotifyClientTerminationResponse(status=OK)

    return terminate


def _telemetry(front: Front) -> Callable[[AsyncIterator[pb.TelemetryCommand], Any], Awaitable[None]]:
    async def handle(commands: AsyncIterator[pb.TelemetryCommand], context: Any) -> None:
        try:
            call = await front.call(context)
        except Refusal as refusal:
            status = await _status(front, refusal, context)
            await context.write(pb.TelemetryCommand(status=status))
            return
        try:
            await telemetry.telemetry(call, commands, context)
        except telemetry.SettingsRefused as refused:
            status = await _status(front, refused.failure, context)
            await context.write(pb.TelemetryCommand(status=status))
            is_clients = pb.BAD_REQUEST <= status.code < pb.INTERNAL_ERROR
            code = grpc.StatusCode.INVALID_ARGUMENT if is_clients else grpc.StatusCode.INTERNAL
            await context.abort(code, status.message)
        finally:
            if call.session.stream is context:  # no newer stream has replaced it
                front.gone(call.session)

    return handle
