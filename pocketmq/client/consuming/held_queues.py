"""The queues in the hands of one consumer: they are pulled ahead, within a limit, and their offsets are stored.

Each queue has one task, which pulls (the broker holds the request until a message arrives). The messages of all queues are
taken from `ready`, and each is then finished or put back.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.consuming.consumer_options import ConsumerOptions
from pocketmq.client.consuming.offset_stores import OffsetStore
from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.consuming.queue_locks import QueueLocks
from pocketmq.client.consuming.queue_requests import PullResult, QueueRequests
from pocketmq.client.consuming.ready_messages import ReadyMessages
from pocketmq.client.consuming.subscription import is_wanted
from pocketmq.client.message import RETRY_GROUP_PREFIX, MessageExt
from pocketmq.remoting.bodies import MessageQueue, SubscriptionData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("client")

HOLD_MS: Final = 15_000
PAUSE_S: Final = 1.0
"""Delay between attempts after a failure."""

Start = str | int
"""Place at which a group without offsets begins: "first", "last", or a time in ms since 1970."""
_FROM_WHERE: Final = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}
_UNKNOWN_HERE = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


def check_start(start: Start) -> None:
    """Raise ValueError if `start` is neither a name nor a time."""
    if start not in _FROM_WHERE and (not isinstance(start, int) or isinstance(start, bool) or start < 0):
        raise ValueError(f"start must be 'first' or 'last', or a time in ms since 1970, not {start!r}")


def from_where(start: Start) -> str:
    """Return Java's ConsumeFromWhere for a start."""
    return _FROM_WHERE.get(str(start), "CONSUME_FROM_TIMESTAMP")


