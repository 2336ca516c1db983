"""Pull consumer, and the requests for one queue from which the push consumer is built.

async with PullConsumer("127.0.0.1:9876", "audit") as consumer:
    for queue in await consumer.queues("TopicTest"):
        result = await consumer.pull(queue, await consumer.min_offset(queue))
"""

from typing import Final, Self

import msgspec

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import MessageExt, decode_messages
from pocketmq.client.message_check import check_group, check_topic
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
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
_PULL_ANSWERS = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}


class PullResult(msgspec.Struct):
    """Result of a pull. `is_moved`: the requested queue offset does not exist; continue at `next_begin_offset`."""

    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    is_moved: bool


class PullConsumer:
    """Reads queues at offsets chosen by the caller. Calls raise RemotingError, OSError or TimeoutError."""

    def __init__(self, namesrv: str, group: str, access: Access = PLAIN, instance: ClientInstance | None = None) -> None:
        check_group(group)
        self.instance = instance or ClientInstance(namesrv, access)
        self._lifecycle = Lifecycle("the consumer")
        self.group = group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Unregister and close all connections; later calls raise RuntimeError."""
        if self._lifecycle.close():
            await self.instance.close()

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
    ) -> PullResult:
        """Return the messages from `queue_offset` on; if there are none yet, the broker holds the request for `wait_ms`.

        `tags` (`a || b`) None: use the subscription of the last heartbeat. A `commit_offset` above 0 is stored by the
        broker.
        """
        self._lifecycle.check_not_closed()
        if count_max < 1 or wait_ms < 0:
            raise ValueError(f"count_max must be 1 or more and wait_ms 0 or more, not {count_max} and {wait_ms}")
        sys_flag = (_COMMIT if commit_offset > 0 else 0) | (_SUSPEND if wait_ms else 0)
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=count_max,
            sys_flag=sys_flag | (_SUBSCRIPTION if tags is not None else 0),
            commit_offset=commit_offset,
            suspend_timeout_millis=wait_ms,
            sub_version=sub_version,
            subscription=tags,
            expression_type="TAG",
        )
        answer = await self.instance.invoke(
            queue.broker_name, RequestCode.PULL_MESSAGE, header, timeout_s=PULL_TIMEOUT_S + wait_ms / 1000
        )
        if answer.code not in _PULL_ANSWERS:
            refusal = answer.remark or f"broker {queue.broker_name!r} refused the pull with {answer.code}"
            raise RemotingError(answer.code, refusal)
        told = answer.header(PullMessageResponseHeader)
        found = answer.code == ResponseCode.SUCCESS
        return PullResult(
            decode_messages(answer.body, queue.broker_name) if found else [],
            told.next_begin_offset,
            told.min_offset,
            told.max_offset,
            answer.code == ResponseCode.PULL_OFFSET_MOVED,
        )

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's consumer offset in a queue, None if it has none."""
        self._lifecycle.check_not_closed()
        header = QueryConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id)
        answer = await self.instance.invoke(queue.broker_name, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(answer.code, answer.remark or f"broker {queue.broker_name!r} answered {answer.code}")
        return answer.header(OffsetResponseHeader).offset

    async def commit(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Store the group's consumer offset."""
        self._lifecycle.check_not_closed()
        header = UpdateConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id, consumer_offset)
        await self.instance.call(queue.broker_name, RequestCode.UPDATE_CONSUMER_OFFSET, header)

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
        self._lifecycle.check_not_closed()
        answer = await self.instance.call(queue.broker_name, code, header)
        return answer.header(OffsetResponseHeader).offset
