"""MessageLimits: the size limits and other conditions that a message must meet to be stored."""

from collections.abc import Sequence

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.format.layout import BLANK_SIZE
from pocketmq.store.format.message import Message, PutResult, PutStatus, folder_problem
from pocketmq.store.format.record import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX_V1, TOPIC_SIZE_MAX_V2, record_size


class MessageLimits:
    """Limits from the configuration, in bytes."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self.body_size_max = config.max_message_size
        self.record_size_max = config.mapped_file_size_commit_log - BLANK_SIZE
        self.topic_size_max = TOPIC_SIZE_MAX_V2 if config.auto_message_version_on_topic_len else TOPIC_SIZE_MAX_V1

    def refusal(self, messages: Sequence[Message], size: int | None = None) -> PutResult | None:
        """Return the refusal of messages of one topic, of which one exceeds a limit, else None.

        `size` is that of all records if they are to be stored together.
        """
        topic, illegal = messages[0].topic, PutStatus.MESSAGE_ILLEGAL
        topic_size = len(topic.encode())
        if not 0 < topic_size <= self.topic_size_max:
            return PutResult(illegal, reason=f"topic has {topic_size} bytes, 1 to {self.topic_size_max} are allowed")
        if (problem := folder_problem(topic)) is not None:
            return PutResult(illegal, reason=problem)
        body_sizes = [len(message.body) for message in messages]
        if (properties_size := max([len(message.properties_bytes) for message in messages])) > PROPERTIES_SIZE_MAX:
            reason = f"properties have {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed"
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
        if (body_size := max(body_sizes)) > self.body_size_max:
            return PutResult(illegal, reason=f"body has {body_size} bytes, maxMessageSize allows {self.body_size_max}")
        if size is None or size > self.record_size_max:
            topic_part_size = topic_size + (1 if topic_size <= TOPIC_SIZE_MAX_V1 else 2)
            largest = max(record_size(message, topic_part_size) for message in messages)
            if largest > self.record_size_max:
                limit = f"mappedFileSizeCommitLog allows {self.record_size_max}"
                return PutResult(illegal, reason=f"record takes {largest} bytes, {limit}")
        if size is not None and (bodies_size := sum(body_sizes)) > self.body_size_max:
            reason = f"bodies of the batch have {bodies_size} bytes, maxMessageSize allows {self.body_size_max}"
            return PutResult(illegal, reason=reason)
        if size is not None and size > self.record_size_max:
            reason = f"batch takes {size} bytes, mappedFileSizeCommitLog allows {self.record_size_max}"
            return PutResult(illegal, reason=reason)
        return None
