"""Look-up of messages by key, unique key or physical offset."""

from pocketmq.broker.handlers.refusing import existing
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.headers.query import QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader
from pocketmq.store.format.record import bounds


def query_message(services: Services, request: Request[QueryMessageRequestHeader]) -> Response:
    """Return messages of a topic indexed under a key. The index has hashes only: clients drop messages with other keys.

    Messages of other topics are dropped here, because a key can be crafted to have the same hash as another topic's key.
    """
    header, store = request.header, services.store
    count_max = store.config.default_query_max_num if header.unique_key_query else header.max_num
    result = store.query_message(header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp)
    answer = QueryMessageResponseHeader(result.index_last_update_timestamp_ms, result.index_last_update_physical_offset)
    topic = header.topic.encode("utf-8", "replace")
    views = [view for view in result.views if _topic_of(view) == topic]
    if not views:
        remark = "can not find message, maybe time range not correct"
        return Response(ResponseCode.QUERY_NOT_FOUND, answer, remark=remark)
    return Response(ResponseCode.SUCCESS, answer, views)


def _topic_of(record: memoryview) -> memoryview:
    _, _, start, size = bounds(record, 0)
    return record[start : start + size]


def view_message_by_id(services: Services, request: Request[ViewMessageRequestHeader]) -> Response:
    """Return the message at a physical offset."""
    physical_offset = request.header.physical_offset
    return Response(body=record_at(services, physical_offset))


def record_at(services: Services, physical_offset: int) -> memoryview:
    """Return the record at a physical offset. Raises RemotingError when none begins there."""
    remark = f"can not find message by the offset, {physical_offset}"
    return existing(services.store.message_at(physical_offset), ResponseCode.SYSTEM_ERROR, remark)


ROUTES = routes(
    Route(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader, query_message),
    Route(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, view_message_by_id),
)
