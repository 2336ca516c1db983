"""CopySink: destination of the copies of due messages: a master's own log, or for an acting master another broker."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.message_store import MessageStore

PutTogether = Callable[[Sequence[int], int], int]
"""Puts copies of the first of some due timer messages, given by physical offsets, at a message time, and returns their
number."""
UNDER_WAY: Final = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="it is still being sent to another broker")
"""The result of a put that is not decided yet: the caller puts the same message again later."""


class CopySink(Protocol):
    """Takes copies. `source` identifies the record from which a copy was made."""

    under_way_max: int | None
    """Number of copies that may be under way at a time; None if each put is decided at once."""
    put_together: PutTogether | None
    """None if this sink takes one copy at a time."""

    def waits(self, source: Hashable) -> bool:
        """Return whether a copy is under way, so that putting it again would change nothing."""

    def put(self, message: Message, source: Hashable) -> PutResult:
        """Put a copy. Raises OSError."""


class LogSink:
    """Puts copies into this broker's log, each into a queue that its topic has."""

    under_way_max: int | None = None
    put_together: PutTogether | None = None

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        self._commit_log = store.commit_log
        self._readable_queue = topics.readable_queue

    def waits(self, source: Hashable) -> bool:
        return False

    def put(self, message: Message, source: Hashable) -> PutResult:
        message.queue_id = self._readable_queue(message.topic, message.queue_id)
        return self._commit_log.put(message)
