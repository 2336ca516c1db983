"""Samples of the brokers' figures of the last hour, from which the charts are drawn."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pocketmq.admin.api.brokers import BrokerState, broker_states, first_rate, out_rates
from pocketmq.admin.api.client import AdminError
from pocketmq.console.accounts import Account
from pocketmq.remoting.dispatch import RemotingError

log = logging.getLogger("console")

INTERVAL_S: Final = 10.0
SAMPLES_MAX: Final = 360
"""An hour of samples of a broker."""
BROKERS_MAX: Final = 200
_ROUND_MAX_S: Final = 30.0


class Sample(NamedTuple):
    """Figures of a broker at a time in ms since 1970: messages per second in and out, and the ratio of its disk in use."""

    time_ms: int
    in_rate: float
    out_rate: float
    disk_ratio: float


class Sampler:
    """Rings of samples by broker address, filled every 10 s in the name of the console's own account."""

    def __init__(self, account: Account, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._account = account
        self._now_ms = now_ms
        self.rings: dict[str, deque[Sample]] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_ROUND_MAX_S):
                    self.add(await broker_states(self._account.client.again(), None))
            except (AdminError, RemotingError, OSError, TimeoutError, ValueError) as failure:
                log.info("the brokers cannot be sampled: %s", failure)
            await asyncio.sleep(INTERVAL_S)

    def add(self, states: list[BrokerState]) -> None:
        """Add a sample of each broker that told its figures, and forget brokers without any in the last hour."""
        now_ms = self._now_ms()
        for state in states:
            if state.runtime_info and (state.address in self.rings or len(self.rings) < BROKERS_MAX):
                with contextlib.suppress(ValueError):  # a figure that is no number
                    sample = _sample(now_ms, state.runtime_info)
                    self.rings.setdefault(state.address, deque(maxlen=SAMPLES_MAX)).append(sample)
        oldest_ms = now_ms - int(INTERVAL_S * SAMPLES_MAX * 1000)
        for address in [address for address, ring in self.rings.items() if ring[-1].time_ms < oldest_ms]:
            del self.rings[address]


def _sample(now_ms: int, info: Mapping[str, str]) -> Sample:
    disk_ratio = float(info.get("commitLogDiskRatio") or 0)
    return Sample(now_ms, first_rate(info.get("putTps", "")), first_rate(out_rates(info)), max(disk_ratio, 0.0))
