"""PULL_MESSAGE and LITE_PULL_MESSAGE: checks, reading, and holding of pulls that find nothing.

The bodies of an answer are views of the mapped log files and go to the socket without a copy.
"""

import logging
from functools import partial
from time import monotonic
from typing import Any, Final

from pocketmq.broker.filter.expression_filter import ExpressionFilter, RetryFilter
from pocketmq.broker.filter.subscription import Wanted, is_tag_type, refusal, wants_all
from pocketmq.broker.handlers.consuming import check_broker, check_group, check_topic, compiling, forbid, no_queue, wanted
from pocketmq.broker.names import OFFSET_MOVED_EVENT, RETRY_PREFIX
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_READ
from pocketmq.remoting.bodies import MessageQueue, OffsetMovedEvent, SubscriptionGroupConfig, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.store.format.message import GetResult, GetStatus, Message
from pocketmq.store.format.properties import DELAY, KEYS, TAGS, encode_properties
from pocketmq.store.queue.record_filter import NotCompiled, RecordFilter

log = logging.getLogger("broker")

COMMIT_OFFSET_FLAG: Final = 0x1
SUSPEND_FLAG: Final = 0x2
SUBSCRIPTION_FLAG: Final = 0x4

_MASTER_ID: Final = 0
_SLAVE_ID: Final = 1
"""Default of whichBrokerWhenConsumeSlowly."""
_FOUND: Final = GetStatus.FOUND
_SUCCESS: Final = ResponseCode.SUCCESS
_PULL_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_PULL_OFFSET_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
_CODES: Final = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@compiling
def pull_message(services: Services, request: Request[PullMessageRequestHeader]) -> Response | Deferred:
    """Answer a pull, or hold it when there is no message and the client can wait."""
    if services.holds.is_stopped:
        return _hand_over(services, request.header)
    header = request.header
    sys_flag = header.sys_flag
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    matches = filter_of(services, header, check_pull(services, group, topic, queue_id, request.channel))
    services.absent_holders.note_activity(group, topic, queue_id)
    response = _read(services, header, matches)
    if sys_flag & COMMIT_OFFSET_FLAG and services.is_master:
        services.offsets.commit(group, topic, queue_id, header.commit_offset)
    if response.code == _PULL_NOT_FOUND and sys_flag & SUSPEND_FLAG:
        config = services.config
        timeout_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
        held = services.holds.hold(
            topic,
            queue_id,
            header.queue_offset,
            matches,
            timeout_ms / 1000,
            request.channel,
            partial(_pull_again, services, request, matches),
            request.size + (matches.size if isinstance(matches, RecordFilter) else 0),
        )
        if held is not None:
            request.drop_content()
            return held
    return response


def lite_pull_message(services: Services, request: Request[PullMessageRequestHeader]) -> Response | Deferred:
    """Answer a pull of 5.x's lite consumers, which litePullMessageEnable can forbid."""
    if not services.config.lite_pull_message_enable:
        forbid(f"the broker[{services.broker_address}] does not serve lite pull consumers (litePullMessageEnable=false)")
    return pull_message(services, request)


def _pull_again(services: Services, request: Request[PullMessageRequestHeader], own: Wanted) -> Response:
    """Serve a held pull. It is checked again, because permissions may have changed, but its commit is not repeated. `own` is
    its filter, which the group's heartbeats may have changed unless it came with the request."""
    header = request.header
    group_config = check_pull(services, header.consumer_group, header.topic, header.queue_id, request.channel)
    try:
        matches = own if header.sys_flag & SUBSCRIPTION_FLAG else _heartbeat_filter(services, header, group_config)
        return _read(services, header, matches)
    except NotCompiled:  # the consumer pulls again, which compiles it
        answer = _offsets(services, header, header.queue_offset)
        return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, answer, remark="the group's expression changed")


