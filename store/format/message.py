"""Types of the store: messages to put, results of puts and gets, and requests to dispatch to queues and index."""

from enum import Enum
from typing import Final

import msgspec

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
TRANSACTION_TYPE_MASK: Final = 0xC
# Prepared and rollback differ from the other two in this bit: they take no queue offset and reach no queue.
TRANSACTION_UNQUEUED_FLAG: Final = 0x4

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_FOLDER_NAME_SIZE_MAX: Final = 255
_RECONSUME_TIMES_MAX: Final = 2**31 - 1


def folder_problem(topic: str) -> str | None:
    """Why the folder of a topic's queues cannot have its name, or None.

    Users' topics are held to more, by the broker. In 4.9.4 groups are not, and they give their names to `%RETRY%` topics:
    one such record in the log, and neither can its queue be made nor any other go on.
    """
    if "/" in topic or "\0" in topic or topic in (".", ".."):
        return f"topic {topic!r}: no folder can have this name"
    size = len(topic.encode(errors="replace"))
    if size > _FOLDER_NAME_SIZE_MAX:
        return f"topic {topic[:40]}... has {size} bytes, at most {_FOLDER_NAME_SIZE_MAX} are possible"
    return None


class Message(msgspec.Struct, gc=False):
    """A message as the broker hands it to the store.

    `born_host` and `store_host` are packed: 4 or 16 bytes of address, then the port in 4. `properties` is what the broker
    and the index act on, `properties_bytes` the UTF-8 string that is stored; they may differ on purpose.
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
        """Count one time more, as far as the record's field goes (Java's goes on with -2147483648)."""
        self.reconsume_times = min(self.reconsume_times + 1, _RECONSUME_TIMES_MAX)


class PutStatus(Enum):
    """Java's PutMessageStatus, as far as the store itself decides it."""

    PUT_OK = "PUT_OK"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"


class PutResult(msgspec.Struct, gc=False):
    """What became of a put. Offsets are -1 when nothing was stored, and `reason` says why in words for the client.

    `end_offset` is the physical offset behind the (last) record: synced up to there, the message is on disk.
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
    """One record on its way to its ConsumeQueue and to the index: made by a put, or decoded from the log."""

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
    """A queue that grew: its new max offset, the tags codes of the units that came, in order, and their records' bytes."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_codes: list[int]
    store_timestamp_ms: int
    size: int


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
    """What a pull found. `views` are slices of the log's files, neighbouring records merged into one.

    The views keep their mapping alive even when retention deletes the file meanwhile: the buffer protocol counts holders.
    `release()` gives them back as soon as the bytes have left, so that a deleted file's disk space comes free.
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
        """Let go of the views; the result's numbers stay."""
        self.views = []


class QueryResult(msgspec.Struct):
    """Records found by key, ascending in physical offset, with the index's newest time and physical offset."""

    views: list[memoryview]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int
