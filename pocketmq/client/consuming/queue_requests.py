"""Requests of a consumer group for one queue: pulls, consumer offsets, queue offsets.

As in Apache's clients, a pull goes to the broker that the last answer for its queue suggested, by default the master.
Slaves serve all requests of this module, so each goes to a slave while the master cannot be reached.
"""

from typing import Final

import msgspec

from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import MessageExt, decode_messages
from pocketmq.client.message_check import check_topic
from pocketmq.client.route import MASTER_ID, BrokerAddress
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

PULL_COUNT_MAX: Final = 32
PULL_TIMEOUT_S: Final = 30.0
_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
PULL_STATUS: Final[dict[int, str]] = {
    ResponseCode.SUCCESS: "FOUND",
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
"""Answers to a pull that are not refusals, with Java's PullStatus for each."""


class PullResult(msgspec.Struct):
    """Result of a pull. `is_moved`: the requested queue offset does not exist; continue at `next_begin_offset`.

    `is_refused_by_slave`: a slave does not have the requested queue offset, perhaps because it has not copied it yet.
    """

    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    is_moved: bool
    is_refused_by_slave: bool = False


class QueueRequests:
    """The requests of one group. Calls raise RemotingError, OSError or TimeoutError, and RuntimeError after the end."""

    def __init__(self, instance: ClientInstance, group: str, lifecycle: Lifecycle) -> None:
        self.instance = instance
        self.group = group
        self._lifecycle = lifecycle
        self._suggested_ids: dict[MessageQueue, str] = {}
        """Broker ids other than the master's that were suggested for queues."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, sorted."""
        self._lifecycle.check_not_closed()
        check_topic(topic)
        return await self.instance.routes.subscribe_queues(topic)

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        count_max: int = PULL_COUNT_MAX,
        tags: str | None = "*",
        wait_ms: int = 0,
        commit_offset: int = 0,
        sub_version: int = 0,
        expression_type: str = "TAG",
    ) -> PullResult:
        """Return the messages from `queue_offset` on; if there are none yet, the broker holds the request for `wait_ms`.

        `tags` (`a || b`) None: use the subscription of the last heartbeat. With `expression_type` "SQL92" it is an SQL92
        expression. A `commit_offset` above 0 is stored by the broker.
        """
        self._lifecycle.check_not_closed()
        if count_max < 1 or wait_ms < 0:
            raise ValueError(f"count_max must be 1 or more and wait_ms 0 or more, not {count_max} and {wait_ms}")
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=count_max,
            sys_flag=_COMMIT * (commit_offset > 0) | _SUSPEND * (wait_ms > 0) | _SUBSCRIPTION * (tags is not None),
            commit_offset=commit_offset,
            suspend_timeout_millis=wait_ms,
            sub_version=sub_version,
            subscription=tags,
            expression_type=expression_type,
        )
        slave_header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~_COMMIT)  # slaves store no offsets
        await self.instance.routes.route(queue.topic)
        answer, broker = await self.instance.invoke_any(
            queue.broker_name,
            RequestCode.PULL_MESSAGE,
            header,
            slave_header,
            self._suggested_ids.get(queue, MASTER_ID),
            PULL_TIMEOUT_S + wait_ms / 1000,
        )
        return self._pulled(queue, queue_offset, answer, broker)

    def _pulled(self, queue: MessageQueue, queue_offset: int, answer: RemotingCommand, broker: BrokerAddress) -> PullResult:
        """Return the result of a pull. Raises RemotingError if the broker refused it."""
        if answer.code not in PULL_STATUS:
            self._suggested_ids.pop(queue, None)
            refusal = answer.remark or f"broker {queue.broker_name!r} refused the pull with code {answer.code}"
            raise RemotingError(answer.code, refusal)
        response = answer.header(PullMessageResponseHeader)
        self._suggest(queue, str(response.suggest_which_broker_id))
        found = answer.code == ResponseCode.SUCCESS
        is_refused = answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and response.next_begin_offset == queue_offset
        return PullResult(
            decode_messages(answer.body, queue.broker_name) if found else [],
            response.next_begin_offset,
            response.min_offset,
            response.max_offset,
            answer.code == ResponseCode.PULL_OFFSET_MOVED,
            broker.is_slave and is_refused,
        )

    async def _invoke(self, queue: MessageQueue, code: int, header: CommandHeader) -> tuple[RemotingCommand, BrokerAddress]:
        """As `ClientInstance.invoke_any`, at the brokers of a queue."""
        self._lifecycle.check_not_closed()
        await self.instance.routes.route(queue.topic)
        return await self.instance.invoke_any(queue.broker_name, code, header)

    def _suggest(self, queue: MessageQueue, broker_id: str) -> None:
        if broker_id == MASTER_ID:
            self._suggested_ids.pop(queue, None)
        else:
            self._suggested_ids[queue] = broker_id

    async def committed(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Return the group's consumer offset in a queue, None if it has none.

        Brokers answer 0 for a new group if all messages of the queue are recent; those of 4.9 even without `zero_if_new`.
        """
        header = QueryConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id, None if zero_if_new else False)
        answer, _ = await self._invoke(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _checked(answer, queue).header(OffsetResponseHeader).offset

    async def commit_somewhere(self, queue: MessageQueue, consumer_offset: int) -> bool:
        """Store the group's consumer offset, at a slave while the master cannot be reached.

        Returns whether the master stored it. If not, store it again: masters copy none from slaves.
        """
        header = UpdateConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id, consumer_offset)
        answer, broker = await self._invoke(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        _checked(answer, queue)
        return not broker.is_slave

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest existing message."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, queue: MessageQueue, code: int, header: QueueRequestHeader | SearchOffsetRequestHeader) -> int:
        answer, _ = await self._invoke(queue, code, header)
        return _checked(answer, queue).header(OffsetResponseHeader).offset


def _checked(answer: RemotingCommand, queue: MessageQueue) -> RemotingCommand:
    """Return an answer with code SUCCESS. Raises RemotingError."""
    if answer.code != ResponseCode.SUCCESS:
        raise RemotingError(answer.code, answer.remark or f"broker {queue.broker_name!r} answered with code {answer.code}")
    return answer
