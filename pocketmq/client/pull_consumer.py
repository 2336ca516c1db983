"""Pull consumer: the caller says which queues it reads, and where.

    async with PullConsumer("127.0.0.1:9876", "audit") as consumer:
        for queue in await consumer.queues("TopicTest"):
            result = await consumer.pull(queue, await consumer.min_offset(queue))

`pull` reads once, at an offset given by the caller. `poll` and `async for` (Apache: DefaultLitePullConsumer) read on and on:
after `assign` from queues chosen by the caller, after `subscribe` from those that are allocated to it among its group.

    async with PullConsumer("127.0.0.1:9876", "audit", start="first") as consumer:
        consumer.subscribe("TopicTest")
        async for message in consumer: ...
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Self

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consuming.consumer_options import DEFAULTS, ConsumerOptions
from pocketmq.client.consuming.group_member import GroupMember
from pocketmq.client.consuming.held_queues import HeldQueues, Start, check_start, from_where
from pocketmq.client.consuming.offset_stores import BrokerOffsets
from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.consuming.queue_requests import QueueRequests
from pocketmq.client.consuming.rebalancing import PERSIST_OFFSETS_S
from pocketmq.client.consuming.subscription import subscription
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import MessageExt
from pocketmq.client.message_check import check_group
from pocketmq.remoting.bodies import ConsumerData, MessageQueue, SubscriptionData

POLL_COUNT_MAX: Final = 500


class PullConsumer(QueueRequests, GroupMember):
    """Reads queues at offsets chosen by the caller. Calls raise RemotingError, OSError or TimeoutError.

    Messages of a poll count as consumed when the next poll or `commit` is called. `start` ("first", "last", or a time in
    ms) applies to queues without a consumer offset of the group.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        access: Access = PLAIN,
        *,
        start: Start = "last",
        auto_commit: bool = True,
        options: ConsumerOptions = DEFAULTS,
    ) -> None:
        """`auto_commit`: consumer offsets are stored every 5 s, and at the end; else by `commit` only."""
        check_start(start)
        check_group(group)
        instance = ClientInstance(namesrv, access)
        QueueRequests.__init__(self, instance, group, Lifecycle("the consumer"))
        self._start, self._auto_commit = start, auto_commit
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._is_assigned = self._is_joined = False
        self._joining = asyncio.Lock()
        self._polled: list[tuple[ProcessQueue, MessageExt]] = []
        queues = HeldQueues(
            self,
            BrokerOffsets(self, zero_if_new=isinstance(start, str)),
            self._subscriptions,
            options,
            start,
            one_by_one=False,
        )
        queues.posts_subscription = True
        queues.commits_when_pulling = queues.commits_at_end = auto_commit
        queues.release_timeout_s = options.release_timeout_s
        GroupMember.__init__(self, queues)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish_polled()
        await self.close()

    async def close(self) -> None:
        """Store the offsets, leave the group, close all connections; later calls raise RuntimeError.

        Messages of the last poll are delivered again; at the end of `async with` they count as consumed.
        """
        if not self._lifecycle.begin_close():
            return
        for work, message in self._polled:
            work.put_back(message)
        await self.rebalancing.stop()
        self._queues.ready.close()
        await self._queues.drop(list(self._queues.held))
        self._lifecycle.close()
        await self.instance.close(self.group if self._is_joined else None)

    # Queues

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Share the queues of a topic with the other clients of the group. Must be called before the first poll.

        Raises TypeError or ValueError for invalid arguments, RuntimeError after a poll or `assign`.
        """
        self._lifecycle.check_not_closed()
        if self._is_assigned or self._is_joined:
            raise RuntimeError("subscribe() must come before the first poll, and cannot be combined with assign()")
        self._subscriptions[topic] = subscription(topic, tags, sql)

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None) -> None:
        """Read these queues, and no others any more, whatever the other clients of the group read.

        Raises TypeError or ValueError for invalid arguments, RuntimeError after `subscribe`.
        """
        self._lifecycle.check_not_closed()
        if self._subscriptions and not self._is_assigned:
            raise RuntimeError("assign() cannot be combined with subscribe()")
        wanted = set(queues)
        self._subscriptions |= {topic: subscription(topic, tags, sql) for topic in {queue.topic for queue in wanted}}
        self._is_assigned = True
        await self._join()
        await self._queues.drop(self._queues.held.keys() - wanted)
        await self._queues.take(wanted - self._queues.held.keys())

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read: those of `assign`, or those that are allocated to this client."""
        return list(self._queues.held)

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue a queue at an offset. Raises ValueError if this client does not read it."""
        if queue_offset < 0:
            raise ValueError(f"queue offset {queue_offset} is negative")
        self._work(queue)
        self._queues.begin_at(queue, queue_offset)

    async def position(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message that a poll returns. Raises ValueError as `seek`."""
        work = self._work(queue)
        return work.position if work.position >= 0 else await self._queues.begin_offset(queue)

    def pause(self, *queues: MessageQueue) -> None:
        """Return no more messages of these queues until `resume`. Raises ValueError as `seek`."""
        for queue in queues:
            self._work(queue).is_paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """Undo `pause`. Raises ValueError as `seek`."""
        for queue in queues:
            self._queues.resume(self._work(queue))

    def _work(self, queue: MessageQueue) -> ProcessQueue:
        self._lifecycle.check_not_closed()
        if queue not in self._queues.held:
            raise ValueError(f"{queue} is not read by this consumer: assign() it first")
        return self._queues.held[queue]

    async def offsets_for_times(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the first message stored at or after a time, else of the next message."""
        return {queue: await self.search_offset(queue, time_ms) for queue, time_ms in times_ms.items()}

    # Messages

    async def poll(self, timeout_s: float | None = 0.0, count_max: int = POLL_COUNT_MAX) -> list[MessageExt]:
        """Return messages; wait for the first one at most `timeout_s` (None: without limit). Earlier ones are consumed.

        Raises RuntimeError if nothing is subscribed or assigned.
        """
        if count_max < 1:
            raise ValueError(f"count_max must be 1 or more, not {count_max}")
        await self._join()
        self._finish_polled()
        if not self._take_ready(count_max):
            try:
                async with asyncio.timeout(timeout_s):
                    self._polled.append(await anext(self._queues.ready))
            except (TimeoutError, StopAsyncIteration):
                return []
            self._take_ready(count_max - 1)
        return [message for _, message in self._polled]

    def _take_ready(self, count_max: int) -> int:
        """Take up to `count_max` messages that are there already; return their number."""
        before = len(self._polled)
        while len(self._polled) - before < count_max and (taken := self._queues.ready.take_now()):
            self._polled.append(taken)
        return len(self._polled) - before

    def __aiter__(self) -> Self:
        """Return an iterator of messages; it ends when the consumer is closed."""
        return self

    async def __anext__(self) -> MessageExt:
        if not self._lifecycle.is_closing:
            for message in await self.poll(None, 1):
                return message
        raise StopAsyncIteration

    def _finish_polled(self) -> None:
        polled, self._polled = self._polled, []
        for work, message in polled:
            self._queues.finished(work, message)

    async def commit(self, queue: MessageQueue | None = None, consumer_offset: int | None = None) -> None:
        """Store the group's consumer offset in a queue; without arguments those of all queues, behind the polled messages.

        They are stored at a slave while the master cannot be reached.
        """
        if queue is not None:
            if consumer_offset is None:
                raise TypeError("commit(queue, consumer_offset) takes both, or none")
            await self.commit_somewhere(queue, consumer_offset)
            return
        self._lifecycle.check_not_closed()
        self._finish_polled()
        await self._queues.commit()

    # The group

    async def _join(self) -> None:
        async with self._joining:
            self._lifecycle.check_not_closed()
            if self._is_joined:
                return
            if self._is_assigned:
                for topic in self._subscriptions:
                    await self.instance.routes.route(topic)
                await self.instance.heartbeat()
                self.instance.start()
                if self._auto_commit:
                    self.instance.every(PERSIST_OFFSETS_S, self._queues.commit)
            elif self._subscriptions:
                for topic in self._subscriptions:
                    await self.instance.routes.refresh(topic)
                await self.rebalancing.start(commits=self._auto_commit)
            else:
                raise RuntimeError("the consumer has no queue: call subscribe(topic) or assign(queues) first")
            self._is_joined = True

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            consume_from_where=from_where(self._start),
            subscription_data_set=[] if self._is_assigned else list(self._subscriptions.values()),
        )
