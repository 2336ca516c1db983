"""Bodies of PocketMQ's own requests about delayed messages."""

import msgspec

from pocketmq.remoting.bodies import Body


class DelayedMessage(Body):
    """A delayed message. Times in epoch ms; `level` 0: an arbitrary delivery time.

    `is_delay`: the sender gave a delay, not a calendar time. `properties` and `body` (base64) are set only if the
    request asks for them.
    """

    physical_offset: int
    due_timestamp: int
    is_delay: bool
    level: int
    topic: str
    queue_id: int
    msg_id: str
    offset_msg_id: str
    store_timestamp: int
    born_timestamp: int
    body_size: int
    reconsume_times: int = 0
    keys: str | None = None
    tags: str | None = None
    properties: dict[str, str] | None = None
    body: str | None = None


class DelayedMessages(Body):
    """Answer of QUERY_DELAYED, by due time."""

    messages: list[DelayedMessage] = msgspec.field(default_factory=list)


class DelayedCounts(Body):
    """Answer of COUNT_DELAYED: number of messages due in each hour; the key is the start of the hour in epoch ms, as text.

    `cancelled` of them are cancelled but still in timer wheel slots not read yet; known only for counts of all messages.
    """

    hours: dict[str, int] = msgspec.field(default_factory=dict)
    cancelled: int = 0
