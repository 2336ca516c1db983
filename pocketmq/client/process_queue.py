"""A queue allocated to a push consumer: the task that consumes it, its offsets, and its running info."""

import asyncio
from typing import Any

from pocketmq.client.message import MessageExt, now_ms
from pocketmq.remoting.bodies import MessageQueue


class ProcessQueue:
    """A queue allocated to this client, and the task that consumes it."""

    def __init__(self, queue: MessageQueue, consumer_offset: int = -1) -> None:
        self.queue = queue
        self.consumer_offset = consumer_offset
        """Queue offset of the next message to consume; -1: it must be queried."""
        self.committed_offset = -1
        """Consumer offset that the master has stored; -1 before the first commit."""
        self.is_dropped = False
        self.is_pulling = False
        self.task: asyncio.Task[None]
        self._pulled: list[MessageExt] = []
        self._taken_count = 0
        self._pulled_ms = self._consumed_ms = now_ms()

    def drop(self) -> None:
        """Take no further message. A pull is cancelled; a message in the listener is finished."""
        self.is_dropped = True
        if self.is_pulling:
            self.task.cancel()

    def pulled(self, messages: list[MessageExt]) -> None:
        """Keep the messages of a pull until each is consumed."""
        self._pulled, self._taken_count = messages, 0
        self._pulled_ms = now_ms()

    def consumed(self) -> None:
        """Count the next of the pulled messages as consumed, or as skipped."""
        self._taken_count += 1
        self._consumed_ms = now_ms()

    def info(self) -> dict[str, Any]:
        """Return ProcessQueueInfo, with the field names that Java's tools use."""
        waiting = [] if self.is_pulling else self._pulled[self._taken_count :]
        return {
            "commitOffset": max(self.consumer_offset, 0),
            "cachedMsgMinOffset": waiting[0].queue_offset if waiting else 0,
            "cachedMsgMaxOffset": waiting[-1].queue_offset if waiting else 0,
            "cachedMsgCount": len(waiting),
            "cachedMsgSizeInMiB": sum(len(message.body) for message in waiting) >> 20,
            "transactionMsgMinOffset": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgCount": 0,
            "locked": False,
            "tryUnlockTimes": 0,
            "lastLockTimestamp": 0,
            "droped": self.is_dropped,  # Java's spelling
            "lastPullTimestamp": self._pulled_ms,
            "lastConsumeTimestamp": self._consumed_ms,
        }
