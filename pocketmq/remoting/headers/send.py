"""SEND_MESSAGE, its V2 form with single-letter fields, and CONSUMER_SEND_MSG_BACK."""

from msgspec import field

from pocketmq.remoting.header import I32, I64, CommandHeader, lettered


class SentMessageRequestHeader(CommandHeader):
    """Required fields of each request with a message."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32


class SendMessageRequestHeader(SentMessageRequestHeader):
    """SEND_MESSAGE, SEND_BATCH_MESSAGE. queue_id below 0: any queue. A batch's body holds many messages."""

    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(name="bname", default=None)


SendMessageRequestHeaderV2 = lettered(SendMessageRequestHeader, "abcdefghijkmln")
"""The fields of SendMessageRequestHeader with single-letter names; l is maxReconsumeTimes, m is batch."""


class SendMessageResponseHeader(CommandHeader):
    """Answer to a send. Java clients fail without MSG_REGION and TRACE_ON."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    region_id: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


class RecallableSendMessageResponseHeader(SendMessageResponseHeader):
    """Answer to the send of a message with a delivery time; recallHandle allows its recall (5.3 and later)."""

    recall_handle: str | None = None


class ReplyMessageRequestHeader(SentMessageRequestHeader):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the fields of the reply's send, and its hosts as `address:port`."""

    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False


class ConsumerSendMsgBackRequestHeader(CommandHeader):
    """CONSUMER_SEND_MSG_BACK; physical_offset is called `offset` on the wire."""

    physical_offset: I64 = field(name="offset")
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
