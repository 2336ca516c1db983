"""The messages that a consumer has popped: they are acknowledged, renewed while they are in hand, or made visible later."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consuming.consumption import DEAD_LETTER, ReconsumeLater
from pocketmq.client.consuming.popped import ack_header, change_header, changed_handle
from pocketmq.client.message import MessageExt
from pocketmq.client.send_back import send_back
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.pop_handle import Handle

log = logging.getLogger("client")

LATER_S: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Time until a failed message comes again, by attempts or by delay level (Java: popDelayLevel)."""
SOON_MS: Final = 1000
"""Time until a message that was given up comes again."""


class Popped:
    """One popped message, and its handle, which changes when its invisible time does."""

    def __init__(self, topic: str, message: MessageExt, handle: Handle, invisible_ms: int) -> None:
        self.topic, self.message, self.handle = topic, message, handle
        self.changing = asyncio.Lock()
        self.is_ended = False
        self.renewed(invisible_ms)

    def renewed(self, invisible_ms: int) -> None:
        """Note that the message is invisible for so long from now on."""
        self.visible_s = time.monotonic() + invisible_ms / 1000
        """Monotonic time at which the broker delivers it again."""


class PopSource:
    """Source of a pop consumer."""

    def __init__(self, instance: ClientInstance, group: str, invisible_ms: int, max_reconsume_times: int | None) -> None:
        self._instance, self._group = instance, group
        self._invisible_ms, self._max_reconsume_times = invisible_ms, max_reconsume_times
        self._waiting: asyncio.Queue[Popped | None] = asyncio.Queue()
        self._unfinished: dict[int, Popped] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._returning: set[asyncio.Task[None]] = set()

    def add(self, popped: Popped) -> None:
        """Add a message."""
        self._unfinished[id(popped)] = popped
        self._waiting.put_nowait(popped)

    async def room(self, count_max: int) -> None:
        """Wait until fewer than `count_max` messages wait."""
        while self._waiting.qsize() >= count_max:
            self._changed.clear()
            await self._changed.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Popped, MessageExt]:
        while not self._is_closed:
            popped = await self._waiting.get()
            self._changed.set()
            if popped is not None and not self._is_closed:
                return popped, popped.message
            if popped is not None:
                self.abandon(popped, popped.message)
        self._waiting.put_nowait(None)  # for the other takers
        raise StopAsyncIteration

    def topic_of(self, place: Popped) -> str:
        return place.topic

    async def succeeded(self, place: Popped, message: MessageExt) -> None:
        """Acknowledge a message. If that fails, it is delivered again."""
        await self._end(place, "acknowledging", lambda: self._ack(place))

    async def failed(self, place: Popped, message: MessageExt, failure: BaseException) -> None:
        """Make a message visible later; after too many attempts send it to the dead-letter topic."""
        is_asked = isinstance(failure, ReconsumeLater)
        level = failure.delay_level if isinstance(failure, ReconsumeLater) else 0
        text = "consuming message %s of %s failed"
        log.error(text, message.msg_id, message.topic, exc_info=None if is_asked else failure)
        times_max = self._max_reconsume_times
        if level == DEAD_LETTER or times_max is not None and message.reconsume_times >= times_max:
            if await send_back(self._instance, self._group, message, DEAD_LETTER, 0):
                await self.succeeded(place, message)
                return
            level = 0
        index = min(level - 1 if level > 0 else message.reconsume_times, len(LATER_S) - 1)
        await self._end(place, "putting off", lambda: self._change(place, LATER_S[index] * 1000))

    def abandon(self, place: Popped, message: MessageExt) -> None:
        """Make a message visible soon, in the background."""
        task = asyncio.create_task(self._end(place, "giving up", lambda: self._change(place, SOON_MS)))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def renew(self) -> None:
        """Prolong the invisible time of those messages of which half of it has passed."""
        half_s = self._invisible_ms / 2000
        for popped in list(self._unfinished.values()):
            if popped.visible_s - time.monotonic() > half_s:
                continue
            async with popped.changing:
                if popped.is_ended:
                    continue
                try:
                    await self._change(popped, self._invisible_ms)
                except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                    log.warning("renewing %s failed, it may be delivered again: %s", popped.message.msg_id, failure)

    async def close(self, timeout_s: float | None) -> None:
        """End the iteration, give up the waiting messages, and wait for those in hand."""
        self._is_closed = True
        while not self._waiting.empty():
            popped = self._waiting.get_nowait()
            if popped is not None:
                self.abandon(popped, popped.message)
        self._waiting.put_nowait(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unfinished:
                    self._changed.clear()
                    await self._changed.wait()

    async def returned(self) -> None:
        """Wait until the messages that were given up are visible again."""
        await asyncio.gather(*self._returning, return_exceptions=True)

    async def _end(self, place: Popped, doing: str, request: Callable[[], Awaitable[None]]) -> None:
        async with place.changing:
            if place.is_ended:
                return
            place.is_ended = True
            try:
                await request()
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("%s %s failed, it will be delivered again: %s", doing, place.message.msg_id, failure)
            finally:
                self._unfinished.pop(id(place), None)
                self._changed.set()

    async def _ack(self, place: Popped) -> None:
        header = ack_header(place.handle, place.topic, self._group)
        await self._instance.call(place.handle.broker_name, RequestCode.ACK_MESSAGE, header)

    async def _change(self, place: Popped, invisible_ms: int) -> None:
        header = change_header(place.handle, place.topic, self._group, invisible_ms)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = await self._instance.call(place.handle.broker_name, code, header)
        place.handle = changed_handle(place.handle, answer)
        place.renewed(invisible_ms)
