"""Locks on queues for consumers that read in order."""

from broker.services import Services
from remoting.bodies import LockBatchBody, LockOkBody, decode_body, encode_body
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Request, Response
from remoting.dispatch import RemotingError, Route, routes
from remoting.header import NoHeader


def lock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Lock what can be locked; the answer lists the queues that the client holds now."""
    body = _body(request)
    locked = services.locks.lock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response(body=encode_body(LockOkBody(locked)))


def unlock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Free the queues that the client holds."""
    body = _body(request)
    services.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response()


def _body(request: Request[NoHeader]) -> LockBatchBody:
    try:
        return decode_body(LockBatchBody, request.body)
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"body of code {request.code}: {error}") from None


ROUTES = routes(
    Route(RequestCode.LOCK_BATCH_MQ, NoHeader, lock_batch_mq),
    Route(RequestCode.UNLOCK_BATCH_MQ, NoHeader, unlock_batch_mq),
)
