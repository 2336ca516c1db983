"""A half message: a record of RMQ_SYS_TRANS_HALF_TOPIC, and the messages made from it.

It has the sender's properties, REAL_TOPIC and REAL_QID, and no transaction type, so that it is dispatched to a queue. An
open half message is stored again, so that the beginning of the queue need not be kept for it. The *copies* have

    TRANSACTION_CHECK_TIMES      the number of checks
    TRAN_PREPARED_QUEUE_OFFSET   the queue offset of the first half message. 4.9.4 and 5.x add and read it only with
                                 CHECK_IMMUNITY_TIME_IN_SECONDS
    PMQ_STORED_MS                PocketMQ's own: when the first was stored
"""

from typing import Final, Self

import msgspec
from msgspec.structs import replace

from pocketmq.broker.delay.records import OWN_PROPERTY, QUEUE_ID_MAX
from pocketmq.broker.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, WAIT
from pocketmq.broker.put.delivery_time import PRODUCER_GROUP
from pocketmq.broker.put.put import CLUSTER, STALE_IN_COPIES, StoredProperties
from pocketmq.store.format.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_TYPE_MASK,
    Message,
    PutResult,
    folder_problem,
)
from pocketmq.store.format.properties import REAL_QID, REAL_TOPIC, UNIQ_KEY, decode_properties, encode_properties
from pocketmq.store.format.record import decode_record, encode_record, record_size, topic_part

TRAN_MSG: Final = "TRAN_MSG"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID: Final = "__transactionId__"
_STORED_MS: Final = "PMQ_STORED_MS"
_COPY_PROPERTIES: Final = (CHECK_TIMES, FIRST_OFFSET, _STORED_MS)
_BROKER_PROPERTIES: Final = (*_COPY_PROPERTIES, TRANSACTION_ID, REAL_TOPIC, REAL_QID, CLUSTER)
_NOT_PLAIN: Final = frozenset((*_BROKER_PROPERTIES, *STALE_IN_COPIES))
_DIGITS_MAX: Final = 18


def as_half(message: Message, text: str, stored_properties: StoredProperties) -> bool:
    """Turn a message with type "prepared" into its half message; `text` is its properties as a string.

    Properties that only a broker may set are removed: a program that forwards a consumed message sends them along.
    Returns whether it is *plain*: has no properties that messages made from it must leave out.
    """
    properties = message.properties
    is_plain = OWN_PROPERTY not in text and _NOT_PLAIN.isdisjoint(properties)
    unique_key = properties.get(UNIQ_KEY)
    if not is_plain:
        for name in _BROKER_PROPERTIES:
            if name != TRANSACTION_ID or unique_key is not None:
                properties.pop(name, None)
        text = encode_properties(properties)
    stored = stored_properties(text, properties)
    properties.pop(WAIT, None)
    properties.update(stored_properties.added)
    properties[REAL_TOPIC] = topic = message.topic
    properties[REAL_QID] = queue_id = str(message.queue_id)
    added = f"\x02{REAL_TOPIC}\x01{topic}\x02{REAL_QID}\x01{queue_id}"
    if unique_key is not None:
        properties[TRANSACTION_ID] = unique_key
        added = f"{added}\x02{TRANSACTION_ID}\x01{unique_key}"
    message.properties_bytes = stored + added.encode()
    message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
    message.sys_flag &= ~TRANSACTION_TYPE_MASK
    return is_plain


