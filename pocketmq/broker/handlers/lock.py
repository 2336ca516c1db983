"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks of consumers that consume in order."""

from pocketmq.broker.polling.lock_polling import locked_answer
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, encode_body
from pocketmq.remoting.codes import FLAG_ONEWAY, RequestCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Route, request_body, routes
from pocketmq.remoting.header import NoHeader


def lock_batch_mq(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Lock the queues that can be locked; the answer lists them, and those that the client locked shortly before.

    If a live client holds one of them, the answer waits a moment for that client to unlock it. A client that has
    unregistered gets no lock, since it would keep others from the queue until the lock expires.

    Unlike in Apache, a queue that this broker does not have is not locked: nothing can be pulled from it, and a peer could
    make up any number of them.
    """
    body = request_body(request, LockBatchBody)
    group, channel = body.consumer_group, request.channel
    if services.clients.has_left(group, body.client_id, channel):
        return Response(body=encode_body(LockOkBody()))
    queues = [queue for queue in body.mq_set if _exists(services, queue)]
    locked = services.locks.lock_batch(group, queues, body.client_id, channel)
    services.absent_holders.asked(group, body.client_id, channel)
    if len(locked) < len(queues):
        held = _hold(services, request, body, queues, set(queues).difference(locked))
        if held is not None:
            return held
        services.clients.lock_refused(group, channel, has_waited=False)
    return locked_answer(services.locks, group, body.client_id, locked)


def _hold(
    services: Services, request: Request[NoHeader], body: LockBatchBody, queues: list[MessageQueue],
    refused: set[MessageQueue],
) -> Deferred | None:  # fmt: skip
    """Hold a request until live clients free the queues that they hold; return None if it must be answered at once."""
    group, channel, wait_ms = body.consumer_group, request.channel, services.config.lock_wait_millis
    if not wait_ms or request.flag & FLAG_ONEWAY or not services.clients.may_wait_for_locks(group, channel):
        return None
    holders = {queue: services.locks.holder_of(group, queue) for queue in refused}
    missing = [queue for queue, holder in holders.items() if holder is not None and holder not in services.absent_holders]
    if not missing:
        return None
    return services.lock_holds.hold(group, body.client_id, queues, missing, channel, wait_ms / 1000, request.size)


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
