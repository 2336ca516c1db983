"""PULL_MESSAGE and LITE_PULL_MESSAGE."""

from msgspec import field

from pocketmq.remoting.header import I32, I64, CommandHeader
from pocketmq.remoting.headers.offset import ConsumedQueueRequestHeader


class PullMessageRequestHeader(ConsumedQueueRequestHeader):
    """sys_flag bits: 1 commit_offset is valid, 2 may be held, 4 subscription is present, 8 class filter, 16 lite pull.

    The last three fields have no effect here. They are declared because clients always send them: a header without
    undeclared fields is faster to check for duplicate keys.
    """

    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None
    broker_name: str | None = field(name="bname", default=None)
    max_msg_bytes: str | None = None
    request_type: str | None = field(name="ReqT", default=None)


class PullMessageResponseHeader(CommandHeader):
    """Sent with every answer of code 0, 19, 20, 21."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
