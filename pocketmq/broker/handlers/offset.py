"""Consumer offsets, minimum and maximum offsets of queues, and offsets by time.

INVOKE_BROKER_TO_RESET_OFFSET: a tool sets the consumer offsets of a group back or forward.

With `useServerSideResetOffset`, as in 5.x, the broker sets the offsets, and the next pull of each queue is answered with the
new one. Without it, as in 4.9.4, the broker sends the offsets to the connected consumers, which commit them later.
"""

from collections.abc import Generator, Iterator
from typing import Final

from pocketmq.broker.handlers.refusing import existing
from pocketmq.broker.handlers.relay import check_versions
from pocketmq.broker.services import Services
from pocketmq.broker.tables.subscription_group import group_problem
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import Work, answer_in_slices
from pocketmq.remoting.bodies import MessageQueue, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.store.queue.time_search import Boundary


def query_consumer_offset(services: Services, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
    """Return a consumer offset. As in Apache it is 0 for a new group on a queue whose first message is still in memory.

    Otherwise, or if the client does not want such a 0 (5.x: setZeroIfNotFound), the answer is QUERY_NOT_FOUND (22), and the
    client starts according to its consumeFromWhere.
    """
    topic, queue_id = request.header.topic, request.header.queue_id
    consumer_offset = services.offsets.query(request.header.consumer_group, topic, queue_id)
    if consumer_offset < 0:
        may_be_zero = request.header.set_zero_if_not_found is not False and services.store.min_offset(topic, queue_id) <= 0
        if not may_be_zero or _is_on_disk(services, topic, queue_id):
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            raise RemotingError(ResponseCode.QUERY_NOT_FOUND, remark)
        consumer_offset = 0
    return Response(header=OffsetResponseHeader(consumer_offset))


def _is_on_disk(services: Services, topic: str, queue_id: int) -> bool:
    """Whether message 0 is so old that it must be read from disk (accessMessageInMemoryMaxRatio)."""
    unit = services.store.unit_at(topic, queue_id, 0)
    return unit is not None and not services.store.reader.is_in_memory(unit[0])


def update_consumer_offset(services: Services, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
    """Commit a consumer offset; a lower one than before is allowed. Refused for an unknown topic (as in 5.x) or queue,
    because nothing would ever delete that offset."""
    header = request.header
    topic, queue_id = header.topic, header.queue_id
    topic_config = existing(services.topics.get(topic), ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.200}] not exist")
    problem = group_problem(header.consumer_group)
    if problem is not None:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR, f"consumer group {header.consumer_group[:200]!r}: its retry {problem}"
        )
    queue_nums = max(topic_config.read_queue_nums, topic_config.write_queue_nums)
    if not 0 <= queue_id < queue_nums and services.offsets.query(header.consumer_group, topic, queue_id) < 0:
        remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queue_nums} queues"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    services.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    services.absent_holders.note_activity(header.consumer_group, topic, queue_id)
    return Response()


def search_offset_by_timestamp(services: Services, request: Request[SearchOffsetRequestHeader]) -> Response:
    """Return the offset for a time by 5.x's rule; 4.9's clients, which name no boundary, get the lower one."""
    header = request.header
    # As in 5.x, any value other than UPPER means LOWER.
    boundary = Boundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else Boundary.LOWER
    found = services.store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
    return Response(header=OffsetResponseHeader(found))


def get_max_offset(services: Services, request: Request[QueueRequestHeader]) -> Response:
    """Return the offset of the next message; 0 for a queue without messages."""
    header = request.header
    return Response(header=OffsetResponseHeader(services.store.max_offset(header.topic, header.queue_id)))


def get_min_offset(services: Services, request: Request[QueueRequestHeader]) -> Response:
    """Return the minimum offset of a queue; 0 for a queue not written yet, because Apache's look-up creates it."""
    header = request.header
    return Response(header=OffsetResponseHeader(max(services.store.min_offset(header.topic, header.queue_id), 0)))


def get_earliest_msg_storetime(services: Services, request: Request[QueueRequestHeader]) -> Response:
    """Return the store time of the queue's first message, or -1."""
    header = request.header
    return Response(header=TimestampResponseHeader(services.store.earliest_store_timestamp(header.topic, header.queue_id)))


_CPP: Final = ("CPP", 1)
_READ_MAPS: Final = ("JAVA", 0, "GO", 9)
"""Languages of clients that cannot read a list of offsets: Java's ignores it, Go's panics."""


def reset_offset(services: Services, request: Request[ResetOffsetRequestHeader]) -> Response | Deferred:
    """Reset the offsets of a group; the answer has the new offset of each queue."""
    header = request.header
    if services.config.use_server_side_reset_offset:
        return answer_in_slices(services.slices, request, _set_offsets(services, header))
    if _queue_id(header) >= 0:
        remark = f"queueId={header.queue_id}: a single queue can be reset only if useServerSideResetOffset=true"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return answer_in_slices(services.slices, request, _notify_consumers(services, request))


