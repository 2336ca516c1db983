"""ReceiveMessage, and all that becomes of a received message: ack, another invisible time, the dead-letter topic."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.client.message import now_ms
from pocketmq.client.route import READ
from pocketmq.proxy.calls.call import Call, together
from pocketmq.proxy.clients.popped import PoppedMessage, popped_messages
from pocketmq.proxy.clients.receipt import Receipt
from pocketmq.proxy.clients.session import Session, expression_of
from pocketmq.proxy.clients.settings import max_attempts
from pocketmq.proxy.messages.incoming import milliseconds
from pocketmq.proxy.messages.outgoing import duration, message_of, timestamp
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal, joint_status, status_of
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.pop import PopMessageRequestHeader
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

log = logging.getLogger("proxy")

BATCH_SIZE_MAX: Final = 32
ENTRIES_MAX: Final = 1024
"""Limit of acks in one call; each is a request to a broker."""
_ANSWER_S: Final = 3.0
"""Time that a broker has to answer a held pop after its hold ended."""
_EMPTY: Final = frozenset((ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY))
_background: set[asyncio.Task[Any]] = set()


def in_background(session: Session, work: Coroutine[Any, Any, Any]) -> None:
    """Run `work` to its end, whatever becomes of the call; a failure is logged. It counts as a call of the client."""

    async def run() -> None:
        try:
            await work
        except ChannelClosed as failure:
            log.info("work after a call ended: %s", failure)
        except (OSError, TimeoutError, RemotingError, Refusal) as failure:
            log.warning("work after a call failed: %s", failure)
        finally:
            session.call_count -= 1
            if session.is_gone and not session.call_count:
                session.client.disconnect_all()

    session.call_count += 1
    task = asyncio.ensure_future(run())
    _background.add(task)
    task.add_done_callback(_background.discard)


@dataclass(frozen=True)
class _Receive:
    """One checked ReceiveMessage."""

    topic: str
    group: str
    broker_name: str
    batch_size: int
    invisible_ms: int
    poll_ms: int
    expression: tuple[str, str]
    in_order: bool
    attempts_max: int
    attempt_id: str | None
    is_renewed: bool


async def receive_message(
    call: Call, request: pb.ReceiveMessageRequest
) -> AsyncIterator[pb.ReceiveMessageResponse]:  # fmt: skip
    """Yield the status, the messages, and the time at which the broker gave them."""
    asked = await _checked(call, request)
    found, popped_ms = await _popped(call.session, asked)
    if call.session.is_gone and asked.is_renewed:  # nothing would renew the handles
        in_background(call.session, _return(call.session, asked, found))
        found = []
    if not found:
        yield pb.ReceiveMessageResponse(status=pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message"))
        yield pb.ReceiveMessageResponse(delivery_timestamp=timestamp(popped_ms or call.now_ms()))
        return
    sent = 0
    try:
        yield pb.ReceiveMessageResponse(status=OK)
        for one in found:
            yield pb.ReceiveMessageResponse(message=_message(asked, one))
            sent += 1
            if asked.is_renewed:
                call.session.hand.add(asked.topic, asked.group, one.receipt, asked.invisible_ms)
        yield pb.ReceiveMessageResponse(delivery_timestamp=timestamp(popped_ms))
    finally:
        if sent < len(found):
            in_background(call.session, _return(call.session, asked, found[sent:]))


async def _checked(call: Call, request: pb.ReceiveMessageRequest) -> _Receive:
    session, config = call.session, call.config
    if session.settings is None:
        await session.wait_for_settings()
    topic, group = session.topic(request.message_queue.topic), session.group(request.group)
    if not session.hand.has_room:
        raise Refusal(
            pb.TOO_MANY_REQUESTS,
            f"the client has {len(session.hand)} messages in hand (grpcMaxMessagesInHandPerClient)",
        )
    group_config = await session.upstream.group_config(session.client, topic, group)
    is_renewed = request.auto_renew and config.enable_proxy_auto_renew
    invisible_ms = config.default_invisible_time_mills if is_renewed else milliseconds(request.invisible_duration)
    if not is_renewed:
        check_invisible(invisible_ms, config.min_invisible_time_mills_for_recv, config.max_invisible_time_mills)
    route = await session.upstream.route(topic)
    asked_name = request.message_queue.broker.name
    names = [data.broker_name for data in route.queue_datas if data.perm & READ]
    if not names:
        raise Refusal(pb.FORBIDDEN, f"no readable queue of topic {topic}")
    return _Receive(
        topic,
        group,
        asked_name if asked_name in names else names[0],
        max(min(request.batch_size, BATCH_SIZE_MAX), 1),
        invisible_ms,
        _poll_ms(call, request),
        expression_of(request.filter_expression),
        bool(group_config and group_config.consume_message_orderly),
        max_attempts(group_config),
        request.attempt_id or None,
        is_renewed,
    )


def check_invisible(invisible_ms: int, low_ms: int, high_ms: int) -> None:
    """Raise Refusal for an invisible time beyond the limits."""
    if invisible_ms < low_ms:
        raise Refusal(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {low_ms}")
    if invisible_ms > high_ms:
        raise Refusal(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {high_ms}")


def _poll_ms(call: Call, request: pb.ReceiveMessageRequest) -> int:
    """Return how long the broker may hold the pop: within limits, and so that the answer reaches the client in time."""
    config, session, deadline_ms = call.config, call.session, call.deadline_ms
    low = config.grpc_client_consumer_min_long_polling_timeout_millis
    if request.HasField("long_polling_timeout"):
        poll_ms = milliseconds(request.long_polling_timeout)
    elif deadline_ms is not None and session.settings is not None:
        poll_ms = deadline_ms - milliseconds(session.settings.request_timeout) // 2
    else:
        poll_ms = config.grpc_client_consumer_max_long_polling_timeout_millis
    poll_ms = max(min(poll_ms, config.grpc_client_consumer_max_long_polling_timeout_millis), low)
    if deadline_ms is not None and poll_ms > deadline_ms - config.long_polling_reserve_time_in_millis:
        if deadline_ms <= low:
            code = pb.BAD_REQUEST if _is_before_5_0_3(call.client_version) else pb.ILLEGAL_POLLING_TIME
            raise Refusal(code, f"The deadline time remaining is not enough for polling, {deadline_ms} ms, min is {low} ms")
        poll_ms = deadline_ms - config.long_polling_reserve_time_in_millis
    return poll_ms


def _is_before_5_0_3(version: str) -> bool:
    numbers = version.partition("-")[0].split(".")
    try:
        return tuple(map(int, numbers)) < (5, 0, 3)
    except ValueError:
        return True


async def _popped(session: Session, asked: _Receive) -> tuple[list[PoppedMessage], int]:
    """Return the messages of one pop, and its time. If the call is cancelled meanwhile, they are made visible again."""
    popping = asyncio.ensure_future(_pop(session, asked))
    try:
        return await asyncio.shield(popping)
    except asyncio.CancelledError:
        in_background(session, _return_popped(session, asked, popping))
        raise


async def _return_popped(
    session: Session, asked: _Receive, popping: "asyncio.Task[tuple[list[PoppedMessage], int]]"
) -> None:
    found, _ = await popping
    await _return(session, asked, found)


async def _return(session: Session, asked: _Receive, found: list[PoppedMessage]) -> None:
    """Make messages visible soon that did not reach the client."""
    soon_ms = session.hand.config.invisible_time_millis_when_clear
    changing = [one.receipt.change(session, asked.topic, asked.group, soon_ms) for one in found]
    for result in await asyncio.gather(*changing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _pop(session: Session, asked: _Receive) -> tuple[list[PoppedMessage], int]:
    kind, text = asked.expression
    header = PopMessageRequestHeader(
        asked.group, asked.topic, -1, asked.batch_size, asked.invisible_ms, asked.poll_ms,
        init_mode=1, exp_type=kind, exp=text, order=asked.in_order, attempt_id=asked.attempt_id,
    )  # fmt: skip
    header.born_time = now_ms()
    timeout_s = asked.poll_ms / 1000 + _ANSWER_S
    try:
        answer = await session.pop(asked.topic, asked.broker_name, header, timeout_s)
    except ChannelClosed:
        if not session.is_gone:
            raise
        return [], 0
    if answer.code in _EMPTY:
        return [], _pop_time(answer)
    if answer.code == ResponseCode.POLLING_FULL:
        raise Refusal(pb.TOO_MANY_REQUESTS, "polling full")
    if answer.code != ResponseCode.SUCCESS:
        raise RemotingError(answer.code, answer.remark or f"the broker answered with code {answer.code}")
    found = popped_messages(answer, asked.broker_name)
    return [one for one in found if not await _is_disposed_of(session, asked, one)], _pop_time(answer)


async def _is_disposed_of(session: Session, asked: _Receive, one: PoppedMessage) -> bool:
    """Acknowledge a message whose tag is not wanted, and forward one without attempts left; return whether it was either.

    If that fails the message is visible again later, and the others go to the client all the same.
    """
    try:
        if not one.has_tag(*asked.expression):
            await one.receipt.acknowledge(session, asked.topic, asked.group)
        elif not asked.in_order and one.reconsume_times >= asked.attempts_max:
            await to_dead_letters(session, asked.topic, asked.group, one.receipt, one.message_id)
        else:
            return False
    except (OSError, RemotingError) as failure:
        log.warning("%r: a message that is not for the client stays invisible: %s", session, failure)
    return True


def _pop_time(answer: RemotingCommand) -> int:
    text = (answer.ext or {}).get("popTime", "")
    return int(text) if text.isdecimal() else 0


def _message(asked: _Receive, one: PoppedMessage) -> pb.Message:
    message = message_of(one.record, asked.topic, one.reconsume_times)
    message.system_properties.receipt_handle = str(one.receipt)
    message.system_properties.invisible_duration.CopyFrom(duration(asked.invisible_ms))
    return message


# --- received messages ----------------------------------------------------------------------------------------------


async def ack_message(call: Call, request: pb.AckMessageRequest) -> pb.AckMessageResponse:
    """Acknowledge messages, each with a status of its own."""
    topic, group = call.session.topic(request.topic), call.session.group(request.group)
    if len(request.entries) > ENTRIES_MAX:
        raise Refusal(pb.PAYLOAD_TOO_LARGE, f"{len(request.entries)} acks in one call, the limit is {ENTRIES_MAX}")
    entries = await together([_acknowledged(call, topic, group, one) for one in request.entries])
    return pb.AckMessageResponse(status=joint_status([entry.status for entry in entries]), entries=entries)


async def _acknowledged(call: Call, topic: str, group: str, entry: pb.AckMessageEntry) -> pb.AckMessageResultEntry:
    result = pb.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=OK)
    try:
        async with _current(call, entry.receipt_handle) as receipt:
            await receipt.acknowledge(call.session, topic, group)
    except (Refusal, RemotingError, OSError, TimeoutError) as failure:
        result.status.CopyFrom(status_of(failure))
    return result


@asynccontextmanager
async def _current(call: Call, text: str) -> AsyncIterator[Receipt]:
    """Give the receipt that a client's handle stands for now. Raises Refusal if it is invalid or has expired."""
    receipt = Receipt.parse(text)
    async with call.session.hand.using(text) as renewed:
        if renewed is None:
            receipt.check_time(call.now_ms())
        yield renewed or receipt


