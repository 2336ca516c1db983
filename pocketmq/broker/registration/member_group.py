"""MemberGroup: the live brokers of this broker name according to the name servers, and heartbeats to these (5.x)."""

import asyncio
import logging
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.registration.registration import is_address
from pocketmq.remoting import fastjson
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import BrokerHeartbeatRequestHeader, BrokerMemberGroupRequestHeader
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer, Timers

log = logging.getLogger("broker")

TIMEOUT_S: Final = 2.0


class MemberGroup:
    """Asks all name servers of this broker."""

    def __init__(self, config: BrokerConfig, client: RemotingClient, timers: Timers, broker_address: str) -> None:
        self._config = config
        self._client = client
        self._timers = timers
        self._name_servers = config.namesrv_addresses
        names = config.broker_cluster_name, config.broker_name
        self._header = BrokerMemberGroupRequestHeader(*names)
        self._heartbeat = BrokerHeartbeatRequestHeader(names[0], broker_address, names[1])
        self._timer: Timer | None = None
        self._failures = RefusalLog(log)

    def move(self, broker_address: str) -> None:
        """Send heartbeats for another advertised address."""
        self._heartbeat.broker_addr = broker_address

    def start(self) -> None:
        """Begin to send heartbeats, without which the name servers soon remove this broker from their routes."""
        self._timer = self._timers.every(self._config.broker_heartbeat_interval / 1000, self._send_heartbeats)

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()

    async def ask(self) -> dict[int, str] | None:
        """Return the live brokers by id, merged from all name servers; None if none of these answers."""
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        calls = [self._client.call(address, code, self._header, b"", TIMEOUT_S) for address in self._name_servers]
        members: dict[int, str] | None = None
        for address, answer in zip(self._name_servers, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            try:
                if isinstance(answer, BaseException):
                    raise answer
                members = (members or {}) | _members(answer.body)
            except (OSError, TimeoutError, RemotingError, ValueError, AttributeError) as error:
                why = error.remark if isinstance(error, RemotingError) else reason(error)
                failure = f"name server {address} does not return the brokers of this broker name: {why}"
                self._failures.refused(address, failure)
            else:
                self._failures.over(address)
        return members

    def _send_heartbeats(self) -> None:
        for address in self._name_servers:
            self._client.send_if_connected(address, RequestCode.BROKER_HEARTBEAT, self._heartbeat)


def _members(body: bytes | memoryview) -> dict[int, str]:
    """Read an answer to GET_BROKER_MEMBER_GROUP. Raises ValueError or AttributeError."""
    group = fastjson.loads(bytes(body)).get("brokerMemberGroup") or {}
    found = msgspec.convert(group.get("brokerAddrs") or {}, dict[int, str], strict=False)
    if not all(broker_id >= 0 and is_address(address) for broker_id, address in found.items()):
        raise ValueError("the answer has an invalid broker id or address")
    return found
