"""Receipt: the handle of a popped message with the position of its record, as Apache's proxy gives it to clients.

startOffset popTime invisibleTime reviveQueue retryFlag broker queueId queueOffset commitLogOffset
"""

from typing import TYPE_CHECKING, NamedTuple

from pocketmq.client.consuming.popped import ack_header, change_header, changed_handle, stored_topic
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.handles.pop_handle import Handle
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
        return stored_topic(self.handle, topic, group)

    async def acknowledge(self, session: "Session", topic: str, group: str) -> None:
        """Acknowledge the message. Raises as `Session.call`."""
        header = ack_header(self.handle, topic, group)
        await session.call(topic, self.handle.broker_name, RequestCode.ACK_MESSAGE, header)

    async def change(self, session: "Session", topic: str, group: str, invisible_ms: int) -> "Receipt":
        """Make the message visible in `invisible_ms`; return its new handle. Raises as `Session.call`."""
        header = change_header(self.handle, topic, group, invisible_ms)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = await session.call(topic, self.handle.broker_name, code, header)
        return Receipt(changed_handle(self.handle, answer), self.physical_offset)