def _read(services: Services, header: PullMessageRequestHeader, matches: Wanted) -> Response:
    group, topic, queue_id, queue_offset = header.consumer_group, header.topic, header.queue_id, header.queue_offset
    offsets = services.offsets
    if offsets.resets:
        consumer_offset = offsets.take_reset(group, topic, queue_id)
        if consumer_offset is not None and consumer_offset != queue_offset:
            # Clients drop their messages of the queue and continue there after 10 s.
            return Response(_PULL_OFFSET_MOVED, _offsets(services, header, consumer_offset), remark="OFFSET_RESET")
    began_s = monotonic()
    result = services.store.reader.get_message(topic, queue_id, queue_offset, header.max_msg_nums, matches)
    status, next_offset = result.status, result.next_begin_offset
    key = group, topic, queue_id
    offsets.pulled(key, next_offset)
    broker_id = _suggested_broker(services, header, result) if services.config.slave_read_enable else _MASTER_ID
    answer = PullMessageResponseHeader(broker_id, next_offset, result.min_offset, result.max_offset)
    if status is _FOUND:
        if services.ha_client is not None and not services.ha_client.is_connected:
            answer.suggest_which_broker_id = services.config.broker_id  # the master is away: keep reading here
        took_s = monotonic() - began_s
        services.stats.get(key, result.count, result.size, took_s, result.from_disk)
        return Response(_SUCCESS, answer, result.views, "FOUND")
    services.stats.misses += 1
    code = _CODES.get(status)
    if code is None:
        if topic in services.store.commit_log.refused_topics:
            forbid(services.store.commit_log.refused_topics[topic])
        # A queue without messages, or one not written yet, which Apache's look-up would create.
        code = ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
        status = GetStatus.NO_MESSAGE_IN_QUEUE
    if code is _PULL_OFFSET_MOVED and services.store.config.is_slave and not services.store.config.offset_check_in_slave:
        # The slave may lack what its master has, so it does not move consumers; they ask the group's broker.
        answer.next_begin_offset, answer.suggest_which_broker_id = queue_offset, _group_broker(services, header)
        return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, answer, remark=status.value)
    if code is _PULL_OFFSET_MOVED:
        _store_offset_moved(services, header, next_offset)
    return Response(code, answer, remark=status.value)


def _store_offset_moved(services: Services, header: PullMessageRequestHeader, offset_new: int) -> None:
    """Store an OFFSET_MOVED_EVENT, for `mqadmin startMonitoring`: a pull out of range was redirected to `offset_new`.

    Its form is 4.9.4's (PullMessageProcessor.generateOffsetMovedEvent). If it cannot be stored, the pull is answered anyway.
    """
    if services.store.config.is_slave:
        return
    queue = MessageQueue(services.config.broker_name, header.queue_id, header.topic)
    event = OffsetMovedEvent(header.consumer_group, queue, header.queue_offset, offset_new)
    properties = {KEYS: header.consumer_group, DELAY: "0", TAGS: header.consumer_group}
    message = Message(
        OFFSET_MOVED_EVENT, 0, encode_body(event), services.store_host, services.store_host,
        born_timestamp_ms=services.clock.message_time_ms(), properties=properties,
        properties_bytes=encode_properties(properties).encode(),
    )  # fmt: skip
    try:
        services.putter.put(message)
    except RemotingError as error:
        log.debug("the OFFSET_MOVED_EVENT of group %s cannot be stored: %s", header.consumer_group, error.remark)
    services.turn.arm()  # a held pull is served after this turn's DISPATCH phase


def _hand_over(services: Services, header: PullMessageRequestHeader) -> Response:
    """Redirect a consumer of this stopping master to a slave, so that it need not wait for another route. Raises
    RemotingError if no slave has the log: the client then tries again after 3 s, when the connection is closed or
    replaced."""
    if services.ha is None or not services.ha.has_successor:
        raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, f"the broker[{services.broker_address}] is stopping")
    group = services.groups.get(header.consumer_group)
    slave_id = _SLAVE_ID if group is None else group.which_broker_when_consume_slowly
    answer = _offsets(services, header, header.queue_offset, slave_id)
    return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, answer, remark="the master is stopping: pull from its slave")


