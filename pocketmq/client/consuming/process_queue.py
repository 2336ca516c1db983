"""A queue in the hands of a consumer: its pulled messages, its offsets, and its running info."""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any, Final

from pocketmq.client.message import MessageExt, now_ms
from pocketmq.remoting.bodies import MessageQueue

SPAN_MAX: Final = 2000
"""Maximum number of messages pulled from the lowest unfinished one on, including consumed ones (Java:
consumeConcurrentlyMaxSpan)."""

LOCK_VALID_S: Final = 30.0
"""Time after its last renewal for which a client relies on its lock; brokers keep a lock for 60 s."""


class ProcessQueue:
    """A queue allocated to this client. A pulled message is *waiting*, then *in hand*, and at last *finished*.

    Messages may be finished in any order; the consumer offset is that of the lowest unfinished message.
    """

    def __init__(self, queue: MessageQueue, fetch_offset: int = -1) -> None:
        self.queue = queue
        self.fetch_offset = fetch_offset
        """Queue offset of the next pull; -1: it must be queried."""
        self.committed_offset = -1
        """Consumer offset that the master has stored; -1 before the first commit."""
        self.is_dropped = False
        self.is_offered = False
        """Whether it is among the queues with messages ready to be consumed, in a consumer that takes them one by one."""
        self.is_paused = False
        """Whether it is neither pulled from nor consumed, as asked by the user or after a failure of an ordered message."""
        self.locked_s: float | None = None
        """Monotonic time at which the broker last locked the queue for this client; None if the consumer needs no lock."""
        self.bytes = 0
        """Size of the bodies of unfinished messages."""
        self.task: asyncio.Task[None] | None = None
        """The task that pulls."""
        self._waiting: deque[MessageExt] = deque()
        self._in_hand: dict[int, MessageExt] = {}
        self._offsets: deque[int] = deque()
        """Offsets of the pulled messages from the lowest unfinished one on."""
        self._finished: set[int] = set()
        """Those of `_offsets` that are finished."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._pulled_ms = self._consumed_ms = now_ms()

    @property
    def consumer_offset(self) -> int:
        """Queue offset of the next message to consume; -1 if it is not known yet."""
        return self._offsets[0] if self._offsets else self.fetch_offset

    @property
    def position(self) -> int:
        """Queue offset of the next message to be taken, or pulled; -1 if it is not known yet."""
        return self._waiting[0].queue_offset if self._waiting else self.fetch_offset

    @property
    def unfinished_count(self) -> int:
        """Number of messages that are waiting or in hand."""
        return len(self._waiting) + len(self._in_hand)

    @property
    def waiting_count(self) -> int:
        """Number of messages that are waiting."""
        return len(self._waiting)

    @property
    def is_lock_valid(self) -> bool:
        """Whether no other client can have the queue, as far as a lock is needed."""
        return self.locked_s is None or time.monotonic() - self.locked_s < LOCK_VALID_S

    @property
    def has_in_hand(self) -> bool:
        """Whether a message is in hand."""
        return bool(self._in_hand)

    @property
    def is_too_wide(self) -> bool:
        """Whether one message is unfinished behind which very many are finished."""
        return len(self._offsets) >= SPAN_MAX

    def pulled(self, messages: list[MessageExt], next_offset: int) -> None:
        """Add the messages of a pull, which continues at `next_offset`."""
        self._waiting.extend(messages)
        self._offsets.extend(message.queue_offset for message in messages)
        self.bytes += sum(len(message.body) for message in messages)
        self.fetch_offset = next_offset
        self._pulled_ms = now_ms()

    def take(self) -> MessageExt | None:
        """Take the next waiting message in hand and return it; None if no message can be taken now."""
        if self.is_dropped or self.is_paused or not self._waiting or not self.is_lock_valid:
            return None
        message = self._waiting.popleft()
        self._in_hand[message.queue_offset] = message
        self._idle.clear()
        return message

    def finish(self, message: MessageExt) -> bool:
        """Count a message as consumed; return False if it is not in hand (any more)."""
        if not self._release(message):
            return False
        self.bytes -= len(message.body)
        self._consumed_ms = now_ms()
        self._finished.add(message.queue_offset)
        while self._offsets and self._offsets[0] in self._finished:
            self._finished.discard(self._offsets.popleft())
        return True

    def put_back(self, message: MessageExt) -> bool:
        """Make a message in hand the next waiting one; return False if it is not in hand (any more)."""
        if not self._release(message):
            return False
        self._waiting.appendleft(message)
        return True

    def _release(self, message: MessageExt) -> bool:
        if self._in_hand.get(message.queue_offset) is not message:
            return False
        del self._in_hand[message.queue_offset]
        if not self._in_hand:
            self._idle.set()
        return True

    def drop(self) -> None:
        """Pull and hand out nothing any more. Messages in hand can still be finished."""
        self.is_dropped = True
        if self.task is not None:
            self.task.cancel()
        self.clear_waiting()

    def clear_waiting(self) -> None:
        """Forget the waiting messages; they are pulled again from the lowest unfinished offset on."""
        self.bytes -= sum(len(message.body) for message in self._waiting)
        if self._waiting:
            first = min(message.queue_offset for message in self._waiting)
            while self._offsets and self._offsets[-1] >= first:
                self._finished.discard(self._offsets.pop())
            self.fetch_offset = first
        self._waiting.clear()

    async def idle(self, timeout_s: float | None) -> int:
        """Wait until no message is in hand, at most `timeout_s`; return the number of those that still are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        return len(self._in_hand)

    def info(self) -> dict[str, Any]:
        """Return ProcessQueueInfo, with the field names that Java's tools use."""
        offsets = sorted([*self._in_hand, *(message.queue_offset for message in self._waiting)])
        is_locked = self.locked_s is not None
        return {
            "commitOffset": max(self.consumer_offset, 0),
            "cachedMsgMinOffset": offsets[0] if offsets else 0,
            "cachedMsgMaxOffset": offsets[-1] if offsets else 0,
            "cachedMsgCount": len(offsets),
            "cachedMsgSizeInMiB": self.bytes >> 20,
            "transactionMsgMinOffset": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgCount": 0,
            "locked": is_locked,
            "tryUnlockTimes": 0,
            "lastLockTimestamp": now_ms() - int((time.monotonic() - (self.locked_s or 0)) * 1000) if is_locked else 0,
            "droped": self.is_dropped,  # Java's spelling
            "lastPullTimestamp": self._pulled_ms,
            "lastConsumeTimestamp": self._consumed_ms,
        }
