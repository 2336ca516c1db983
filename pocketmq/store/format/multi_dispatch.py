"""MultiDispatch: one record in several queues (enableMultiDispatch; light message queues with enableLmq).

A message's property INNER_MULTI_DISPATCH has the comma-separated names of further queues. The message is stored once, in its
own topic; each further queue gets a unit that points at the record. The stored property INNER_MULTI_QUEUE_OFFSET has the
queue offsets, so that the units can be rebuilt from the log. A name that begins with %LMQ% is a queue of its own (queue id
0) and is in no topic table; any other is a topic, whose queue has the record's queue id.

Apache's MultiDispatch also takes records of SCHEDULE_TOPIC_XXXX and of retry topics, whose queues then get a message before
it is due, or once more at each retry. Here a message reaches them once: when it is stored in its own topic.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from pocketmq.store.format.message import (
    QUEUE_OFFSET_MAX,
    SCHEDULE_TOPIC,
    TRANSACTION_UNQUEUED_FLAG,
    DispatchRequest,
    Message,
    QueueKey,
)
from pocketmq.store.format.properties import decode_properties, encode_properties

INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
LMQ_PREFIX: Final = "%LMQ%"
_RETRY_PREFIX: Final = "%RETRY%"
# The names become folders.
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_OFFSET_SIZE_MAX: Final = len(str(QUEUE_OFFSET_MAX))


class MultiDispatch:
    """Further queues of records, and their offsets in them."""

    def __init__(self, *, with_lmq: bool, lmq_max: int) -> None:
        """`lmq_max` is maxLmqConsumeQueueNum, the limit of light queues."""
        self._with_lmq = with_lmq
        self._lmq_max = lmq_max

    def _key(self, name: str, queue_id: int) -> QueueKey:
        return (name, 0) if self._with_lmq and name.startswith(LMQ_PREFIX) else (name, queue_id)

    def assign(
        self, message: Message, queue_offsets: Mapping[QueueKey, int], taken: dict[QueueKey, int]
    ) -> list[tuple[QueueKey, int]]:
        """Give `message` the next queue offset in each of its further queues, and write them into its stored properties.

        Return the distinct queues with their offsets. `taken` has the next offsets that differ from `queue_offsets`; it is
        updated. Raises ValueError for a name that cannot be a queue, and for too many light queues.
        """
        names = message.properties.get(INNER_MULTI_DISPATCH, "")
        if (
            not names.strip()
            or message.sys_flag & TRANSACTION_UNQUEUED_FLAG
            or message.topic == SCHEDULE_TOPIC
            or message.topic.startswith(_RETRY_PREFIX)
        ):
            return []
        keys = [self._key(name, message.queue_id) for name in names.split(",")]
        for key in keys:
            if _LEGAL_NAME.fullmatch(key[0]) is None or key == (message.topic, message.queue_id):
                raise ValueError(f"property {INNER_MULTI_DISPATCH}={names}: {key[0]!r} is not a valid additional queue")
        self._check_count(keys, queue_offsets, taken)
        units = {key: taken.get(key) or queue_offsets.get(key, 0) for key in keys}
        taken.update({key: queue_offset + 1 for key, queue_offset in units.items()})
        stored = decode_properties(message.properties_bytes)
        stored[INNER_MULTI_QUEUE_OFFSET] = ",".join(str(units[key]) for key in keys)
        message.properties_bytes = encode_properties(stored).encode()
        return list(units.items())

    def _check_count(
        self, keys: list[QueueKey], queue_offsets: Mapping[QueueKey, int], taken: Mapping[QueueKey, int]
    ) -> None:
        new = {key[0] for key in keys if key[0].startswith(LMQ_PREFIX) and key not in queue_offsets and key not in taken}
        if self._with_lmq and new:
            count = sum(1 for name, _ in (*queue_offsets, *taken) if name.startswith(LMQ_PREFIX)) + len(new)
            if count > self._lmq_max:
                raise ValueError(
                    f"with {min(new)} there would be {count} LMQ queues, maxLmqConsumeQueueNum allows {self._lmq_max}"
                )

    def units_of(self, properties: Mapping[str, str], queue_id: int) -> Iterator[tuple[QueueKey, int]]:
        """Yield the further queues of a stored record and its queue offset in each, from its two properties.

        Yields nothing if the two do not match: multi-dispatch was off, or the properties are a user's own.
        """
        names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
        offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
        if len(names) != len(offsets):
            return
        for name, text in zip(names, offsets, strict=True):
            is_number = text.isascii() and text.isdecimal() and len(text) <= _OFFSET_SIZE_MAX
            if _LEGAL_NAME.fullmatch(name) is not None and is_number and int(text) <= QUEUE_OFFSET_MAX:
                yield self._key(name, queue_id), int(text)


def further_request(request: DispatchRequest, key: QueueKey, queue_offset: int) -> DispatchRequest:
    """Return the dispatch request for a further queue, without keys: the index has the record under its own topic."""
    return msgspec.structs.replace(
        request, topic=key[0], queue_id=key[1], queue_offset=queue_offset, keys=None, uniq_key=None
    )
