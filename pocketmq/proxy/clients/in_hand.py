"""InHand: the messages that clients have in hand, whose receipt handles the front renews.

A push consumer leaves the renewal to the front. While the client lives, its messages stay invisible for as long as it needs;
when it is gone, they are soon visible again. The client keeps the handle that it got; the front maps it to the current one.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from pocketmq.proxy.clients.receipt import Receipt
from pocketmq.proxy.config import GrpcConfig
from pocketmq.remoting.dispatch import RemotingError

if TYPE_CHECKING:
    from pocketmq.proxy.clients.session import Session

log = logging.getLogger("proxy")

AT_ONCE: Final = 64
"""Number of handles that are changed at a time for one client."""


class Held:
    """One message in hand: its current handle, when that ends and when it was received, in monotonic ms."""

    __slots__ = ("changing", "failures", "group", "receipt", "since_ms", "topic", "until_ms")

    def __init__(self, topic: str, group: str, receipt: Receipt, until_ms: int, since_ms: int) -> None:
        self.topic, self.group, self.receipt = topic, group, receipt
        self.until_ms, self.since_ms = until_ms, since_ms
        self.failures = 0
        self.changing = asyncio.Lock()


class InHand:
    """Messages in the hand of one client, by the handle that it was given, the one that ends first in front."""

    def __init__(self, config: GrpcConfig) -> None:
        self.config = config
        self._held: OrderedDict[str, Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_room(self) -> bool:
        return len(self._held) < self.config.grpc_max_messages_in_hand_per_client

    def add(self, topic: str, group: str, receipt: Receipt, invisible_ms: int) -> None:
        """Keep a message that was sent to the client."""
        since_ms = monotonic_ms()
        self._held[str(receipt)] = Held(topic, group, receipt, since_ms + invisible_ms, since_ms)

    @asynccontextmanager
    async def using(self, handle: str) -> AsyncIterator[Receipt | None]:
        """Give the current handle for that of the client, None if it is not kept; after success it is renewed no more."""
        held = self._held.get(handle)
        if held is None:
            yield None
            return
        async with held.changing:
            yield held.receipt
            self._held.pop(handle, None)

    async def renew(self, session: "Session") -> None:
        """Renew the handles that end soon."""
        now, config = monotonic_ms(), self.config
        due = []
        for handle, held in self._held.items():
            if held.until_ms - now > config.renew_ahead_time_millis:
                break
            due.append((handle, held))
        for handle, held in due:
            if now - held.since_ms > config.renew_max_time_millis or held.failures > config.max_renew_retry_times:
                self._held.pop(handle, None)
                log.warning("%r: the handle of a message of %s is renewed no more", session, held.topic)
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._renew(session, *one) for one in due[start : start + AT_ONCE]))

    async def _renew(self, session: "Session", handle: str, held: Held) -> None:
        invisible_ms = self.config.default_invisible_time_mills
        async with held.changing:
            if self._held.get(handle) is not held:
                return
            try:
                held.receipt = await held.receipt.change(session, held.topic, held.group, invisible_ms)
            except (OSError, TimeoutError, RemotingError) as failure:
                held.failures += 1
                log.warning("%r: renewing a handle failed: %s", session, failure)
                return
            held.failures = 0
            held.until_ms = monotonic_ms() + invisible_ms
            self._held.move_to_end(handle)

    async def release(self, session: "Session") -> None:
        """Make all messages visible soon, because their client is gone."""
        held, self._held = list(self._held.values()), OrderedDict()
        soon_ms = self.config.invisible_time_millis_when_clear

        async def change(one: Held) -> None:
            async with one.changing:
                await one.receipt.change(session, one.topic, one.group, soon_ms)

        for start in range(0, len(held), AT_ONCE):
            results = await asyncio.gather(*map(change, held[start : start + AT_ONCE]), return_exceptions=True)
            failures = [result for result in results if result is not None]
            if failures:
                log.warning(
                    "%r: %d messages stay invisible until their handles end: %s", session, len(failures), failures[0]
                )


def monotonic_ms() -> int:
    """Return the loop's time in ms."""
    return int(asyncio.get_running_loop().time() * 1000)
