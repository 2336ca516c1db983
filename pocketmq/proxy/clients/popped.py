"""Messages in the answer to a pop, each with its receipt."""

from typing import NamedTuple

from pocketmq.proxy.clients.receipt import Receipt
from pocketmq.proxy.messages import properties as names
from pocketmq.proxy.messages.outgoing import message_id
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.handles.pop_handle import Handle, retry_flag
from pocketmq.remoting.headers.pop import PopMessageResponseHeader
from pocketmq.store.format.properties import TAGS, decode_properties
from pocketmq.store.format.record import Record, decode_record


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
    header = answer.header(PopMessageResponseHeader)
    starts = _table(header.start_offset_info)
    counts = _table(header.order_count_info)
    found = []
    view, position = memoryview(answer.body), 0
    while position < len(view):
        record = decode_record(view, position)
        position += record.total_size
        properties = decode_properties(record.properties)
        kept = properties.get(names.POP_CK)
        if kept is not None:
            handle = Handle.parse(kept)
        else:
            flag = retry_flag(record.topic.decode(errors="replace"))
            start = int(starts[flag, str(record.queue_id)])
            handle = Handle(
                start, header.pop_time, header.invisible_time, header.revive_qid, flag, broker_name,
                record.queue_id, record.queue_offset,
            )  # fmt: skip
        found.append(
            PoppedMessage(record, properties, Receipt(handle, record.physical_offset), _times(record, handle, counts))
        )
    return found


def _table(text: str | None) -> dict[tuple[str, str], str]:
    """Return (retry flag, queue) -> value of a list `flag queue value;...`."""
    rows = (entry.split(" ") for entry in (text or "").split(";") if entry)
    return {(row[0], row[1]): row[2] for row in rows if len(row) == 3}


def _times(record: Record, handle: Handle, counts: dict[tuple[str, str], str]) -> int:
    """Return the number of earlier deliveries; that of an ordered pop is in its answer."""
    if not counts:
        return record.reconsume_times
    for key in (f"qo{handle.queue_id}%{handle.queue_offset}", str(handle.queue_id)):
        count = counts.get((handle.flag, key))
        if count is not None:
            return int(count)
    return record.reconsume_times
