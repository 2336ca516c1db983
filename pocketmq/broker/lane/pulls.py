"""OrdinaryPulls: lets the compiled lane answer the pulls at the front of a read that find messages.

A pull is *ordinary* if its queue has messages from its offset on, and those that it wants are recent: in memory,
written by this process, in one file. Checks, filters, progress and statistics are those of the Python path. The checks are
made once for the pulls of a read that differ in their queue and offset only.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from pocketmq.broker.filter.subscription import Wanted, wants_all
from pocketmq.broker.handlers.pull import SUBSCRIPTION_FLAG, check_pull, filter_of
from pocketmq.broker.lane.template import MARKS, pieces
from pocketmq.broker.services import Services
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Buffer, Response
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.fair_share import MANY_REQUESTS, SERVED_AT_ONCE
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.store.queue.record_filter import NotCompiled, RecordFilter

if TYPE_CHECKING:
    from pocketmq.lane._lane import PullFields


class OrdinaryPulls:
    """Answers pulls with the compiled lane, which counts them until statistics or progress are read."""

    def __init__(self, services: Services, pulls_class: Any, channels: Channels) -> None:
        """`pulls_class`: `Pulls` of the compiled module."""
        self._services, self._share = services, channels.share
        answer = Response(ResponseCode.SUCCESS, PullMessageResponseHeader(0, *map(int, MARKS[:3])), remark="FOUND")
        self._pulls = pulls_class(pieces(answer, int(MARKS[3]), MARKS), channels.header_size_max)
        services.stats.use_lane_pulls(self.note_progress)
        services.offsets.use_lane_pulls(self.note_progress)

    def serve(self, channel: Channel, data: bytes, start: int, out: list[Buffer]) -> int:
        """Answer the ordinary pulls from `start` on, as many as the Python path would; return the bytes served."""
        services = self._services
        offsets, store = services.offsets, services.store
        if (
            services.holds.is_stopped
            or offsets.resets
            or services.config.slave_read_enable
            or services.ha_client is not None
            or services.absent_holders.has_absent
            or offsets.room < SERVED_AT_ONCE  # a commit may be refused
        ):
            return 0
        config, reader, log = store.config, store.reader, store.commit_log
        floor = max(reader.written_from, log.max_offset - reader.in_memory_bytes)
        limits = config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory, floor
        count_max = SERVED_AT_ONCE if self._share.has_time_for_many else MANY_REQUESTS
        permit = partial(self._permitted, channel)
        used, commits, has_much_progress = self._pulls.serve(
            data, start, count_max, permit, reader, store.queues.queues, log.mapped_files, limits, out
        )
        for group, topic, queue_id, consumer_offset in commits:
            offsets.commit(group, topic, queue_id, consumer_offset)
        if used:
            offsets.is_behind_lane = True
        if has_much_progress:
            self.note_progress()
        return int(used)

    def note_progress(self) -> None:
        """Add the pulls that the lane has counted to the statistics, and note where the groups pull next."""
        offsets, stats = self._services.offsets, self._services.stats
        offsets.is_behind_lane = False
        pulled, took_max_s = self._pulls.take_progress()
        for key, next_offset, _ in pulled:
            offsets.pulled(key, next_offset)
        stats.got(((key, counted) for key, _, counted in pulled), took_max_s)

    def _permitted(self, channel: Channel, fields: "PullFields") -> tuple[int, Wanted]:
        """Return the number of queues that pulls like this one may read, and their filter; 0: the Python path decides."""
        group, topic, queue_id, _, _, sys_flag, _, _, _, subscription, expression_type = fields
        services, matches = self._services, None
        try:
            group_config = check_pull(services, group, topic, queue_id, channel)
            if not (sys_flag & SUBSCRIPTION_FLAG and wants_all(expression_type, subscription)):
                matches = filter_of(services, PullMessageRequestHeader(*fields), group_config)
        except (RemotingError, NotCompiled):
            return 0, None  # the Python path says why
        if isinstance(matches, RecordFilter) and not matches.is_constant:
            return 0, None  # it may need expressions that are not compiled
        return services.topics.table[topic].read_queue_nums, matches
