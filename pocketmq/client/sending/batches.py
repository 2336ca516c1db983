"""Splitting a list of messages of any topics and size into batches that brokers accept."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pocketmq.client.message import Message, encode_properties
from pocketmq.client.sending.outgoing import SendResult, checked, is_delayed
from pocketmq.errors import MQError

BATCH_SIZE_MAX: Final = 1024 * 1024
"""Size of a batch above which the next one begins; a larger message is sent alone."""
_RECORD_SIZE: Final = 128
"""Size of a stored message without topic, body and properties, generously: brokers limit the stored size of a batch."""


class BatchError(MQError):
    """A part of the messages is sent: `results` of the batches before the failure, and the messages in `unsent`.

    The first messages of `unsent` may be stored as well if no answer came. The failure is `__cause__`.
    """

    def __init__(self, failure: BaseException, results: list[SendResult], unsent: list[Message]) -> None:
        super().__init__(f"{len(unsent)} messages are not sent: {failure or type(failure).__name__}")
        self.results, self.unsent = results, unsent


def split(messages: Iterable[Message], size_max: int) -> Iterator[Sequence[Message]]:
    """Yield the messages in batches of one topic, each in sequence; delayed messages, which fit no batch, one by one.

    Raises TypeError or ValueError for an invalid message, before the first batch.
    """
    limit = min(size_max, BATCH_SIZE_MAX)
    by_topic: dict[str, list[tuple[Message, int, bool]]] = {}
    for message in messages:
        body = checked(message).checked_body(size_max)
        properties = message.all_properties()
        size = _RECORD_SIZE + len(message.topic) + len(body) + len(encode_properties(properties).encode())
        by_topic.setdefault(message.topic, []).append((message, size, is_delayed(properties)))
    return _batches(by_topic.values(), limit)


def _batches(topics: Iterable[list[tuple[Message, int, bool]]], limit: int) -> Iterator[Sequence[Message]]:
    for rows in topics:
        batch: list[Message] = []
        batch_size = 0
        for message, size, is_alone in rows:
            if batch and (is_alone or batch_size + size > limit):
                yield batch
                batch, batch_size = [], 0
            batch.append(message)
            batch_size += limit if is_alone else size
        if batch:
            yield batch
