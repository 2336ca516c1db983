"""What the tests against live servers speak of."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.broker import Broker

DEADLINE_S = 20.0


@dataclass
class Cluster:
    """What a client is told, and the broker behind it."""

    namesrv: str
    broker: Broker


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what is to come; fails with the condition still false after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)
