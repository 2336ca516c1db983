"""Handles of popped messages (Apache: ExtraInfoUtil), and the retry topics of popping groups.

A message is handed out with a *handle*, eight fields separated by spaces; the client returns it with the ack.
"""

from typing import Final, NamedTuple

RETRY_PREFIX: Final = "%RETRY%"


def retry_topic_of(topic: str, group: str, *, with_v2: bool) -> str:
    """Return the topic for messages of `topic` that `group` did not consume in time; `with_v2` is enableRetryTopicV2.

    A retry topic is its own retry topic.
    """
    return f"{RETRY_PREFIX}{group}{'+' if with_v2 else '_'}{topic}" if not topic.startswith(RETRY_PREFIX) else topic


def normal_topic_of(topic: str, group: str) -> str:
    """Return the topic whose retry topic for `group` is `topic`, else `topic` itself; also for names without a group."""
    for separator in "_+" if group else "":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_flag(topic: str) -> str:
    """Return the mark of a topic in handles and offset lists: `0`; for retry topics `1` (older form) or `2` (newer form)."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class Handle(NamedTuple):
    """Handle by which a client acknowledges a message. `start_offset` is of the check point, `queue_offset` of the
    message."""

    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue: int
    flag: str
    broker_name: str
    queue_id: int = 0
    queue_offset: int = -1

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Parse a handle; the last two fields may be missing. Raises ValueError with the reason."""
        fields = text.split(" ")
        if len(fields) < 6:
            raise ValueError(f"handle {text!r} has {len(fields)} fields, 6 to 8 are needed")
        start_offset, pop_time_ms, invisible_time_ms, revive_queue = map(int, fields[:4])
        queue_id = int(fields[6]) if len(fields) > 6 else 0
        queue_offset = int(fields[7]) if len(fields) > 7 else -1
        return cls(
            start_offset, pop_time_ms, invisible_time_ms, revive_queue, fields[4], fields[5], queue_id, queue_offset
        )  # fmt: skip

    def __str__(self) -> str:
        return " ".join(map(str, self))
