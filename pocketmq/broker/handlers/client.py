"""Client life cycle: HEART_BEAT, UNREGISTER_CLIENT, members of a group, CHECK_CLIENT_CONFIG.

LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks of consumers that consume in order.
"""

import logging

from pocketmq.broker.clients.client_registry import NAME_SIZE_MAX, ClientChannelInfo
from pocketmq.broker.filter.expression_filter import expression_filter
from pocketmq.broker.filter.subscription import is_tag_type, refusal, split_tags
from pocketmq.broker.handlers.consuming import compiling
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.broker.polling.lock_polling import locked_answer
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import TOPIC_SYS_FLAG_UNIT_SUB
from pocketmq.remoting.after_write import Work, answer_in_slices, when_written
from pocketmq.remoting.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockOkBody,
    MessageQueue,
    encode_body,
)
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader, UnregisterClientRequestHeader

log = logging.getLogger("broker")


def heart_beat(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Refresh a client in all its groups. The first heartbeat of a group creates its config and its retry topic.

    The answer comes once both are on disk and the topic is registered. If a group exceeds a limit, the heartbeat is refused
    after its other groups are handled.
    """
    data = request_body(request, HeartbeatData)
    _check_limits(services, data)
    admitted, retry_topics, refused = _create_groups(services, data)
    written = {services.groups.unwritten(retry_topic.removeprefix(RETRY_PREFIX)) for retry_topic in retry_topics}
    registered = answer_in_slices(services.slices, request, _register(services, request, data, admitted, refused))
    return services.gate.when_routed(when_written(registered, *written), *retry_topics)


def _create_groups(services: Services, data: HeartbeatData) -> tuple[list[ConsumerData], list[str], RemotingError | None]:
    """Create the groups of a heartbeat that do not exist.

    Return the consumers whose groups can be served, the retry topics, and the refusal where there is no room for a group.
    """
    admitted, retry_topics = [], []
    refused: RemotingError | None = None
    has_room = True
    for consumer in data.consumer_data_set:
        is_new = consumer.group_name not in services.groups.table
        if is_new and not has_room:
            continue  # refuse only once: each refusal costs as much as a group
        try:
            group_config = services.groups.find(consumer.group_name)
        except RemotingError as error:
            refused, has_room = error, False
            continue
        try:
            if group_config is not None:
                sys_flag = TOPIC_SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0
                retry_topic = RETRY_PREFIX + consumer.group_name
                retry_topics.append(retry_topic)
                services.topics.create_on_send_back(
                    retry_topic, group_config.retry_queue_nums, topic_sys_flag=sys_flag, is_counted=is_new
                )
        except RemotingError as error:
            refused = error
            continue
        admitted.append(consumer)
    return admitted, retry_topics, refused


def _register(
    services: Services,
    request: Request[NoHeader],
    data: HeartbeatData,
    consumers: list[ConsumerData],
    refused: RemotingError | None,
) -> Work:
    """Register a client in its groups, one a step, while it is connected.

    Raises RemotingError at a limit, and `refused` at the end.
    """
    clients, channel = services.clients, request.channel
    client = ClientChannelInfo(channel, data.client_id, request.language, request.version)
    for consumer in consumers:
        clients.register_consumer(consumer, client)
        if services.config.enable_property_filter:
            for _ in services.filters.register(consumer.group_name, consumer.subscription_data_set):
                yield
                if not channel.is_open:
                    return None
        yield
        if not channel.is_open:
            return None
    for producer in data.producer_data_set:
        clients.register_producer(producer.group_name, client)
        yield
        if not channel.is_open:
            return None
    if refused is not None:
        raise refused
    return None


def _check_limits(services: Services, data: HeartbeatData) -> None:
    """Raises RemotingError for a heartbeat beyond the limits of a client."""
    config = services.config
    names = [one.group_name for one in data.consumer_data_set] + [one.group_name for one in data.producer_data_set]
    subscription_count = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
    for key, value_max, count in (
        ("maxGroupsPerHeartbeat", config.max_groups_per_heartbeat, len(names)),
        ("maxSubscriptionsPerHeartbeat", config.max_subscriptions_per_heartbeat, subscription_count),
    ):
        if count > value_max:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{key}={value_max}: this heartbeat has {count}")
    for what, name in (("clientID", data.client_id), *(("group name", name) for name in names)):
        if len(name) > NAME_SIZE_MAX:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"{what} has {len(name)} characters, the limit is {NAME_SIZE_MAX}"
            )


def unregister_client(services: Services, request: Request[UnregisterClientRequestHeader]) -> Response:
    """Remove a client from a producer group, a consumer group or both."""
    header = request.header
    if header.producer_group is not None:
        services.clients.unregister_producer(header.producer_group, request.channel)
    if header.consumer_group is not None:
        _unregister_consumer(services, header.consumer_group, request.channel)
    return Response()


def _unregister_consumer(services: Services, group: str, channel: Channel) -> None:
    """Remove a consumer from its group, and free the queues that it has locked."""
    client_id = services.clients.unregister_consumer(group, channel)
    if client_id is None:
        return
    services.lock_holds.client_left(group, channel)
    holder = services.locks.find(group, client_id)
    if holder is not None and not services.clients.has_client(group, client_id):
        services.locks.release(holder)


def get_consumer_list_by_group(services: Services, request: Request[ConsumerGroupRequestHeader]) -> Response:
    """Return the ids of a group's consumers, from which clients compute the queue allocation."""
    name = request.header.consumer_group
    found = services.clients.consumers.get(name)
    group = existing(found, ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return Response(body=encode_body(ConsumerIdList(group.client_ids())))


@compiling
def check_client_config(services: Services, request: Request[NoHeader]) -> Response:
    """Check that a consumer's subscription is valid here; consumers call this before they start."""
    subscription = request_body(request, CheckClientRequestBody).subscription_data
    if subscription is None:
        return Response()
    expression_type, expression = subscription.expression_type, subscription.sub_string
    is_tag = is_tag_type(expression_type)
    if not is_tag and not services.config.enable_property_filter:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, refusal(expression_type))
    with refused_as(ResponseCode.SUBSCRIPTION_PARSE_FAILED):
        if is_tag:
            split_tags(expression)
        else:
            expression_filter(expression_type, expression, services.config.max_filter_expression_length)
    return Response()


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
    Route(RequestCode.HEART_BEAT, NoHeader, heart_beat),
    Route(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, unregister_client),
    Route(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader, get_consumer_list_by_group),
    Route(RequestCode.CHECK_CLIENT_CONFIG, NoHeader, check_client_config),
    Route(RequestCode.LOCK_BATCH_MQ, NoHeader, lock_batch_mq),
    Route(RequestCode.UNLOCK_BATCH_MQ, NoHeader, unlock_batch_mq),
)