def _set_offsets(services: Services, header: ResetOffsetRequestHeader) -> Work:
    """Set the offsets as 5.x does, but wake held pulls at once, and respect isForce=false, as 4.9, if no queue is named."""
    topic, group, offsets = header.topic, header.group, services.offsets
    config = existing(services.topics.get(topic), ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] does not exist")
    remark = f"subscription group[{group}] does not exist"
    existing(services.groups.get(group), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    table: dict[MessageQueue, int] = {}
    for queue_id, target in _targets(services, header, config):
        offsets.reset(group, topic, queue_id, target)
        table[MessageQueue(services.config.broker_name, queue_id, topic)] = target
        yield
    services.holds.wake_all(topic)
    services.pops.wake_all(topic)
    return Response(body=(yield from _offset_map(table)))


def _targets(services: Services, header: ResetOffsetRequestHeader, config: TopicConfig) -> Iterator[tuple[int, int]]:
    topic, queue_id = header.topic, _queue_id(header)
    if queue_id >= config.read_queue_nums:
        remark = f"topic[{topic}] has no queue {queue_id}: readQueueNums={config.read_queue_nums}"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    if queue_id < 0:
        for each in range(config.read_queue_nums):
            target, now = _offset_at(services, topic, each, header.timestamp), -1
            if not header.is_force:
                now = services.offsets.query(header.group, topic, each)
            yield each, target if now < 0 else min(target, now)
    elif header.offset is None or header.offset == -1:
        yield queue_id, _offset_at(services, topic, queue_id, header.timestamp)
    else:
        begin, end = max(services.store.min_offset(topic, queue_id), 0), services.store.max_offset(topic, queue_id)
        if not begin <= header.offset <= end:
            remark = f"offset={header.offset} is not within queue {queue_id} of topic[{topic}]: {begin} to {end}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        yield queue_id, header.offset


def _queue_id(header: ResetOffsetRequestHeader) -> int:
    """Return the queue to reset, or -1 for all."""
    return -1 if header.queue_id is None else header.queue_id


def _offset_at(services: Services, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """Return the offset of the first message at or after the time; the end of the queue for a negative time."""
    if timestamp_ms < 0:
        return services.store.max_offset(topic, queue_id)
    return max(services.store.offset_by_time(topic, queue_id, timestamp_ms), 0)


def _notify_consumers(services: Services, request: Request[ResetOffsetRequestHeader]) -> Work:
    """Send the offsets to the connected consumers. Without any, code 206 makes tools commit the offsets themselves."""
    header = request.header
    remark = f"[reset-offset] reset offset failed, no topic in this broker: {header.topic}"
    config = existing(services.topics.get(header.topic), ResponseCode.SYSTEM_ERROR, remark)
    table: dict[MessageQueue, int] = {}
    for queue_id in range(config.write_queue_nums):
        consumer_offset = services.offsets.query(header.group, header.topic, queue_id)
        if consumer_offset < 0:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        target = _offset_at(services, header.topic, queue_id, header.timestamp)
        if not header.is_force:
            target = min(target, consumer_offset)
        table[MessageQueue(services.config.broker_name, queue_id, header.topic)] = target
        yield
    place = f"Group: {header.group} Topic: {header.topic} Timestamp: {header.timestamp}"
    remark = f"Consumer not online, so can not reset offset, {place}"
    info = existing(services.clients.consumers.get(header.group), ResponseCode.CONSUMER_NOT_ONLINE, remark)
    check_versions(info.clients.values())
    push = ResetOffsetRequestHeader(header.topic, header.group, header.timestamp, False)
    as_map, as_list = (yield from _offset_map(table)), _offset_list(table)
    for client in info.clients.values():
        # C++ consumers cannot read the map. A tool that identifies as CPP asks for the list on their behalf.
        is_list = client.language in _CPP or (request.language in _CPP and client.language not in _READ_MAPS)
        client.channel.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, as_list if is_list else as_map)
    return Response(body=as_map)


def _offset_map(table: dict[MessageQueue, int]) -> Generator[None, None, bytes]:
    rows: list[bytes] = []
    for queue, queue_offset in table.items():
        rows.append(b"%b:%d" % (fastjson.object_key(queue.broker_name, queue.queue_id, queue.topic), queue_offset))
        yield
    return fastjson.dumps({"offsetTable": fastjson.joined_map(rows)})


def _offset_list(table: dict[MessageQueue, int]) -> bytes:
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic, "offset": queue_offset}
        for queue, queue_offset in table.items()
    ]
    return fastjson.dumps({"offsetTable": rows})


ROUTES = routes(
    Route(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, query_consumer_offset),
    Route(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, update_consumer_offset),
    Route(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, search_offset_by_timestamp),
    Route(RequestCode.GET_MAX_OFFSET, QueueRequestHeader, get_max_offset),
    Route(RequestCode.GET_MIN_OFFSET, QueueRequestHeader, get_min_offset),
    Route(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader, get_earliest_msg_storetime),
    Route(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, reset_offset),
)
