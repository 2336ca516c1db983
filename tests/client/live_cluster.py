"""Helpers for tests against live servers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.broker import Broker
from tests.patience import PATIENCE_S


@dataclass
class Cluster:
    """The address for clients, and the broker behind it."""

    namesrv: str
    broker: Broker


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` is true; fail after a deadline."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
