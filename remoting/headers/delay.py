"""Delayed messages: taking them back (5.3 and later), and our own requests to see and change what is pending."""

from msgspec import field

from pocketmq.remoting.header import I32, I64, CommandHeader

_EVER = (1 << 63) - 1


class RecallMessageRequestHeader(CommandHeader):
    """RECALL_MESSAGE. recall_handle is what the send was answered with."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(CommandHeader):
    """msg_id is the unique key of the message taken back."""

    msg_id: str
    region_id: str = field(name="MSG_REGION", default="DefaultRegion")


class QueryDelayedRequestHeader(CommandHeader):
    """QUERY_DELAYED. All that is given must be so; times are due times, epoch ms, the end excluded.

    msg_id: unique key or offsetMsgId. cursor: that of the answer before. detailed: properties and body too.
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
    """COUNT_DELAYED. With a cursor in the answer it goes on there; the counts add up."""

    topic: str | None = None
    begin_timestamp: I64 = 0
    end_timestamp: I64 = _EVER
    cursor: str | None = None


class CursorResponseHeader(CommandHeader):
    """QUERY_DELAYED, COUNT_DELAYED. cursor absent: that was the end."""

    cursor: str | None = None


class DelayedMessageRequestHeader(CommandHeader):
    """CANCEL_DELAYED, DELIVER_DELAYED_NOW: one message, as QUERY_DELAYED tells it."""

    physical_offset: I64


class DelayedMessageResponseHeader(CommandHeader):
    """Which message it was: its unique key, or its offsetMsgId if it has none."""

    msg_id: str


class AdvanceClockRequestHeader(CommandHeader):
    """ADVANCE_CLOCK: let so many ms of message time pass."""

    ms: I64


class ClockResponseHeader(CommandHeader):
    """READ_CLOCK, ADVANCE_CLOCK: the broker's message time, epoch ms, and whether it is one that tests advance."""

    now: I64
    is_virtual: bool
