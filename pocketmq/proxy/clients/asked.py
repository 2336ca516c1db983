"""Requests of brokers to a client, passed on by its telemetry stream. Each handler gets the session as its services."""

import asyncio
import time
from collections.abc import Coroutine

from google.protobuf.message import DecodeError

from pocketmq.proxy.clients.session import Session
from pocketmq.proxy.messages.outgoing import message_of
from pocketmq.proxy.messages.transaction_id import TransactionId
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import CommandHeader, NoHeader
from pocketmq.remoting.headers.query import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record

_tasks: set[asyncio.Task[None]] = set()
_VERDICTS = {pb.OK: "CR_SUCCESS", pb.FAILED_TO_CONSUME_MESSAGE: "CR_LATER"}


def _later(work: Coroutine[None, None, Response]) -> Deferred:
    """Answer with the result of `work`; a failure becomes a refusal."""
    deferred = Deferred()

    async def run() -> None:
        try:
            deferred.complete(await work)
        except RemotingError as refusal:
            deferred.complete(Response(refusal.code, remark=refusal.remark))
        except TimeoutError:
            deferred.complete(Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark="the client did not answer in time"))
        except (OSError, DecodeError) as failure:
            deferred.complete(Response(ResponseCode.SYSTEM_ERROR, remark=clipped(failure)))

    task = asyncio.ensure_future(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return deferred


def _record(body: bytes) -> Record:
    try:
        return decode_record(memoryview(body))
    except (BadRecordError, ValueError) as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the body is not one message: {clipped(error)}") from None


def check_transaction_state(session: Session, request: Request[CheckTransactionStateRequestHeader]) -> None:
    """Ask the producer about an open transaction; it answers by EndTransaction. The request is oneway."""
    _later(_recover(session, request.header, _record(request.body), request.channel.remote_address))


async def _recover(session: Session, header: CheckTransactionStateRequestHeader, record: Record, address: str) -> Response:
    properties = decode_properties(record.properties)
    topic = properties.get("REAL_TOPIC") or record.topic.decode(errors="replace")
    message = message_of(record, topic)
    transaction_id = TransactionId(
        await session.upstream.broker_at(topic, address),
        header.commit_log_offset,
        header.tran_state_table_offset,
        properties.get("PGROUP", topic),
        header.transaction_id or message.system_properties.message_id,
    )
    command = pb.RecoverOrphanedTransactionCommand(message=message, transaction_id=str(transaction_id))
    if session.write is not None:
        await session.write(pb.TelemetryCommand(recover_orphaned_transaction_command=command))
    return Response()


def get_consumer_running_info(session: Session, request: Request[ConsumerRunningInfoRequestHeader]) -> Deferred:
    """Return what is known of the consumer, and if asked for its stacks, which it prints itself."""
    return _later(_running_info(session, request.header.jstack_enable))


async def _running_info(session: Session, with_stacks: bool) -> Response:
    settings = session.settings
    subscriptions = session.heartbeat_data().consumer_data_set
    properties = {
        "PROP_CLIENT_VERSION": "" if settings is None else settings.user_agent.version,
        "PROP_CONSUME_TYPE": str(subscriptions[0].consume_type) if subscriptions else "CONSUME_ACTIVELY",
        "PROP_CONSUMEORDERLY": str(settings is not None and settings.subscription.fifo).lower(),
        "PROP_THREADPOOL_CORE_SIZE": "0",
        "PROP_CONSUMER_START_TIMESTAMP": str(session.since_ms),
    }
    info = {
        "properties": properties,
        "subscriptionSet": subscriptions[0].subscription_data_set if subscriptions else [],
        "mqTable": {},
        "mqPopTable": {},
        "statusTable": {},
    }
    if with_stacks:
        command = pb.TelemetryCommand(print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand())
        answer = await session.ask(command, "print_thread_stack_trace_command")
        info["jstack"] = answer.thread_stack_trace.thread_stack_trace or answer.status.message
    return Response(body=fastjson.dumps(info))


def consume_message_directly(session: Session, request: Request[ConsumeMessageDirectlyRequestHeader]) -> Deferred:
    """Have the client consume the message in the body, and return its verdict."""
    return _later(_verified(session, _record(request.body)))


async def _verified(session: Session, record: Record) -> Response:
    message = message_of(record, record.topic.decode(errors="replace"))
    command = pb.TelemetryCommand(verify_message_command=pb.VerifyMessageCommand(message=message))
    began_s = time.monotonic()
    answer = await session.ask(command, "verify_message_command")
    verdict = {
        "autoCommit": True,
        "consumeResult": _VERDICTS.get(answer.status.code, "CR_THROW_EXCEPTION"),
        "order": False,
        "remark": clipped(answer.status.message),
        "spentTimeMills": int((time.monotonic() - began_s) * 1000),
    }
    return Response(body=fastjson.dumps(verdict))


def ignored(session: Session, request: Request[CommandHeader]) -> None:
    """Ignore a request that concerns the allocation of queues, which is the broker's in pop consumption."""


ROUTES = routes(
    Route(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, check_transaction_state),
    Route(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NoHeader, ignored),
    Route(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, NoHeader, ignored),
    Route(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader, get_consumer_running_info),
    Route(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, consume_message_directly),
)
