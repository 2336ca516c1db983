"""Delayed messages: recall (5.3 and later), and PocketMQ's own requests to list and change pending messages."""

from msgspec import field

from pocketmq.remoting.header import I32, I64, CommandHeader

_EVER = (1 << 63) - 1


class RecallMessageRequestHeader(CommandHeader):
    """RECALL_MESSAGE. recall_handle comes from the answer to the send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(CommandHeader):
    """RECALL_MESSAGE. msg_id is the unique key of the recalled message."""

    msg_id: str
    region_id: str = field(name="MSG_REGION", default="DefaultRegion")


class QueryDelayedRequestHeader(CommandHeader):
    """QUERY_DELAYED. Messages must match all given fields; times are due times in epoch ms, the end is exclusive.

    msg_id: unique key or offsetMsgId. cursor: from the previous answer. detailed: with properties and body.
    """

    topic: str | None = None
    key: str | None = None
    msg_id: str | None = None
    begin_timestamp: I64 = 0
    end_timestamp: I64 = _EVER
    max_num: I32 = 32
    cursor: str | None = None
    detailed: bool = False


class CountDelayedRequestHeader(CommandHeader):
    """COUNT_DELAYED. If the answer has a cursor, the next request continues there; the counts are to be added."""

    topic: str | None = None
    begin_timestamp: I64 = 0
    end_timestamp: I64 = _EVER
    cursor: str | None = None


class CursorResponseHeader(CommandHeader):
    """QUERY_DELAYED, COUNT_DELAYED. No cursor: this is the last answer."""

    cursor: str | None = None


class DelayedMessageRequestHeader(CommandHeader):
    """CANCEL_DELAYED, DELIVER_DELAYED_NOW: one message, by its offset from QUERY_DELAYED."""

    physical_offset: I64


class DelayedMessageResponseHeader(CommandHeader):
    """CANCEL_DELAYED, DELIVER_DELAYED_NOW: unique key of the message, or its offsetMsgId if it has none."""

    msg_id: str


class AdvanceClockRequestHeader(CommandHeader):
    """ADVANCE_CLOCK: let `ms` of message time pass."""

    ms: I64


class ClockResponseHeader(CommandHeader):
    """READ_CLOCK, ADVANCE_CLOCK: the broker's message time in epoch ms, and whether its clock is virtual."""

    now: I64
    is_virtual: bool
