"""MinBrokerNotifier: notifies brokers that the smallest id of their broker name has changed (NOTIFY_MIN_BROKER_ID_CHANGE).

Brokers also ask for it every second, so a notification is sent only once. It has a connection of its own, which is closed
afterwards, because the address is whatever a broker has registered. Notifications beyond UNDER_WAY_MAX are not sent.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.route import NotifyMinBrokerIdChangeRequestHeader
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("namesrv")

UNDER_WAY_MAX: Final = 256
TIMEOUT_S: Final = 1.0


class MinBrokerNotifier:
    """Sends NOTIFY_MIN_BROKER_ID_CHANGE to brokers."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failures = RefusalLog(log)

    def notify(self, change: NotifyMinBrokerIdChangeRequestHeader, addresses: Iterable[str]) -> None:
        """Notify the brokers at `addresses`; an older notification to one of them that is still under way is cancelled."""
        log.info("broker name %s: the smallest id is now %d", change.broker_name, change.min_broker_id)
        for address in addresses:
            if (older := self._under_way.pop(address, None)) is not None:
                older.cancel()
            if len(self._under_way) < UNDER_WAY_MAX:
                task = self._under_way[address] = asyncio.ensure_future(self._send(address, change))
                task.add_done_callback(partial(self._sent, address))

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._client.invoke(address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, timeout_s=TIMEOUT_S)
        except (OSError, TimeoutError, ValueError) as error:
            why = f"broker {address} cannot be notified of the smallest broker id ({reason(error)}); it will query it"
            self._failures.refused(address, why)

    def _sent(self, address: str, task: "asyncio.Task[None]") -> None:
        if self._under_way.get(address) is task:
            del self._under_way[address]
            self._client.disconnect(address)

    async def stop(self) -> None:
        """Cancel the notifications under way and close all connections."""
        for task in tuple(self._under_way.values()):
            task.cancel()
        await self._client.close()
