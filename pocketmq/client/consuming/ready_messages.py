"""Messages ready to be consumed, of all queues of a consumer."""

import asyncio
from typing import Self

from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.message import MessageExt


class ReadyMessages:
    """An asynchronous iterator of (queue, message), for one or several takers. Queues take turns.

    `one_by_one`: a message is handed out only after the earlier ones of its queue are finished.
    """

    def __init__(self, one_by_one: bool) -> None:
        self._one_by_one = one_by_one
        self._offers: asyncio.Queue[ProcessQueue | None] = asyncio.Queue()
        self._is_closed = False

    def offer(self, work: ProcessQueue, count: int) -> None:
        """Announce that `count` more messages of a queue wait."""
        if not self._one_by_one:
            for _ in range(count):
                self._offers.put_nowait(work)
        elif count and not work.is_offered:
            work.is_offered = True
            self._offers.put_nowait(work)

    def released(self, work: ProcessQueue) -> None:
        """Announce that a message of a queue is no longer in hand, so that the next one may be taken."""
        if self._one_by_one:
            work.is_offered = False
            self.offer(work, work.waiting_count)

    def resumed(self, work: ProcessQueue) -> None:
        """Announce that a queue is no longer paused."""
        if not (self._one_by_one and work.has_in_hand):
            self.offer(work, work.waiting_count)

    def close(self) -> None:
        """End the iteration for all takers."""
        self._is_closed = True
        self._offers.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[ProcessQueue, MessageExt]:
        """Wait for a message and take it. It can be cancelled without loss."""
        while True:
            work = None if self._is_closed else await self._offers.get()
            if work is None or self._is_closed:
                self._offers.put_nowait(None)  # for the other takers
                raise StopAsyncIteration
            if (taken := self._take(work)) is not None:
                return taken

    def take_now(self) -> tuple[ProcessQueue, MessageExt] | None:
        """Take a message if there is one."""
        while not self._is_closed and not self._offers.empty():
            work = self._offers.get_nowait()
            if work is not None and (taken := self._take(work)) is not None:
                return taken
        return None

    def _take(self, work: ProcessQueue) -> tuple[ProcessQueue, MessageExt] | None:
        message = work.take()
        if message is None and not work.has_in_hand:
            work.is_offered = False
        return None if message is None else (work, message)
