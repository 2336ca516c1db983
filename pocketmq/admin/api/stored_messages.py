"""Messages as a broker stores them, with all fields."""

from typing import NamedTuple

from pocketmq.admin.api.client import AdminError
from pocketmq.client.message import MessageExt, decode_records
from pocketmq.store.format.host import host_text
from pocketmq.store.format.record import Record


class StoredMessage(NamedTuple):
    """A record, and the message in it with its body as it was sent."""

    record: Record
    message: MessageExt

    @property
    def topic(self) -> str:
        """The topic of the queue; `message.topic` is the original one for a message of a retry topic."""
        return self.record.topic.decode(errors="replace")

    @property
    def born_host(self) -> str:
        return host_text(self.record.born_host)

    @property
    def store_host(self) -> str:
        return host_text(self.record.store_host)


def stored_messages(records: bytes | bytearray | memoryview, broker_name: str = "") -> list[StoredMessage]:
    """Return the messages in an answer's body. Raises AdminError for bytes that are not whole records."""
    try:
        return [StoredMessage(*found) for found in decode_records(bytes(records), broker_name)]
    except ValueError as wrong:
        raise AdminError(f"the answer has no readable messages: {wrong}") from None
