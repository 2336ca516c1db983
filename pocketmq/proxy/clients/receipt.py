"""Receipt: the handle of a popped message with the position of its record, as Apache's proxy gives it to clients.

startOffset popTime invisibleTime reviveQueue retryFlag broker queueId queueOffset commitLogOffset
"""

from typing import TYPE_CHECKING, NamedTuple

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.handles.pop_handle import Handle, retry_topic_of
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from pocketmq.runtime.peer_text import clipped

if TYPE_CHECKING:
    from pocketmq.proxy.clients.session import Session


class Receipt(NamedTuple):
    """A receipt handle."""

    handle: Handle
    physical_offset: int

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Parse a client's handle. Raises Refusal."""
        head, _, offset = text.rpartition(" ")
        try:
            if len(text) > 1000 or len(head.split(" ")) != 8:
                raise ValueError("it does not have nine fields")
            return cls(Handle.parse(head), int(offset))
        except ValueError as error:
            raise Refusal(pb.INVALID_RECEIPT_HANDLE, f"receipt handle {clipped(text)!r}: {clipped(error)}") from None

    def __str__(self) -> str:
        return f"{self.handle} {self.physical_offset}"

    def check_time(self, now_ms: int) -> None:
        """Raise Refusal if the message is visible again."""
        if self.handle.pop_time_ms + self.handle.invisible_time_ms < now_ms:
            raise Refusal(pb.INVALID_RECEIPT_HANDLE, "receipt handle is expired")

    def stored_topic(self, topic: str, group: str) -> str:
        """Return the topic that has the message: the subscribed one or the group's retry topic for it."""
        flag = self.handle.flag
        return topic if flag == "0" else retry_topic_of(topic, group, with_v2=flag == "2")

    async def acknowledge(self, session: "Session", topic: str, group: str) -> None:
        """Acknowledge the message. Raises as `Session.call`."""
        handle = self.handle
        stored = self.stored_topic(topic, group)
        header = AckMessageRequestHeader(group, stored, handle.queue_id, str(handle), handle.queue_offset)
        await session.call(topic, handle.broker_name, RequestCode.ACK_MESSAGE, header)

    async def change(self, session: "Session", topic: str, group: str, invisible_ms: int) -> "Receipt":
        """Make the message visible in `invisible_ms`; return its new handle. Raises as `Session.call`."""
        handle = self.handle
        header = ChangeInvisibleTimeRequestHeader(
            group, self.stored_topic(topic, group), handle.queue_id, str(handle), handle.queue_offset, invisible_ms
        )
        answer = await session.call(topic, handle.broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        fields = answer.header(ChangeInvisibleTimeResponseHeader)
        changed = handle._replace(
            start_offset=handle.queue_offset,
            pop_time_ms=fields.pop_time,
            invisible_time_ms=fields.invisible_time,
            revive_queue=fields.revive_qid,
        )
        return Receipt(changed, self.physical_offset)