class HeldQueues:
    """The held queues. Fetching begins with `take` and ends with `drop`."""

    def __init__(
        self,
        requests: QueueRequests,
        offsets: OffsetStore,
        subscriptions: Mapping[str, SubscriptionData],
        options: ConsumerOptions,
        start: Start,
        one_by_one: bool,
        locks: QueueLocks | None = None,
    ) -> None:
        """`one_by_one`: see ReadyMessages. With `locks`, a queue is held only while it is locked at its broker."""
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.ready = ReadyMessages(one_by_one)
        self.rates = defaultdict[str, ConsumeRates](ConsumeRates)
        self.posts_subscription = False
        """Whether pulls contain the subscription, as without a group membership."""
        self.commits_when_pulling = True
        """Whether pulls store consumer offsets at the broker."""
        self.commits_at_end = True
        """Whether `drop` stores consumer offsets."""
        self.release_timeout_s: float | None = None
        """Time for which `drop` waits for messages in hand; None: until they are finished."""
        self.on_taken: Callable[[], None] = lambda: None
        """Called after more queues were taken."""
        self.requests, self.subscriptions, self.options = requests, subscriptions, options
        self._offsets, self._start = offsets, start
        self._locks = locks
        self._changed = asyncio.Event()
        self._failures = RefusalLog(log)  # by broker

    # Queues

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset at which a queue begins: the group's consumer offset, else by `start`."""
        stored = await self._offsets.committed(queue)
        if stored is not None:
            return stored
        if queue.topic.startswith(RETRY_GROUP_PREFIX) or self._start == "first":
            return max(0, await self.requests.min_offset(queue))
        if isinstance(self._start, int):
            return max(0, await self.requests.search_offset(queue, self._start))
        return await self.requests.max_offset(queue)

    async def take(self, queues: Iterable[MessageQueue]) -> None:
        """Hold more queues, and begin to pull from them. Queues that are locked for another client are left out."""
        wanted = list(queues)
        now_s = time.monotonic()
        locked = set(wanted) if self._locks is None or not wanted else (await self._locks.lock(wanted))[0]
        for queue in wanted:
            if queue not in self.held and queue in locked:
                work = ProcessQueue(queue)
                work.locked_s = None if self._locks is None else now_s
                self._begin(work)
        self.on_taken()

    def begin_at(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """Hold a queue from an offset on; messages of it that are in hand no longer count."""
        before = self.held.get(queue)
        work = ProcessQueue(queue, offset)
        if before is not None:
            work.locked_s, work.is_paused = before.locked_s, before.is_paused
            before.drop()
        self._begin(work)
        return work

    def _begin(self, work: ProcessQueue) -> None:
        self.held[work.queue] = work
        work.task = asyncio.create_task(self._fetch(work))

    async def drop(self, queues: Iterable[MessageQueue]) -> None:
        """Finish the messages in hand of some queues, store their offsets, and hold them no longer."""
        works = [self.held.pop(queue) for queue in queues if queue in self.held]
        await self.finish(works)
        if self.commits_at_end:
            await self._offsets.commit(works)
        if self._locks is not None and works:
            await self._locks.unlock(work.queue for work in works)
        self._changed.set()

    async def finish(self, works: list[ProcessQueue]) -> None:
        """Wait until the messages in hand are finished, at most the time for releases, and take no further ones."""
        for work in works:
            work.drop()
        counts = await asyncio.gather(*(work.idle(self.release_timeout_s) for work in works))
        tasks = [work.task for work in works if work.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if left := sum(counts):
            log.warning("%d messages are given up without an acknowledgement; they will be delivered again", left)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue held queues at other offsets, after the messages in hand."""
        works = [self.held[queue] for queue in offsets if queue in self.held]
        await self.finish(works)
        await self._offsets.commit(
            [self.begin_at(work.queue, offsets[work.queue]) for work in works if self.held.get(work.queue) is work]
        )

    async def commit(self) -> None:
        """Store the offsets of all held queues."""
        await self._offsets.commit(self.held.values())

    async def renew_locks(self) -> None:
        """Renew the locks of all held queues. Drop those locked for another client, whose offsets are no longer ours."""
        if self._locks is None or not self.held:
            return
        now_s = time.monotonic()
        works = list(self.held.values())
        locked, refused = await self._locks.lock(work.queue for work in works)
        lost = []
        for work in works:
            if work.queue in locked:
                was_valid, work.locked_s = work.is_lock_valid, now_s
                if not was_valid:
                    self.ready.resumed(work)
            elif work.queue in refused and self.held.get(work.queue) is work:
                log.warning("the lock of %s was lost to another client", work.queue)
                lost.append(work)
        for work in lost:
            del self.held[work.queue]
        await self.finish(lost)

    # Messages

    def finished(self, work: ProcessQueue, message: MessageExt) -> bool:
        """Count a message in hand as consumed; return False if it is no longer in hand."""
        is_known = work.finish(message)
        self.released(work)
        return is_known

    def released(self, work: ProcessQueue) -> None:
        """Announce that a message of a queue is no longer in hand."""
        self.ready.released(work)
        self._changed.set()

    def suspend(self, work: ProcessQueue, message: MessageExt, suspend_s: float) -> None:
        """Put a message in hand back, and continue its queue with it after some time."""
        if not work.put_back(message):
            return
        work.is_paused = True
        self.ready.released(work)
        asyncio.get_running_loop().call_later(suspend_s, self.resume, work)

    def resume(self, work: ProcessQueue) -> None:
        """Continue a paused queue."""
        work.is_paused = False
        self.ready.resumed(work)
        self._changed.set()

    async def _room(self, work: ProcessQueue) -> None:
        """Wait until a queue may be pulled: nothing of it is unfinished, or all queues together are below the limit."""
        while not self._has_room(work):
            self._changed.clear()
            await self._changed.wait()

    def _has_room(self, work: ProcessQueue) -> bool:
        if work.is_paused or work.is_too_wide:
            return False
        if not work.unfinished_count:
            return True
        works = self.held.values()
        count, size = sum(one.unfinished_count for one in works), sum(one.bytes for one in works)
        return count < self.options.buffer_messages and size < self.options.buffer_bytes

    # Pulls

    async def _fetch(self, work: ProcessQueue) -> None:
        while not work.is_dropped:
            try:
                await self._room(work)
                await self._fetch_once(work)
                self._failures.over(work.queue.broker_name)
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                self._failures.refused(work.queue.broker_name, f"consuming from {work.queue} failed: {failure}")
                if isinstance(failure, RemotingError) and failure.code in _UNKNOWN_HERE:
                    await self.requests.instance.heartbeat()  # the broker was restarted and does not know the group yet
                await asyncio.sleep(PAUSE_S)

    async def _fetch_once(self, work: ProcessQueue) -> None:
        if work.fetch_offset < 0:
            work.fetch_offset = await self.begin_offset(work.queue)
        own = self.subscriptions[work.queue.topic]
        asked_s = time.monotonic()
        result = await self.requests.pull(
            work.queue,
            work.fetch_offset,
            self.options.pull_batch_size,
            tags=own.sub_string if self.posts_subscription else None,
            wait_ms=HOLD_MS,
            commit_offset=work.consumer_offset if self.commits_when_pulling else 0,
            sub_version=own.sub_version,
            expression_type=own.expression_type,
        )
        if result.is_refused_by_slave:
            await asyncio.sleep(PAUSE_S)
        if result.is_moved and work.unfinished_count:
            await self._move(work, result)
            return
        wanted = [message for message in result.messages if is_wanted(own, message)]
        work.pulled(wanted, result.next_begin_offset)
        self.ready.offer(work, len(wanted))
        if result.messages:
            self.rates[work.queue.topic].pulled(len(result.messages), (time.monotonic() - asked_s) * 1000)

    async def _move(self, work: ProcessQueue, result: PullResult) -> None:
        """Continue at the offset that the broker gave, after the messages in hand: offsets were reset or do not exist."""
        work.clear_waiting()
        await work.idle(self.release_timeout_s)
        if self.held.get(work.queue) is work:
            work.task = None  # it is this task
            self.begin_at(work.queue, result.next_begin_offset)


async def cancelled(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