async def change_invisible_duration(
    call: Call, request: pb.ChangeInvisibleDurationRequest
) -> pb.ChangeInvisibleDurationResponse:
    """Change the time until a message is visible again; the answer has its new handle."""
    topic, group = call.session.topic(request.topic), call.session.group(request.group)
    invisible_ms = milliseconds(request.invisible_duration)
    check_invisible(invisible_ms, 0, call.config.max_invisible_time_mills)
    async with _current(call, request.receipt_handle) as receipt:
        changed = await receipt.change(call.session, topic, group, invisible_ms)
    return pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(changed))


async def forward_to_dead_letters(
    call: Call, request: pb.ForwardMessageToDeadLetterQueueRequest
) -> pb.ForwardMessageToDeadLetterQueueResponse:
    """Move a message to the group's dead-letter topic."""
    topic, group = call.session.topic(request.topic), call.session.group(request.group)
    async with _current(call, request.receipt_handle) as receipt:
        await to_dead_letters(call.session, topic, group, receipt, request.message_id)
    return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)


async def to_dead_letters(session: Session, topic: str, group: str, receipt: Receipt, message_id: str) -> None:
    """Put a message into the group's dead-letter topic, then acknowledge it. Raises as `Session.call`."""
    header = ConsumerSendMsgBackRequestHeader(
        receipt.physical_offset, group, -1, message_id, receipt.stored_topic(topic, group), max_reconsume_times=0
    )
    await session.call(topic, receipt.handle.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header)
    await receipt.acknowledge(session, topic, group)
