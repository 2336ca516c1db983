"""Requests about a popped message: the topic that has it, its ack, the change of its invisible time."""

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.handles.pop_handle import Handle, retry_topic_of
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)


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
