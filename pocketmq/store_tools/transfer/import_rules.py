"""Rules for the records that `import` accepts: those that a broker would have stored."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pocketmq.store.format.message import Message
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.record import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX_V2

BODY_SIZE_MAX: Final = 4 << 20  # a broker's maxMessageSize, if nothing else is configured
QUEUE_ID_MAX: Final = 65_535
TOPIC_SIZE_MAX: Final = 127
_LEGAL_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
# Topics named after consumer groups, which may have other characters.
_GROUP_PREFIXES: Final = ("%RETRY%", "%DLQ%", LMQ_PREFIX)
_SHOWN_MAX: Final = 60


class ImportRules:
    """The broker's rules for topics, queues and sizes."""

    def __init__(self, topics_document: Mapping[str, Any], body_size_max: int = BODY_SIZE_MAX) -> None:
        """`topics_document` is that of config/topics.json; it gives the number of queues of each topic."""
        self._body_size_max = body_size_max
        self._queue_counts: dict[str, int] = {}
        table = topics_document.get("topicConfigTable", {})
        for topic, row in table.items() if isinstance(table, dict) else ():
            counts = [row.get(key) for key in ("readQueueNums", "writeQueueNums")] if isinstance(row, dict) else []
            known = [count for count in counts if isinstance(count, int)]
            if known:
                self._queue_counts[topic] = max(known)

    def problem(self, message: Message) -> str:
        """Return why a broker would not have stored the message, with key, limit and value; "" if it would."""
        return self._topic_problem(message.topic) or self._queue_problem(message) or self._size_problem(message)

    def _topic_problem(self, topic: str) -> str:
        size, is_groups = len(topic.encode(errors="replace")), topic.startswith(_GROUP_PREFIXES)
        size_max = TOPIC_SIZE_MAX_V2 if is_groups else TOPIC_SIZE_MAX
        if not 0 < size <= size_max:
            return f"topic has {size} bytes, 1 to {size_max} are allowed"
        if not is_groups and _LEGAL_TOPIC.fullmatch(topic) is None:
            return f"topic is {topic[:_SHOWN_MAX]!r}, only the characters {_LEGAL_TOPIC.pattern} are allowed"
        if any(ord(character) < ord(" ") for character in topic):
            return f"topic is {topic[:_SHOWN_MAX]!r}, control characters are not allowed"
        return ""

    def _queue_problem(self, message: Message) -> str:
        count = self._queue_counts.get(message.topic)
        if count is not None and not 0 <= message.queue_id < count:
            queues = "one queue" if count == 1 else f"{count} queues"
            return f"queueId is {message.queue_id}, but {message.topic} has {queues} according to config/topics.json"
        if not 0 <= message.queue_id <= QUEUE_ID_MAX:
            return f"queueId is {message.queue_id}, 0 to {QUEUE_ID_MAX} are allowed"
        return ""

    def _size_problem(self, message: Message) -> str:
        body_size, properties_size = len(message.body), len(message.properties_bytes)
        if body_size > self._body_size_max:
            return f"body has {body_size} bytes, --max-message-size allows {self._body_size_max}"
        if properties_size > PROPERTIES_SIZE_MAX:
            return f"properties have {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed"
        if 0 in message.properties_bytes:
            return f"properties have a zero byte at {message.properties_bytes.index(0)}, which is not allowed"
        return ""
