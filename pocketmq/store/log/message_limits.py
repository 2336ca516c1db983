"""MessageLimits: the size limits and other conditions that a message must meet to be stored."""

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.format.layout import BLANK_SIZE, HOST_SIZE
from pocketmq.store.format.message import Message, PutResult, PutStatus, folder_problem
from pocketmq.store.format.record import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX_V1, TOPIC_SIZE_MAX_V2, host_flags, record_size


class MessageLimits:
    """Limits from the configuration, in bytes."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self.body_size_max = config.max_message_size
        self.record_size_max = config.mapped_file_size_commit_log - BLANK_SIZE
        self.topic_size_max = TOPIC_SIZE_MAX_V2 if config.auto_message_version_on_topic_len else TOPIC_SIZE_MAX_V1

    def refusal(self, message: Message) -> PutResult | None:
        """Return the refusal of a message that exceeds a limit, else None."""
        illegal, body_size = PutStatus.MESSAGE_ILLEGAL, len(message.body)
        topic_size, properties_size = len(message.topic.encode()), len(message.properties_bytes)
        if not 0 < topic_size <= self.topic_size_max:
            return PutResult(illegal, reason=f"topic has {topic_size} bytes, 1 to {self.topic_size_max} are allowed")
        if (problem := folder_problem(message.topic)) is not None:
            return PutResult(illegal, reason=problem)
        if properties_size > PROPERTIES_SIZE_MAX:
            return PutResult(
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                reason=f"properties have {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed",
            )
        if body_size > self.body_size_max:
            return PutResult(illegal, reason=f"body has {body_size} bytes, maxMessageSize allows {self.body_size_max}")
        size = record_size(message, topic_size + (1 if topic_size <= TOPIC_SIZE_MAX_V1 else 2))
        if size > self.record_size_max:
            return PutResult(
                illegal, reason=f"record takes {size} bytes, mappedFileSizeCommitLog allows {self.record_size_max}"
            )
        assert host_flags(message) or len(message.born_host) == len(message.store_host) == HOST_SIZE
        return None