class HalfMessage(msgspec.Struct, eq=False):
    """One half message, as stored, and its place. If it is *plain*, the committed message may reuse `message`."""

    message: Message
    real_topic: str
    real_queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    is_plain: bool = False

    @classmethod
    def read(cls, view: memoryview | None, topic: str = TRANS_HALF_TOPIC) -> Self:
        """Decode the half message in `view`, as returned by `MessageStore.message_at`. Raises ValueError if there is none.

        One that was given up has another `topic`.
        """
        if view is None:
            raise ValueError("the record does not exist")
        record = decode_record(view)
        if record.topic != topic.encode():
            raise ValueError(f"its topic is {record.topic.decode(errors='replace')}, not {topic}")
        properties = decode_properties(record.properties)
        for name in STALE_IN_COPIES:
            properties.pop(name, None)
        real, queue_id = properties.get(REAL_TOPIC), _number(properties.get(REAL_QID))
        if not real or real == TRANS_HALF_TOPIC or folder_problem(real) or queue_id is None or queue_id > QUEUE_ID_MAX:
            raise ValueError(f"{REAL_TOPIC}={real} and {REAL_QID}={properties.get(REAL_QID)} are not a valid queue")
        message = record.copy_to(topic, record.queue_id, record.store_host, properties)
        place = record.queue_offset, record.physical_offset, record.store_timestamp_ms
        return cls(message, real, queue_id, *place)

    @classmethod
    def prepared(cls, message: Message, result: PutResult) -> Self:
        """Return the half message of a plain message from `as_half` that was just put, without reading it."""
        properties = message.properties
        return cls(
            message, properties[REAL_TOPIC], int(properties[REAL_QID]), result.queue_offset, result.physical_offset,
            result.store_timestamp_ms, True,
        )  # fmt: skip

    @property
    def store_host(self) -> bytes:
        return self.message.store_host

    @property
    def first_offset(self) -> int:
        """Queue offset of the first half message; this one's if it is not a copy."""
        first = _number(self.message.properties.get(FIRST_OFFSET))
        return self.queue_offset if first is None or first > self.queue_offset else first

    @property
    def producer_group(self) -> str | None:
        return self.message.properties.get(PRODUCER_GROUP)

    @property
    def unique_key(self) -> str | None:
        return self.message.properties.get(UNIQ_KEY)

    @property
    def check_times(self) -> int:
        """The number of checks."""
        return _number(self.message.properties.get(CHECK_TIMES)) or 0

    @property
    def immunity_ms(self) -> int | None:
        """Time during which the sender wants no check; None if not given as a number of seconds."""
        seconds = _number(self.message.properties.get(CHECK_IMMUNITY_TIME))
        return None if seconds is None else seconds * 1000

    @property
    def since_ms(self) -> int:
        """The time when it was first stored; of a copy made by Apache, which does not have it, the born time."""
        stored_ms = _number(self.message.properties.get(_STORED_MS))
        if stored_ms is None:
            is_copy = self.check_times or self.first_offset != self.queue_offset
            stored_ms = self.message.born_timestamp_ms if is_copy else self.store_timestamp_ms
        return min(stored_ms, self.store_timestamp_ms)

    # --- messages made from it --------------------------------------------------------------------------------------

    def renewed(self, store_host: bytes, check_times: int) -> Message:
        """Return the copy to be stored at the end of the queue."""
        properties = self.message.properties | {FIRST_OFFSET: str(self.first_offset), _STORED_MS: str(self.since_ms)}
        if check_times:
            properties[CHECK_TIMES] = str(check_times)
        return self._copy_to(TRANS_HALF_TOPIC, 0, store_host, properties)

    def given_up(self, store_host: bytes) -> Message:
        """Return the message for TRANS_CHECK_MAX_TIME_TOPIC, which shows the transaction to operators."""
        return self._copy_to(TRANS_CHECK_MAX_TIME_TOPIC, 0, store_host, self._shown())

    def resumed(self, store_host: bytes) -> Message:
        """Return a half message made from one that was given up; it is checked like a new one."""
        properties = self._shown()
        for name in (CHECK_TIMES, FIRST_OFFSET):
            properties.pop(name, None)
        return self._copy_to(TRANS_HALF_TOPIC, 0, store_host, properties)

    def committed(self, store_host: bytes, prepared_offset: int) -> Message:
        """Return the message to be delivered; it may still have a delay.

        The stored string has TRAN_MSG, REAL_TOPIC and REAL_QID, as Apache's has, which is made before they are removed.
        """
        if self.is_plain:
            message = self.message
            message.topic, message.queue_id = self.real_topic, self.real_queue_id
        else:
            message = self._copy_to(self.real_topic, self.real_queue_id, store_host, self._shown())
        properties = message.properties
        properties.pop(TRAN_MSG, None)
        properties.pop(REAL_TOPIC, None)
        properties.pop(REAL_QID, None)
        message.sys_flag = message.sys_flag & ~TRANSACTION_TYPE_MASK | TRANSACTION_COMMIT_TYPE
        message.prepared_transaction_offset = prepared_offset
        return message

    def escaped(self) -> Message:
        """Return the message as its producer sent it, with type "prepared", to be sent to another broker."""
        properties = {name: value for name, value in self._shown().items() if name not in _BROKER_PROPERTIES}
        properties[TRAN_MSG] = "true"
        message = self._copy_to(self.real_topic, self.real_queue_id, self.store_host, properties)
        message.sys_flag = message.sys_flag & ~TRANSACTION_TYPE_MASK | TRANSACTION_PREPARED_TYPE
        return message

    def for_producer(self) -> bytes:
        """Return the message sent to producers in a check: a record as in a pull, under its real topic."""
        message = self._copy_to(self.real_topic, self.real_queue_id, self.store_host, self._shown())
        magic_code, topic = topic_part(self.real_topic.encode())
        size = record_size(message, len(topic))
        place = self.queue_offset, self.physical_offset, self.store_timestamp_ms
        return encode_record(message, magic_code, topic, size, *place)

    def _shown(self) -> dict[str, str]:
        """Return the properties without PocketMQ's own."""
        return {name: value for name, value in self.message.properties.items() if not name.startswith(OWN_PROPERTY)}

    def _copy_to(self, topic: str, queue_id: int, store_host: bytes, properties: dict[str, str]) -> Message:
        """Return the message with other properties, for another queue."""
        return replace(
            self.message, topic=topic, queue_id=queue_id, store_host=store_host, prepared_transaction_offset=0,
            properties=properties, properties_bytes=encode_properties(properties).encode(),
        )  # fmt: skip


def _number(text: str | None) -> int | None:
    """Return a non-negative number, or None."""
    is_number = text is not None and len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal()
    return int(text) if is_number and text is not None else None
