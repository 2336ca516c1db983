"""Consumer offsets, minimum and maximum offsets of queues, and offsets by time."""

from pocketmq.broker.services import Services
from pocketmq.broker.tables.subscription_group import group_problem
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import RemotingError, Route, routes
from pocketmq.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
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
    header = request.header
    consumer_offset = services.offsets.query(header.consumer_group, header.topic, header.queue_id)
    if consumer_offset < 0:
        is_first_there = services.store.min_offset(header.topic, header.queue_id) <= 0
        if (
            header.set_zero_if_not_found is False
            or not is_first_there
            or _is_on_disk(services, header.topic, header.queue_id)
        ):
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            raise RemotingError(ResponseCode.QUERY_NOT_FOUND, remark)
        consumer_offset = 0
    return Response(header=OffsetResponseHeader(consumer_offset))


def _is_on_disk(services: Services, topic: str, queue_id: int) -> bool:
    """Whether message 0 is so old that it must be read from disk (accessMessageInMemoryMaxRatio)."""
    queue = services.store.queue(topic, queue_id)
    unit = None if queue is None else queue.unit_at(0)
    if unit is None:
        return False
    return not services.store.reader.is_in_memory(unit[0])


def update_consumer_offset(services: Services, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
    """Commit a consumer offset; a lower one than before is allowed. Refused for an unknown topic (as in 5.x) or queue,
    because nothing would ever delete that offset."""
    header = request.header
    topic, queue_id = header.topic, header.queue_id
    topic_config = services.topics.get(topic)
    if topic_config is None:
        raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.200}] not exist")
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


ROUTES = routes(
    Route(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, query_consumer_offset),
    Route(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, update_consumer_offset),
    Route(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, search_offset_by_timestamp),
    Route(RequestCode.GET_MAX_OFFSET, QueueRequestHeader, get_max_offset),
    Route(RequestCode.GET_MIN_OFFSET, QueueRequestHeader, get_min_offset),
    Route(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader, get_earliest_msg_storetime),
)
