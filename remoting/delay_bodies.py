"""Bodies of our own requests about delayed messages."""

import msgspec

from pocketmq.remoting.bodies import Body


class DelayedMessage(Body):
    """A message that is to be delivered later. Times in epoch ms; `level` 0: one of any time.

    `is_delay`: it is due some time after it was stored, not at a time of the calendar. `properties` and `body` (base64)
    only where they were asked for.
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
    """Answer of COUNT_DELAYED: messages due in each hour, by the epoch ms of its beginning, as text.

    `cancelled` of them are cancelled, but in slots that are not read yet; only counts of all topics know that number.
    """

    hours: dict[str, int] = msgspec.field(default_factory=dict)
    cancelled: int = 0