def _suggested_broker(services: Services, header: PullMessageRequestHeader, result: GetResult) -> int:
    """Return the id of the broker to pull from next: another one if the records lie too far behind the log's end."""
    last = services.store.unit_at(header.topic, header.queue_id, result.next_begin_offset - 1)
    if last is not None and not services.store.reader.is_in_memory(last[0]):
        group = services.groups.get(header.consumer_group)
        return _SLAVE_ID if group is None else group.which_broker_when_consume_slowly
    return _group_broker(services, header)


def _group_broker(services: Services, header: PullMessageRequestHeader) -> int:
    group = services.groups.get(header.consumer_group)
    return _MASTER_ID if group is None else group.broker_id


def _offsets(
    services: Services, header: PullMessageRequestHeader, next_offset: int, broker_id: int = _MASTER_ID
) -> PullMessageResponseHeader:
    """Return the header of an answer without messages."""
    store, topic, queue_id = services.store, header.topic, header.queue_id
    min_offset, max_offset = max(store.min_offset(topic, queue_id), 0), store.max_offset(topic, queue_id)
    return PullMessageResponseHeader(broker_id, next_offset, min_offset, max_offset)


def check_pull(services: Services, group: str, topic: str, queue_id: int, channel: Any) -> SubscriptionGroupConfig:
    """Make the checks of a pull in Apache's order and return the group's config. Raises RemotingError."""
    group_config, topic_config = services.groups.get(group), services.topics.get(topic)
    if (
        group_config is not None
        and topic_config is not None
        and group_config.consume_enable
        and topic_config.perm & services.config.broker_permission & PERM_READ
        and 0 <= queue_id < topic_config.read_queue_nums
    ):
        return group_config  # the checks below, which say what is wrong, would all pass
    check_broker(services, "pulling")
    group_config = check_group(services, group)
    topic_config = check_topic(services, topic, "pulling")
    if not 0 <= queue_id < topic_config.read_queue_nums:
        remark = f"{no_queue(topic, queue_id, topic_config)} consumer:[{channel.remote_address}]"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return group_config


def filter_of(services: Services, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig) -> Wanted:
    """Return the filter of a pull. Raises RemotingError and NotCompiled."""
    if not header.sys_flag & SUBSCRIPTION_FLAG:
        return _heartbeat_filter(services, header, group_config)
    if wants_all(header.expression_type, header.subscription):
        return None
    return wanted(services, header.expression_type, header.subscription)


def _heartbeat_filter(services: Services, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig) -> Wanted:
    """Return the filter of the group's subscription from its heartbeats. Raises RemotingError."""
    group = services.clients.consumers.get(header.consumer_group)
    if group is None:
        raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    if not group_config.consume_broadcast_enable and group.is_broadcasting:
        forbid(f"the consumer group[{header.consumer_group}] can not consume by broadcast way")
    subscription = group.subscriptions.get(header.topic)
    if subscription is None:
        raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if subscription.sub_version < header.sub_version:
        raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if not is_tag_type(subscription.expression_type):
        return _registered_filter(services, header, subscription.expression_type)
    matches = wanted(services, None, subscription.sub_string)
    if matches is None and services.config.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
        return RetryFilter(partial(_filter_of_group, services, header.consumer_group))
    return matches


def _registered_filter(services: Services, header: PullMessageRequestHeader, expression_type: str) -> RecordFilter:
    """Return the SQL92 filter from the group's heartbeats. Raises RemotingError."""
    if not services.config.enable_property_filter:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, refusal(expression_type))
    data = services.filters.get(header.topic, header.consumer_group)
    record_filter = None if data is None else _filter_of_group(services, header.consumer_group, header.topic)
    if data is None or record_filter is None:
        remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
        raise RemotingError(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    if data.client_version < header.sub_version:
        raise RemotingError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    return record_filter


def _filter_of_group(services: Services, group: str, topic: str) -> ExpressionFilter | None:
    try:
        return services.filters.record_filter(topic, group)
    except ValueError:  # from an older file: invalid expressions of heartbeats are not registered
        return None


ROUTES = routes(
    Route(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, pull_message),
    Route(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader, lite_pull_message),
)
