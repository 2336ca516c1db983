"""Membership in a consumer group: which queues of the subscribed topics this client holds.

Queues are allocated again when a broker notifies a change of the group (NOTIFY_CONSUMER_IDS_CHANGED), and every 20 s. A
broadcasting consumer holds all queues.
"""

import asyncio
import contextlib
import logging
from typing import Final

from pocketmq.client.consuming.allocation import allocated
from pocketmq.client.consuming.held_queues import HeldQueues, cancelled
from pocketmq.client.consuming.queue_locks import RENEW_LOCKS_S
from pocketmq.remoting.bodies import ConsumerIdList, MessageQueue, decode_body
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader

log = logging.getLogger("client")

REBALANCE_S: Final = 20.0
PERSIST_OFFSETS_S: Final = 5.0


class Rebalancing:
    """Keeps the held queues of one member of a group in line with the group."""

    def __init__(self, queues: HeldQueues, is_broadcasting: bool) -> None:
        self._queues, self._is_broadcasting = queues, is_broadcasting
        self._instance, self._group = queues.requests.instance, queues.requests.group
        self._resets: dict[MessageQueue, int] = {}
        """Held queue -> consumer offset at which a broker has asked to continue."""
        self._now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_finishing = False
        """Whether no further queues are taken."""

    async def start(self, commits: bool = True) -> None:
        """Join the group. Raises RemotingError if a topic is unknown, ConnectionError if no server answers."""
        await self._instance.heartbeat()  # creates the group and its retry topic
        await self._rebalance()
        self._instance.start()
        if commits:
            self._instance.every(PERSIST_OFFSETS_S, self._queues.commit)
        self._instance.every(RENEW_LOCKS_S, self._queues.renew_locks)
        self._task = asyncio.create_task(self._keep_balanced())

    async def stop(self) -> None:
        """Allocate no more queues; the held ones are kept."""
        self.is_finishing = True
        await cancelled([self._task])

    def allocate_now(self) -> None:
        """Allocate the queues again at once."""
        self._now.set()

    def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue held queues at these consumer offsets, after the messages in hand."""
        self._resets |= {queue: offset for queue, offset in offsets.items() if queue in self._queues.held}
        self._now.set()

    async def _keep_balanced(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_S):  # wait_for of 3.11 may swallow the cancellation by `stop`
                    await self._now.wait()
            self._now.clear()
            try:
                resets, self._resets = self._resets, {}
                if not self.is_finishing:
                    await self._queues.reset(resets)
                await self._rebalance()
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("rebalance of %s failed: %s", self._group, failure)

    async def _rebalance(self) -> None:
        for topic in () if self.is_finishing else tuple(self._queues.subscriptions):
            mine = None
            with Tolerating(ResponseCode.TOPIC_NOT_EXIST):  # the retry topic, while the name server does not know it
                mine = await self._allocated(await self._instance.routes.subscribe_queues(topic))
            if mine is None:
                continue
            held = {queue for queue in self._queues.held if queue.topic == topic}
            await self._queues.drop(held - mine)
            if not self.is_finishing:
                await self._queues.take(mine - held)

    async def _allocated(self, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        """Return this client's queues of a topic; None if no broker knows the group, to keep the allocation."""
        if self._is_broadcasting:
            return set(queues)
        client_ids = await self._client_ids(queues)
        if client_ids is None:
            return None
        return set(allocated(self._queues.options.strategy, queues, client_ids, self._instance.client_id))

    async def _client_ids(self, queues: list[MessageQueue]) -> list[str] | None:
        """Return the client ids of the group from a broker; None if no broker knows the group.

        Raises OSError or TimeoutError if no broker can be reached.
        """
        header = ConsumerGroupRequestHeader(self._group)
        failures: list[OSError] = []
        is_answered = not queues
        for broker_name in sorted({queue.broker_name for queue in queues}):
            try:
                answer, _ = await self._instance.invoke_any(broker_name, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            except OSError as failure:  # also TimeoutError
                failures.append(failure)
                continue
            is_answered = True
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(ConsumerIdList, answer.body).consumer_id_list
            await self._instance.heartbeat()  # the broker may not know this client yet; the next round will find it
        if not is_answered:
            raise failures[0]
        return None
