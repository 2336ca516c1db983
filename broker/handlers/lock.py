"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks of consumers that consume in order."""

from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Route, request_body, routes
from pocketmq.remoting.header import NoHeader


def lock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Lock the queues that can be locked; the answer lists those that the client now holds."""
    body = request_body(request, LockBatchBody)
    locked = services.locks.lock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response(body=encode_body(LockOkBody(locked)))


def unlock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Unlock the queues that the client holds."""
    body = request_body(request, LockBatchBody)
    services.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response()


ROUTES = routes(
    Route(RequestCode.LOCK_BATCH_MQ, NoHeader, lock_batch_mq),
    Route(RequestCode.UNLOCK_BATCH_MQ, NoHeader, unlock_batch_mq),
)
