"""Popped messages: the records in an answer, each with its handle and the number of its earlier deliveries; and the requests
about one of them: its ack, and the change of its invisible time.
"""

from collections.abc import Iterator

from pocketmq.client.message import MessageExt, decode_records
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.handles.pop_handle import Handle, retry_flag, retry_topic_of
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from pocketmq.store.format.record import Record

POP_CK = "POP_CK"


def popped_messages(answer: RemotingCommand, broker_name: str) -> Iterator[tuple[MessageExt, Handle]]:
    """Yield the messages of a pop as a client gives them to its user, each with its handle. Raises as `PopAnswer`."""
    pop = PopAnswer(answer, broker_name)
    for record, message in decode_records(answer.body, broker_name):
        handle = pop.handle(record, message.properties)
        message.reconsume_times = pop.times(record, handle)
        yield message, handle


class PopAnswer:
    """The header of an answer to a pop. Raises ValueError if the answer is not consistent."""

    def __init__(self, answer: RemotingCommand, broker_name: str) -> None:
        self._header = answer.header(PopMessageResponseHeader)
        self._broker_name = broker_name
        self._starts = _table(self._header.start_offset_info)
        self._counts = _table(self._header.order_count_info)

    def handle(self, record: Record, properties: dict[str, str]) -> Handle:
        """Return the handle of a record."""
        kept = properties.get(POP_CK)
        if kept is not None:
            return Handle.parse(kept)
        header, flag = self._header, retry_flag(record.topic.decode(errors="replace"))
        if (start := self._starts.get((flag, str(record.queue_id)))) is None:
            raise ValueError(f"the answer to a pop has no start offset for queue {record.queue_id}")
        return Handle(
            int(start), header.pop_time, header.invisible_time, header.revive_qid, flag, self._broker_name,
            record.queue_id, record.queue_offset,
        )  # fmt: skip

    def times(self, record: Record, handle: Handle) -> int:
        """Return the number of earlier deliveries; that of an ordered pop is in its answer."""
        for key in (f"qo{handle.queue_id}%{handle.queue_offset}", str(handle.queue_id)):
            count = self._counts.get((handle.flag, key))
            if count is not None:
                return int(count)
        return record.reconsume_times


def _table(text: str | None) -> dict[tuple[str, str], str]:
    """Return (retry flag, queue) -> value of a list `flag queue value;...`."""
    rows = (entry.split(" ") for entry in (text or "").split(";") if entry)
    return {(row[0], row[1]): row[2] for row in rows if len(row) == 3}


# --- requests about one message ------------------------------------------------------------------------------------


def stored_topic(handle: Handle, topic: str, group: str) -> str:
    """Return the topic that has the message: the subscribed one or the group's retry topic for it."""
    return topic if handle.flag == "0" else retry_topic_of(topic, group, with_v2=handle.flag == "2")


def ack_header(handle: Handle, topic: str, group: str) -> AckMessageRequestHeader:
    """Return the header of ACK_MESSAGE."""
    stored = stored_topic(handle, topic, group)
    return AckMessageRequestHeader(group, stored, handle.queue_id, str(handle), handle.queue_offset)


def change_header(handle: Handle, topic: str, group: str, invisible_ms: int) -> ChangeInvisibleTimeRequestHeader:
    """Return the header of CHANGE_MESSAGE_INVISIBLETIME."""
    stored = stored_topic(handle, topic, group)
    return ChangeInvisibleTimeRequestHeader(group, stored, handle.queue_id, str(handle), handle.queue_offset, invisible_ms)


def changed_handle(handle: Handle, answer: RemotingCommand) -> Handle:
    """Return the new handle, given the answer to CHANGE_MESSAGE_INVISIBLETIME."""
    fields = answer.header(ChangeInvisibleTimeResponseHeader)
    return handle._replace(
        start_offset=handle.queue_offset,
        pop_time_ms=fields.pop_time,
        invisible_time_ms=fields.invisible_time,
        revive_queue=fields.revive_qid,
    )
