"""Types of the store: messages to put, results of puts and gets, and requests to dispatch to queues and index."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import msgspec

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
# 5.x, both set: a batch of a topic with batch queues (batchconsumequeue). Its body is a sequence of messages.
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
TRANSACTION_TYPE_MASK: Final = 0xC
# Set in the types prepared and rollback, whose records get no queue offset and are in no queue.
TRANSACTION_UNQUEUED_FLAG: Final = 0x4

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

QueueKey = tuple[str, int]
"""Topic and queue id."""

QUEUE_OFFSET_MAX: Final = (1 << 62) // 20
"""Limit of queue offsets, so that positions in a queue's files, of 20 bytes a unit, fit into 64 bits."""
_FOLDER_NAME_SIZE_MAX: Final = 255
_RECONSUME_TIMES_MAX: Final = 2**31 - 1


def folder_problem(topic: str) -> str | None:
    """Return why a topic's name cannot be the name of the folder of its queues, or None.

    The broker restricts the names of users' topics further. 4.9.4 does not restrict group names, which become part of
    `%RETRY%` topics. A record of such a topic in the log would block dispatching: its queue cannot be created, and so no
    other queue continues.
    """
    if "/" in topic or "\0" in topic or topic in ("", ".", ".."):
        return f"topic {topic!r} cannot be the name of a folder"
    size = len(topic.encode(errors="replace"))
    if size > _FOLDER_NAME_SIZE_MAX:
        return f"topic {topic[:40]}... has {size} bytes, at most {_FOLDER_NAME_SIZE_MAX} are allowed"
    return None


def topic_folder(root: str, topic: str) -> str:
    """Return the folder of a topic's queues below `root`. Raises ValueError for a name that would be another folder.

    All paths that contain a topic's name are made here and in `queue_folder`: names come from the network.
    """
    if (problem := folder_problem(topic)) is not None:
        raise ValueError(problem)
    return f"{root}/{topic}"


def queue_folder(root: str, topic: str, queue_id: int) -> str:
    """Return the folder of a queue's files below `root`. Raises ValueError for an impossible topic or queue id."""
    if queue_id < 0:
        raise ValueError(f"queue id {queue_id} of topic {topic!r} is negative")
    return f"{topic_folder(root, topic)}/{queue_id}"


class Message(msgspec.Struct, gc=False):
    """A message as the broker passes it to the store.

    `born_host` and `store_host` are packed: 4 or 16 bytes of address, then the port in 4. `properties` are those that the
    broker and the index use, `properties_bytes` is the UTF-8 string that is stored; they may differ on purpose.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = {}
    properties_bytes: bytes = b""

    def consumed_again(self) -> None:
        """Increment `reconsume_times`, up to the maximum of the record's field (Java wraps around to -2147483648)."""
        self.reconsume_times = min(self.reconsume_times + 1, _RECONSUME_TIMES_MAX)


class PutStatus(Enum):
    """The values of Java's PutMessageStatus that the store itself returns."""

    PUT_OK = "PUT_OK"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"


class PutResult(msgspec.Struct, gc=False):
    """Result of a put. If nothing was stored, offsets are -1, and `reason` is an error text for the client.

    `end_offset` is the end of the (last) record: once the log is synced up to there, the message is durable.
    """

    status: PutStatus
    physical_offset: int = -1
    end_offset: int = -1
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    size: int = 0
    physical_offsets: list[int] | None = None
    reason: str = ""


class DispatchRequest(msgspec.Struct, gc=False):
    """Fields of a record to be added to its ConsumeQueue and to the index; made by a put, or decoded from the log."""

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int
    sys_flag: int
    keys: str | None
    uniq_key: str | None


class Arrival(msgspec.Struct, gc=False):
    """A queue that grew: its new max offset, the tags codes of its new units in order, and the bytes of their records.

    The messages are in the statistics already if `is_counted`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    tags_codes: list[int]
    store_timestamp_ms: int
    size: int
    is_counted: bool = False


Watched = tuple[Sequence[dict[Any, Any]], Sequence[dict[str, Any]]]
"""Dicts whose keys are the queues, and dicts whose keys are the topics, of which the arrivals are wanted."""


class GetStatus(Enum):
    """Java's GetMessageStatus; `.name` is the remark of a pull's answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct):
    """Result of a pull. `views` are slices of the log's files; adjacent records are merged into one.

    The views keep their mapping valid even if retention deletes the file meanwhile. Call `release()` as soon as the bytes
    are sent, so that the disk space of a deleted file is freed.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    views: list[memoryview] = []
    count: int = 0
    size: int = 0
    from_disk: bool = False
    """Whether the last record is too far from the log's end to count as in memory (accessMessageInMemoryMaxRatio)."""

    def release(self) -> None:
        """Drop the views; the other fields stay."""
        self.views = []


class QueryResult(msgspec.Struct):
    """Records found by key, ascending in physical offset, with the index's newest time and physical offset."""

    views: list[memoryview]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int
