"""Messages in the answer to a pop, each with its receipt."""

from typing import NamedTuple

from pocketmq.client.consuming.popped import popped_records
from pocketmq.proxy.clients.receipt import Receipt
from pocketmq.proxy.messages.outgoing import message_id
from pocketmq.remoting.command import RemotingCommand
from pocketmq.store.format.properties import TAGS
from pocketmq.store.format.record import Record


class PoppedMessage(NamedTuple):
    """One message; `reconsume_times` counts its earlier deliveries to the group."""

    record: Record
    properties: dict[str, str]
    receipt: Receipt
    reconsume_times: int

    @property
    def message_id(self) -> str:
        return message_id(self.record, self.properties)

    def has_tag(self, kind: str, expression: str) -> bool:
        """Return whether a filter by tag accepts it; brokers compare hashes only."""
        if kind != "TAG" or expression == "*":
            return True
        return self.properties.get(TAGS, "") in (tag.strip() for tag in expression.split("||"))


def popped_messages(answer: RemotingCommand, broker_name: str) -> list[PoppedMessage]:
    """Return the messages of a pop. Raises ValueError if the answer is not consistent."""
    return [
        PoppedMessage(one.record, one.properties, Receipt(one.handle, one.record.physical_offset), one.reconsume_times)
        for one in popped_records(answer, broker_name)
    ]
