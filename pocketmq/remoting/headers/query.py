"""Queries of messages."""

from msgspec import field

from pocketmq.remoting.header import I32, I64, CommandHeader
from pocketmq.remoting.headers.offset import QueueRequestHeader


class QueryMessageRequestHeader(CommandHeader):
    """QUERY_MESSAGE. unique_key_query is sent as an extra field; Java's header class does not declare it."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(CommandHeader):
    """QUERY_MESSAGE: time and physical offset of the last index entry."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class ViewMessageRequestHeader(CommandHeader):
    """VIEW_MESSAGE_BY_ID; physical_offset is called `offset` on the wire."""

    physical_offset: I64 = field(name="offset")


class QueryConsumeQueueRequestHeader(QueueRequestHeader):
    """QUERY_CONSUME_QUEUE."""

    index: I64
    count: I32
    consumer_group: str | None = None


class ConsumeMessageDirectlyRequestHeader(CommandHeader):
    """CONSUME_MESSAGE_DIRECTLY, from tools to the broker and from there to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class ConsumerRunningInfoRequestHeader(CommandHeader):
    """GET_CONSUMER_RUNNING_INFO, from tools to the broker and from there to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False
