"""Messages in the answer to a pop, each with its receipt."""

from typing import NamedTuple

from pocketmq.client.consuming.popped import PopAnswer
from pocketmq.client.message import records_of
from pocketmq.proxy.clients.receipt import Receipt
from pocketmq.proxy.messages.outgoing import message_id
from pocketmq.remoting.command import RemotingCommand
from pocketmq.store.format.properties import TAGS, decode_properties
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
    pop, found = PopAnswer(answer, broker_name), list[PoppedMessage]()
    for record in records_of(answer.body):
        properties = decode_properties(record.properties)
        handle = pop.handle(record, properties)
        receipt = Receipt(handle, record.physical_offset)
        found.append(PoppedMessage(record, properties, receipt, pop.times(record, handle)))
    return found
