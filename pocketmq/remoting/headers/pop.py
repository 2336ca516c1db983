"""Pop consumption. Binary headers cannot hold these codes, because they have only 16 bits for the code."""

from pocketmq.remoting.header import I32, I64, CommandHeader
from pocketmq.remoting.headers.offset import ConsumedQueueRequestHeader


class PeekMessageRequestHeader(ConsumedQueueRequestHeader):
    """PEEK_MESSAGE: read messages without making them invisible."""

    max_msg_nums: I32


class PopMessageRequestHeader(PeekMessageRequestHeader):
    """POP_MESSAGE. `queue_id` -1 means any; `init_mode` 0 begins at the first message, 1 at the last. Times in ms."""

    invisible_time: I64
    poll_time: I64
    born_time: I64 = 0
    init_mode: I32 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class ChangeInvisibleTimeResponseHeader(CommandHeader):
    """CHANGE_MESSAGE_INVISIBLETIME: the client builds the new handle from these fields and the offset."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class PopMessageResponseHeader(ChangeInvisibleTimeResponseHeader):
    """POP_MESSAGE. The lists are those of `broker.pop.pop_record`."""

    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(ConsumedQueueRequestHeader):
    """ACK_MESSAGE. `topic` is the topic that stores the message, possibly its retry topic."""

    extra_info: str
    offset: I64


class ChangeInvisibleTimeRequestHeader(AckMessageRequestHeader):
    """CHANGE_MESSAGE_INVISIBLETIME: `invisible_time` ms from now."""

    invisible_time: I64


class NotificationRequestHeader(ConsumedQueueRequestHeader):
    """NOTIFICATION: wait until there is a message to pop."""

    poll_time: I64
    born_time: I64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(CommandHeader):
    """NOTIFICATION. `polling_full`: too many requests wait already."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoResponseHeader(CommandHeader):
    """POLLING_INFO: number of waiting pops. The request has a QueryConsumerOffsetRequestHeader."""

    polling_num: I32
