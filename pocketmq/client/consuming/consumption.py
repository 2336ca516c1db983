"""Consumption of messages by listeners, or by a loop (`async for`), whichever way they are fetched.

A *source* gives messages, each with its place, and is told what became of each. With listeners, workers call them; in a loop
the caller consumes a message, and acknowledges it by `ack`, or by asking for the next one.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.consuming.consume_hook import ConsumeContext, Hooks
from pocketmq.client.message import MessageExt

log = logging.getLogger("client")

Listener = Callable[[MessageExt], Awaitable[None] | None]
P = TypeVar("P")
T = TypeVar("T")

DEAD_LETTER: Final = -1
"""Delay level that sends a message to the dead-letter topic at once."""


class ReconsumeLater(Exception):
    """Raised by a listener to have its message delivered again, after the time of a delay level.

    Level 0: chosen by the number of attempts; -1: the message goes to the dead-letter topic at once. An ordered consumer
    suspends the queue for its `suspend_ms` instead of the level's time.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"consume later, delay level {delay_level}")
        self.delay_level = delay_level


_thread: ContextVar[int | None] = ContextVar("thread", default=None)


def _owner() -> object:
    """Return the owner of the loops of the calling code: the task, or the thread that it works for (`for_thread`)."""
    thread = _thread.get()
    return asyncio.current_task() if thread is None else thread


async def for_thread(thread: int, work: Coroutine[Any, Any, T]) -> T:
    """Do a step of the loops of a thread, to which each such step is a task of its own."""
    _thread.set(thread)
    return await work


def taken_by_loop(message: MessageExt) -> None:
    """Stand for the listener of a subscription whose messages `async for` takes; it is not called."""


class Source(Protocol[P]):
    """Messages to be consumed; iteration ends when the consumer closes. `P` is the place of a message."""

    def __aiter__(self) -> AsyncIterator[tuple[P, MessageExt]]: ...

    def topic_of(self, place: P) -> str:
        """Return the topic under which rates are counted."""

    async def succeeded(self, place: P, message: MessageExt) -> None:
        """A message was consumed."""

    async def failed(self, place: P, message: MessageExt, failure: BaseException) -> None:
        """A message was not consumed: it is to be delivered again, or is a dead letter."""

    def abandon(self, place: P, message: MessageExt) -> None:
        """A message was given up, without knowing whether it was consumed: it is to be delivered again."""


class _Taken(NamedTuple, Generic[P]):
    """A message that a loop has in hand."""

    place: P
    message: MessageExt
    context: ConsumeContext
    began_s: float


