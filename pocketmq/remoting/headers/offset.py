"""Consumer offsets and queue offsets."""

from pocketmq.remoting.header import I32, I64, CommandHeader
from pocketmq.remoting.headers.consumer import TopicAndGroupRequestHeader


class ConsumedQueueRequestHeader(CommandHeader):
    """Fields of the requests of a consumer group about one queue."""

    consumer_group: str
    topic: str
    queue_id: I32


class QueryConsumerOffsetRequestHeader(ConsumedQueueRequestHeader):
    """QUERY_CONSUMER_OFFSET."""

    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(ConsumedQueueRequestHeader):
    """UPDATE_CONSUMER_OFFSET."""

    commit_offset: I64


class QueueRequestHeader(CommandHeader):
    """GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME: a queue."""

    topic: str
    queue_id: I32


class SearchOffsetRequestHeader(QueueRequestHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP. boundary_type (5.x clients): LOWER or UPPER."""

    timestamp: I64
    boundary_type: str | None = None


class OffsetResponseHeader(CommandHeader):
    """One offset, of a consumer or of a queue, depending on the request."""

    offset: I64


class TimestampResponseHeader(CommandHeader):
    """GET_EARLIEST_MSG_STORETIME."""

    timestamp: I64


class ResetOffsetRequestHeader(TopicAndGroupRequestHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET and, towards clients, RESET_CONSUMER_CLIENT_OFFSET. timestamp -1: the end.

    5.x tools may name one queue and its new consumer offset; an offset of -1 is ignored.
    """

    timestamp: I64
    is_force: bool = True
    queue_id: I32 | None = None
    offset: I64 | None = None
