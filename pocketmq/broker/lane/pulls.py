"""OrdinaryPulls: lets the compiled lane answer the pulls at the front of a read that find messages.

A pull is *ordinary* if its queue has messages from its offset on, all of which it wants, and these are recent: in memory,
written by this process, in one file. Checks, filters, progress and statistics are those of the Python path.
"""

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pocketmq.broker.filter.subscription import wants_all
from pocketmq.broker.handlers.pull import COMMIT_OFFSET_FLAG, SUBSCRIPTION_FLAG, check_pull, filter_of
from pocketmq.broker.lane.template import MARKS, pieces
from pocketmq.broker.services import Services
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Buffer, Response
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.fair_share import MANY_REQUESTS, SERVED_AT_ONCE
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.remoting.server import Channel
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.queue.record_filter import NotCompiled

if TYPE_CHECKING:
    from pocketmq.lane._lane import PullFields

_COPY_MAX: Final = 64 * 1024
"""Bytes of records that are copied into an answer; the Python path sends more of them as views of the log."""


class OrdinaryPulls:
    """Answers pulls with the compiled lane."""

    def __init__(self, services: Services, pulls_class: Any, channels: Channels) -> None:
        """`pulls_class`: `Pulls` of the compiled module."""
        self._services, self._share = services, channels.share
        answer = Response(ResponseCode.SUCCESS, PullMessageResponseHeader(0, *map(int, MARKS[:3])), remark="FOUND")
        self._pulls = pulls_class(pieces(answer, int(MARKS[3]), MARKS), channels.header_size_max)

    def serve(self, channel: Channel, data: bytes, out: list[Buffer]) -> int:
        """Answer the ordinary pulls at the front of `data`, as many as the Python path would; return the bytes served."""
        served = count = 0
        count_max = SERVED_AT_ONCE if self._share.has_time_for_many else MANY_REQUESTS
        while count < count_max:
            pull = self._pulls.read(data, served)
            if pull is None:
                break
            size, opaque, fields = pull
            frame = self._answer(channel, fields, opaque)
            if frame is None:
                break
            out.append(frame)
            served += size
            count += 1
        if count > MANY_REQUESTS:
            self._share.charge(monotonic() - channel.last_active)
        return served

    def _answer(self, channel: Channel, fields: "PullFields", opaque: int) -> bytes | None:
        """Return the frame with the answer to a pull; None, without any effect, if it is not ordinary."""
        group, topic, queue_id, queue_offset, _, sys_flag, commit_offset, *_ = fields
        services = self._services
        queue = services.store.queues.queues.get((topic, queue_id))
        if (
            queue is None
            or not queue.min_offset <= queue_offset < queue.max_offset
            or services.holds.is_stopped
            or services.offsets.resets
            or services.config.slave_read_enable
            or services.ha_client is not None
            or not self._is_for_all(channel, fields)
        ):
            return None
        began_s = monotonic()
        found = self._read(queue, queue_offset, fields[4], opaque)
        if found is None:
            return None
        frame, count, size = found
        services.absent_holders.note_activity(group, topic, queue_id)
        services.offsets.pulled(group, topic, queue_id, queue_offset + count)
        services.stats.get(group, topic, queue_id, count, size, monotonic() - began_s)
        if sys_flag & COMMIT_OFFSET_FLAG:
            services.offsets.commit(group, topic, queue_id, commit_offset)
        return frame

    def _is_for_all(self, channel: Channel, fields: "PullFields") -> bool:
        """Return whether a pull is permitted and its filter accepts all messages."""
        group, topic, queue_id, _, _, sys_flag, _, _, _, subscription, expression_type = fields
        try:
            group_config = check_pull(self._services, group, topic, queue_id, channel)
            if sys_flag & SUBSCRIPTION_FLAG and wants_all(expression_type, subscription):
                return True
            return filter_of(self._services, PullMessageRequestHeader(*fields), group_config) is None
        except (RemotingError, NotCompiled):
            return False  # the Python path says why

    def _read(self, queue: Any, first: int, max_msg_nums: int, opaque: int) -> tuple[bytes, int, int] | None:
        """Return the frame of an answer, the number of its messages and their size."""
        store = self._services.store
        config = store.config
        count_max = min(max(max_msg_nums, 1), config.max_transfer_count_on_message_in_memory)
        units = queue.units(first, count_max)
        file = store.commit_log.mapped_files.file_at(int.from_bytes(units[:8], "big")) if units else None
        if file is None:
            return None
        reader = store.reader
        floor = max(reader.written_from, store.commit_log.max_offset - reader.in_memory_bytes)
        offsets = first, queue.min_offset, queue.max_offset
        size_max = min(config.max_transfer_bytes_on_message_in_memory, _COPY_MAX)
        found = self._pulls.answer(units, file.view[: file.wrote], (file.start_offset, floor), offsets, opaque, size_max)
        if found is not None and size_max == _COPY_MAX and found[1] * CONSUME_QUEUE_UNIT_SIZE < len(units):
            return None  # the Python path sends more messages
        return found  # type: ignore[no-any-return]
