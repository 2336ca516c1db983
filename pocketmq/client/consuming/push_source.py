"""The messages of the held queues as a source for consumption: success advances offsets, failure leads to a retry."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from pocketmq.client.consuming.consumption import DEAD_LETTER, ReconsumeLater
from pocketmq.client.consuming.held_queues import PAUSE_S, HeldQueues
from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.message import MessageExt
from pocketmq.client.send_back import send_back

log = logging.getLogger("client")

_NO_LIMIT: Final = 1 << 31


class PushSource:
    """Source of a push consumer."""

    def __init__(self, queues: HeldQueues, is_ordered: bool, is_broadcasting: bool) -> None:
        self._queues, self._options = queues, queues.options
        self._is_ordered, self._is_broadcasting = is_ordered, is_broadcasting

    def __aiter__(self) -> AsyncIterator[tuple[ProcessQueue, MessageExt]]:
        return self._queues.ready

    def topic_of(self, place: ProcessQueue) -> str:
        return place.queue.topic

    async def succeeded(self, place: ProcessQueue, message: MessageExt) -> None:
        self._queues.finished(place, message)

    def abandon(self, place: ProcessQueue, message: MessageExt) -> None:
        place.put_back(message)
        self._queues.released(place)

    async def failed(self, place: ProcessQueue, message: MessageExt, failure: BaseException) -> None:
        """Send a message back; or suspend its queue, if ordered; a broadcasting consumer goes on with the next one."""
        level = failure.delay_level if isinstance(failure, ReconsumeLater) else 0
        trace = None if isinstance(failure, ReconsumeLater) else failure
        about = "consuming message %s of %s failed"
        if self._is_broadcasting:
            log.error(f"{about}; a broadcast message is not delivered again", message.msg_id, message.topic, exc_info=trace)
        elif self._is_ordered and not self._is_dead(message, level):
            log.error(f"{about}; its queue is suspended", message.msg_id, message.topic, exc_info=trace)
            message.reconsume_times += 1
            self._queues.suspend(place, message, self._options.suspend_ms / 1000)
            return
        else:
            log.error(f"{about}; sending it back", message.msg_id, message.topic, exc_info=trace)
            if not await self._sent_back(place, message, DEAD_LETTER if self._is_ordered else level):
                self.abandon(place, message)
                return
        self._queues.finished(place, message)

    def _is_dead(self, message: MessageExt, level: int) -> bool:
        times_max = self._options.max_reconsume_times
        return level == DEAD_LETTER or message.reconsume_times >= (_NO_LIMIT if times_max is None else times_max)

    async def _sent_back(self, place: ProcessQueue, message: MessageExt, level: int) -> bool:
        """Return whether a broker has the message, after as many attempts as it takes; False once the queue is given up."""
        times_max, requests = self._options.max_reconsume_times, self._queues.requests
        while not await send_back(requests.instance, requests.group, message, level, times_max):
            if place.is_dropped:
                return False
            await asyncio.sleep(PAUSE_S)
        return True
