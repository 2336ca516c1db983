"""Locks on queues for consumers that read in order."""

from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Route, request_body, routes
from pocketmq.remoting.header import NoHeader


def lock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Lock what can be locked; the answer lists the queues that the client holds now."""
    body = request_body(request, LockBatchBody)
    locked = services.locks.lock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response(body=encode_body(LockOkBody(locked)))


def unlock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Free the queues that the client holds."""
    body = request_body(request, LockBatchBody)
    services.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response()


ROUTES = routes(
    Route(RequestCode.LOCK_BATCH_MQ, NoHeader, lock_batch_mq),
    Route(RequestCode.UNLOCK_BATCH_MQ, NoHeader, unlock_batch_mq),
)
