"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks of consumers that consume in order."""

from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Route, request_body, routes
from pocketmq.remoting.header import NoHeader


def lock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Lock the queues that can be locked; the answer lists those that the client now holds.

    Unlike in Apache, a queue that this broker does not have is not locked: nothing can be pulled from it, and a peer could
    make up any number of them.
    """
    body = request_body(request, LockBatchBody)
    queues = [queue for queue in body.mq_set if _exists(services, queue)]
    locked = services.locks.lock_batch(body.consumer_group, queues, body.client_id)
    return Response(body=encode_body(LockOkBody(locked)))


def _exists(services: Services, queue: MessageQueue) -> bool:
    config = services.topics.get(queue.topic)
    return config is not None and 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)


def unlock_batch_mq(services: Services, request: Request[NoHeader]) -> Response:
    """Unlock the queues that the client holds."""
    body = request_body(request, LockBatchBody)
    services.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
    return Response()


ROUTES = routes(
    Route(RequestCode.LOCK_BATCH_MQ, NoHeader, lock_batch_mq),
    Route(RequestCode.UNLOCK_BATCH_MQ, NoHeader, unlock_batch_mq),
)
