"""END_TRANSACTION, by which a producer commits or rolls back a half message, and RESUME_CHECK_HALF_MESSAGE, by which a tool
restarts the checks of a half message that was given up."""

import logging
from typing import Final

from pocketmq.broker.handlers.refusing import refused_as
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.broker.services import Services
from pocketmq.broker.transaction.transaction_half import HalfMessage
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from pocketmq.store.format.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_NOT_TYPE, TRANSACTION_ROLLBACK_TYPE

log = logging.getLogger("broker")

_ENDINGS: Final = (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE)


def end_transaction(services: Services, request: Request[EndTransactionRequestHeader]) -> Response | Deferred | None:
    """Commit or roll back a half message. "Not known yet" is not answered, as in Apache: the producer is checked later.

    A client that waits for the answer to a commit (Apache's clients do not) can rely on it: under SYNC_FLUSH the message is
    on disk by then. A lost rollback does no harm: nothing is delivered without a commit.
    """
    header = request.header
    ending = header.commit_or_rollback
    if ending not in _ENDINGS:
        remark = f"commitOrRollback={ending} is neither 8 (commit) nor 12 (roll back) nor 0 (not known yet)"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    if ending == TRANSACTION_NOT_TYPE:
        log.debug("the outcome of transaction %s is not known yet at %s", header.msg_id, request.channel.remote_address)
        return None
    half = _half_message(services, header)
    if ending == TRANSACTION_COMMIT_TYPE:
        end_offset = services.transactions.commit(half)
        if services.gate.is_open or request.is_oneway:
            return Response()
        return services.gate.when_done(Response(), end_offset=end_offset, is_replicated=False)
    services.transactions.roll_back(half)
    return Response()


def _half_message(services: Services, header: EndTransactionRequestHeader) -> HalfMessage:
    """Return the half message that the request names. Raises RemotingError with Apache's remarks if it does not match."""
    try:
        half = services.transactions.find(header.commit_log_offset)
    except ValueError as error:
        remark = f"Find prepared transaction message failed (commitLogOffset={header.commit_log_offset}: {error})"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from None
    if half.producer_group != header.producer_group:
        remark = f"The producer group wrong (producerGroup={header.producer_group}, prepared by {half.producer_group})"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    if half.queue_offset != header.tran_state_table_offset:
        remark = f"The transaction state table offset wrong ({header.tran_state_table_offset}, not {half.queue_offset})"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return half


def resume_check_half_message(services: Services, request: Request[ResumeCheckHalfMessageRequestHeader]) -> Response:
    """Restart the checks of a half message that was given up; it is in TRANS_CHECK_MAX_TIME_TOPIC."""
    message_id = request.header.msg_id
    what = f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. (msgId={message_id}: "
    with refused_as(ResponseCode.SYSTEM_ERROR, what, ")"):
        services.transactions.resume(decode_message_id(message_id)[1])
    return Response()


ROUTES = routes(
    Route(RequestCode.END_TRANSACTION, EndTransactionRequestHeader, end_transaction),
    Route(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader, resume_check_half_message),
)