class Consumption(Generic[P]):
    """The workers or loops of one consumer."""

    def __init__(
        self,
        source: Source[P],
        listeners: Mapping[str, Listener],
        hooks: Hooks,
        rates: Mapping[str, ConsumeRates],
        concurrency: int | None,
        auto_ack: bool,
    ) -> None:
        """`concurrency`: number of workers, or of messages that loops have in hand; None: as many as `staff` says."""
        self._source, self._messages = source, source.__aiter__()
        self._listeners, self._hooks, self._rates = listeners, hooks, rates
        self._concurrency, self._auto_ack = concurrency, auto_ack
        self._permits = None if concurrency is None else asyncio.Semaphore(concurrency)
        self._workers: list[asyncio.Task[None]] = []
        self._taken: dict[int, _Taken[P]] = {}
        self._loops: list[MessageLoop[P]] = []

    @property
    def has_listeners(self) -> bool:
        """Whether listeners consume, not loops."""
        return taken_by_loop not in self._listeners.values()

    # Listeners

    def staff(self, count: int) -> None:
        """Have a worker for each of `count` messages at a time; with a fixed concurrency that number."""
        while self.has_listeners and len(self._workers) < (self._concurrency or count):
            self._workers.append(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        async for place, message in self._messages:
            failure = await self.listen(message, self._source.topic_of(place), self._listeners.get(message.topic))
            try:
                if failure is None:
                    await self._source.succeeded(place, message)
                else:
                    await self._source.failed(place, message, failure)
            except Exception:
                log.exception("message %s could not be finished; it will be delivered again", message.msg_id)
                self._source.abandon(place, message)

    async def listen(self, message: MessageExt, topic: str, listener: Listener | None) -> Exception | None:
        """Give a message to a listener; return its failure. `topic`: the one under which it is counted."""
        context, began_s, failure = self._hooks.before(message), time.monotonic(), None
        try:
            _check_consumable(message, listener is not None)
            outcome = listener(message) if listener is not None else None
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as raised:
            failure = raised
        self._count(context, topic, began_s, failure)
        return failure

    def _count(self, context: ConsumeContext, topic: str, began_s: float, failure: BaseException | None) -> None:
        spent_ms = (time.monotonic() - began_s) * 1000
        self._rates[topic].consumed(spent_ms, is_ok=failure is None)
        self._hooks.after(context, spent_ms, failure)

    # Loops

    def loop(self) -> "MessageLoop[P]":
        """Return a new iterator; several share the messages."""
        if self.has_listeners:
            raise RuntimeError("the messages go to listeners: subscribe without a listener to take them in a loop")
        return MessageLoop(self, self._auto_ack)

    async def begin_turn(self, loop: "MessageLoop[P]") -> None:
        """End the last messages of the caller's loops, also of those that it has left, and note its present loop."""
        await self.end_loops(is_clean=True)
        loop.owner = _owner()
        self._loops.append(loop)

    async def take(self) -> MessageExt:
        """Wait for a message and take it in hand. Raises StopAsyncIteration once the consumer closes."""
        while True:
            if self._permits is not None:
                await self._permits.acquire()
            try:
                place, message = await anext(self._messages)
            except BaseException:
                self._give_permit()
                raise
            taken = _Taken(place, message, self._hooks.before(message), time.monotonic())
            self._taken[id(message)] = taken
            try:
                _check_consumable(message, has_listener=True)
            except ValueError as problem:
                await self._end(taken, problem)
                continue
            return message

    def _give_permit(self) -> None:
        if self._permits is not None:
            self._permits.release()

    async def ack(self, message: MessageExt, failure: BaseException | None = None) -> bool:
        """End a message in hand; return False if it is not in hand (any more)."""
        taken = self._taken.get(id(message))
        if taken is None:
            return False
        await self._end(taken, failure)
        return True

    async def _end(self, taken: _Taken[P], failure: BaseException | None) -> None:
        del self._taken[id(taken.message)]
        self._give_permit()
        self._count(taken.context, self._source.topic_of(taken.place), taken.began_s, failure)
        if failure is None:
            await self._source.succeeded(taken.place, taken.message)
        else:
            await self._source.failed(taken.place, taken.message, failure)

    def abandon(self, message: MessageExt) -> None:
        """Give up a message in hand."""
        taken = self._taken.pop(id(message), None)
        if taken is not None:
            self._give_permit()
            self._source.abandon(taken.place, taken.message)

    # End

    async def end_loops(self, is_clean: bool) -> None:
        """End the loops of the caller: with `is_clean` their last messages are consumed, else they are given up."""
        owner = _owner()
        own = [loop for loop in self._loops if loop.owner == owner]
        self._loops = [loop for loop in self._loops if loop not in own]
        for loop in own:
            await loop.end(is_clean)

    async def close(self) -> None:
        """Wait until the workers have finished; the source must have ended. Messages still in hand are given up."""
        own = asyncio.current_task()  # a listener may close its consumer
        await asyncio.gather(*(worker for worker in self._workers if worker is not own), return_exceptions=True)
        for taken in list(self._taken.values()):
            self.abandon(taken.message)


class MessageLoop(Generic[P]):
    """One `async for` over the messages of a consumer. With automatic acks, asking for a message ends the last one."""

    def __init__(self, consumption: Consumption[P], auto_ack: bool) -> None:
        self._consumption, self._auto_ack = consumption, auto_ack
        self._last: MessageExt | None = None
        self.owner: object = None
        """The task that runs the loop, or the number of the thread."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        await self._consumption.begin_turn(self)
        self._last = await self._consumption.take()
        return self._last

    async def end(self, is_clean: bool) -> None:
        """End the last message, if acks are automatic and it was not ended by `ack` or `nack`."""
        last, self._last = self._last, None
        if last is None or not self._auto_ack:
            return
        if is_clean:
            await self._consumption.ack(last)
        else:
            self._consumption.abandon(last)


def _check_consumable(message: MessageExt, has_listener: bool) -> None:
    if message.problem is not None:
        raise ValueError(f"the body of message {message.msg_id} cannot be decompressed: {message.problem}")
    if not has_listener:
        raise LookupError(f"this consumer has no listener for topic {message.topic}")
