"""Registration with the name servers: at start, every 30 s and at each change of a topic; unregistration at stop.

Registrations run in rounds, independently for each name server, so that one that hangs does not delay the others. A round
sends the whole topic table as of its begin; all requests made during a round share the next one. A name server that failed
last time is tried in every round, but not waited for. Between the periods it is retried every second while it cannot be
reached, and every ten seconds while it refuses this broker. The loss of the connection to a name server also starts a round,
because the name server then removes this broker from its routes.

A master takes no messages while every name server that answers has another living broker with its name and id. If that one's
state version is higher, it has taken over: this broker then takes no messages and does not register until it is restarted.

A long round (many topics) is followed by a pause of a multiple of its length. Changes during the pause share one round,
which bounds the share of time that broker and name server spend on registrations.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.topic_config import PERM_READ, PERM_WRITE, TopicConfigManager
from pocketmq.remoting.bodies import KVTable, TopicRouteData, decode_body, encode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import (
    BrokerIdentityRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.event import Event
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer, Timers

log = logging.getLogger("broker")

PERIOD_MIN_MS: Final = 10_000
PERIOD_MAX_MS: Final = 60_000
UNREGISTER_TIMEOUT_S: Final = 3.0
UNREACHABLE_RETRY_S: Final = 0.8
"""Delay before an unreachable name server is tried again: a random time from half of this to all of it."""
REFUSED_RETRY_S: Final = 10.0
"""The same for a name server that refuses: each attempt sends it the whole topic table."""
ROUND_FREE_S: Final = 0.004
"""Rounds up to this length are not followed by a pause."""
PAUSE_PER_ROUND: Final = 4.0
"""Pause after a longer round, as a multiple of its length: registrations take at most a fifth of the time."""
PAUSE_MAX_S: Final = 1.0
NO_MASTER_RETRY_S: Final = 3.0
"""Interval at which a slave without a reachable master registers, because the answer names the present master."""
ADDRESS_SIZE_MAX: Final = 300
LEFT_MAX: Final = 16
"""Limit of earlier addresses of this broker to be unregistered at a name server."""
PERM_ALL: Final = PERM_READ | PERM_WRITE
_IS_WATCHED: Final = "registration.is_watched"


class Master(NamedTuple):
    """Addresses of a slave's master: of its port for slaves, which may be unknown, and of its port for clients."""

    ha_address: str | None
    address: str


class _NameServer:
    """The rounds of registration with one name server."""

    def __init__(self, address: str, send: "Callable[[_NameServer], asyncio.Future[None]]", timers: Timers) -> None:
        self.address = address
        self.is_failing = False
        self.answer: int | None = None
        """The response code to the last registration; None without an answer."""
        self.left: list[str] = []
        """Former addresses of this broker that the name server may still have."""
        self.master: Master | None = None
        """The master of this slave according to its last answer."""
        self._send = send
        self._timers = timers
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._retry_timer: Timer | None = None
        self._is_stopped = False
        # Loop time at which the next round may begin.
        self._free_at_s = float("-inf")
        self._failures = RefusalLog(log)
        self._refusals = RefusalLog(log, level=logging.ERROR)

    def register(self) -> "asyncio.Future[None]":
        """Return a future that is done when a round begun after this call has ended, successful or not."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._running is None or self._running.done():
                self._running = asyncio.ensure_future(self._run())
        return self._next

    async def _run(self) -> None:
        self._cancel_retry()
        now_s = asyncio.get_running_loop().time
        while self._next is not None:
            if (pause_s := self._free_at_s - now_s()) > 0:
                await asyncio.sleep(pause_s)
            if self._next is None:
                return
            done, self._next = self._next, None
            began_s = now_s()
            try:
                await self._send(self)
            except RemotingError as error:
                self._refusals.refused(None, f"name server {self.address} refuses this broker: {error}; retrying")
                self._failed(REFUSED_RETRY_S)
            except (OSError, TimeoutError, ValueError) as error:
                failed = f"name server {self.address}: cannot register ({reason(error)}); retrying every second"
                self._failures.refused(None, failed)
                self._failed(UNREACHABLE_RETRY_S)
            else:
                if self.is_failing:
                    log.info("name server %s: registered again", self.address)
                    self._failures.over(None)
                    self._refusals.over(None)
                self.is_failing = False
                self._cancel_retry()
                took_s = now_s() - began_s
                if took_s > ROUND_FREE_S:
                    self._free_at_s = began_s + took_s + min(took_s * PAUSE_PER_ROUND, PAUSE_MAX_S)
            finally:
                if not done.done():
                    done.set_result(None)

    def connection_lost(self) -> None:
        """Register again after the connection was lost: the name server has removed this broker from its routes."""
        self._retry_after(UNREACHABLE_RETRY_S)

    def cancel(self) -> None:
        """Stop the rounds and complete the pending future."""
        self._is_stopped = True
        self._cancel_retry()
        if self._running is not None:
            self._running.cancel()
        if self._next is not None:
            done, self._next = self._next, None
            if not done.done():
                done.set_result(None)

    def _failed(self, delay_s: float) -> None:
        self.is_failing = True
        self._cancel_retry()
        self._retry_after(delay_s)

    def _retry_after(self, delay_s: float) -> None:
        if self._retry_timer is None and not self._is_stopped:
            self._retry_timer = self._timers.after(delay_s * random.uniform(0.5, 1.0), self._register_again)

    def _register_again(self) -> None:
        self._retry_timer = None
        self.register()

    def _cancel_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None


class Registration:
    """Registration of this broker with all its name servers; without name servers every method is a no-op."""

    def __init__(
        self, config: BrokerConfig, topics: TopicConfigManager, client: RemotingClient, timers: Timers, broker_address: str,
        ha_listen_port: int = 0,
    ) -> None:  # fmt: skip
        """`ha_listen_port`: the port for slaves; 0: the one behind that of `broker_address`."""
        self._config = config
        self._topics = topics
        self._client = client
        self._timers = timers
        self._timer: Timer | None = None
        self._name_servers = [
            _NameServer(address, lambda server: asyncio.ensure_future(self._register(server)), timers)
            for address in config.namesrv_addresses
        ]
        self._is_started = False
        self._encoded = b""
        self._encoded_version: tuple[int, int, int] | None = None
        host, _, port = broker_address.rpartition(":")
        self.broker_address = broker_address
        self._ha_host = config.broker_ip2 or host
        # Apache's slaves send such an address too.
        self.ha_server_address = f"{self._ha_host}:{ha_listen_port or int(port) + 1}"
        self.master: Master | None = None
        """The last known master of this slave. It stays when the name servers lose it: they may just have been restarted."""
        self.master_changed: Event[[str | None, str]] = Event()
        """Called with (HA address, address) when the master of this slave is found or its addresses change."""
        self._master_timer: Timer | None = None
        self.refused_as_second: Event[[str | None]] = Event()
        """Called with the reason when this master may take no messages any more, and with None when it may again."""
        self._second: str | None = None
        self._superseded: RemotingError | None = None
        self._malformed = RefusalLog(log)
        self._masterless = RefusalLog(log)

    def serve_slaves_at(self, ha_port: int) -> None:
        """Advertise `ha_port` as the port for slaves, from the next registration on; 0: no slave is served."""
        self.ha_server_address = f"{self._ha_host}:{ha_port}" if ha_port else ""

    def move(self, broker_address: str) -> None:
        """Advertise another address from now on, in place of the old one."""
        if broker_address == self.broker_address:
            return
        for server in self._name_servers:
            server.left = [*server.left, self.broker_address][-LEFT_MAX:]
        host = broker_address.rpartition(":")[0]
        self.broker_address = broker_address
        self._ha_host = self._config.broker_ip2 or host
        if self.ha_server_address:
            self.serve_slaves_at(int(self.ha_server_address.rpartition(":")[2]))
        log.info("the advertised address is now %s", broker_address)
        self.register()

    async def start(self) -> None:
        """Register with every name server, and periodically from then on. Name servers that do not answer are retried."""
        self._is_started = True
        period_ms = min(max(self._config.register_name_server_period, PERIOD_MIN_MS), PERIOD_MAX_MS)
        self._timer = self._timers.every(period_ms / 1000, self._register_again)
        if self._name_servers:
            await asyncio.wait([server.register() for server in self._name_servers])

    def name_servers(self) -> dict[str, bool]:
        """Return the address of each name server -> whether the last registration with it succeeded."""
        return {server.address: not server.is_failing for server in self._name_servers}

    def register(self) -> "asyncio.Future[list[None]]":
        """Register again soon. Return a future that is done when all working name servers have the present topics."""
        rounds = [(server, server.register()) for server in self._name_servers] if self._is_started else []
        return asyncio.gather(*(done for server, done in rounds if not server.is_failing))

    async def route_of(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic from the first working name server that has it, or None."""
        for server in self._name_servers:
            if server.is_failing:
                continue
            with suppress(OSError, RemotingError, ValueError):
                header = GetRouteInfoRequestHeader(topic)
                answer = await self._client.call(server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                return decode_body(TopicRouteData, answer.body)
        return None

    async def stop(self) -> None:
        """Unregister from every working name server."""
        self._is_started = False
        for timer in (self._timer, self._master_timer):
            if timer is not None:
                timer.cancel()
        for server in self._name_servers:
            server.cancel()
        header = self._identity(self.broker_address)
        results = await asyncio.gather(
            *(
                self._client.call(server.address, RequestCode.UNREGISTER_BROKER, header, b"", UNREGISTER_TIMEOUT_S)
                for server in self._name_servers
                if not server.is_failing
            ),
            return_exceptions=True,
        )
        for failure in results:
            if isinstance(failure, Exception):
                log.warning("unregistration from a name server failed: %s", failure)

    def _register_again(self) -> None:
        self.register()

    async def _register(self, server: _NameServer) -> None:
        server.answer = None
        try:
            if self._superseded is not None:
                raise self._superseded
            await self._register_at(server)
            server.answer = ResponseCode.SUCCESS
        except RemotingError as error:
            server.answer = error.code
            if error.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH:
                self._superseded = error
            raise
        finally:
            self._look_for_a_second_master()

    def _look_for_a_second_master(self) -> None:
        """Announce whether another broker is the master in place of this one."""
        answers = {server.answer for server in self._name_servers} - {None}
        if self._config.broker_id > 0:
            return
        found, another = None, f"the name servers have another master of broker {self._config.broker_name}"
        if self._superseded is not None:
            found = f"{another}, which has taken over: this one takes no messages until it is restarted, as a slave"
        elif answers == {ResponseCode.CONTROLLER_INVALID_MASTER}:
            found = f"{another}: this one takes no messages as long as the other one lives"
        if found != self._second:
            log.error("%s", found) if found is not None else log.info("this master takes messages again")
            self._second = found
            self.refused_as_second(found)

    async def _register_at(self, server: _NameServer) -> None:
        channel = await self._client.channel(server.address)
        if _IS_WATCHED not in channel.attachments:
            channel.attachments[_IS_WATCHED] = True
            channel.on_close(lambda _: server.connection_lost())
        answer = await self._send_registration(server)
        while server.left:
            # PocketMQ's name server has replaced the address by now. Apache's keeps the old one too until it expires, and
            # removes both when the old one is unregistered: hence the second registration.
            identity = self._identity(server.left[0])
            await self._client.call(server.address, RequestCode.UNREGISTER_BROKER, identity, b"", UNREGISTER_TIMEOUT_S)
            del server.left[0]
            answer = await self._send_registration(server)
        if answer.body:
            self._topics.update_order(decode_body(KVTable, answer.body).table)
        if self._config.broker_id > 0:
            self._note_master(server, answer.header(RegisterBrokerResponseHeader))

    def _identity(self, address: str) -> BrokerIdentityRequestHeader:
        config = self._config
        return BrokerIdentityRequestHeader(config.broker_name, address, config.broker_cluster_name, config.broker_id)

    async def _send_registration(self, server: _NameServer) -> RemotingCommand:
        config = self._config
        header = RegisterBrokerRequestHeader(
            config.broker_name, self.broker_address, config.broker_cluster_name, self.ha_server_address, config.broker_id
        )
        if config.enable_slave_acting_master:
            header.enable_acting_master = True
            header.heartbeat_timeout_millis = config.broker_not_active_timeout_millis
        timeout_s = config.register_broker_timeout_mills / 1000
        return await self._client.call(server.address, RequestCode.REGISTER_BROKER, header, self._body(), timeout_s)

    def _note_master(self, server: _NameServer, answer: RegisterBrokerResponseHeader) -> None:
        """Announce the master if it changed. The first name server that has one counts, whether or not it answers now."""
        server.master = None
        if answer.master_addr:
            found = Master(answer.ha_server_addr or None, answer.master_addr)
            if problem := next((one for one in found if one is not None and not is_address(one)), None):
                reason = f"name server {server.address}: the master's address {clipped(problem)!r} is not host:port"
                self._malformed.refused(server.address, reason)
            elif found.address != self.broker_address:
                server.master = found
        master = next((one.master for one in self._name_servers if one.master is not None), self.master)
        if master is None:
            name, cluster = self._config.broker_name, self._config.broker_cluster_name
            who = f"name server {server.address} has no master of broker {name} (cluster {cluster})"
            reason = f"{who}: this slave copies nothing"
            self._masterless.refused(None, reason)
            self.seek_master()
        elif master != self.master:
            self.master = master
            self._masterless.over(None)
            log.info("the master is %s, its port for slaves %s", master.address, master.ha_address)
            self.master_changed(*master)

    def seek_master(self) -> None:
        """Ask the name servers again in a few seconds: this slave has no master, or cannot reach it at the known address."""
        if self._is_started and self._master_timer is None:
            self._master_timer = self._timers.after(NO_MASTER_RETRY_S, self._ask_for_master)

    def _ask_for_master(self) -> None:
        self._master_timer = None
        self.register()

    def _body(self) -> bytes:
        """Return the encoded topic table. It is cached until it changes, as it may have thousands of topics."""
        topics = self._topics
        version = (topics.data_version.counter, topics.data_version.timestamp, self._config.broker_permission)
        if version != self._encoded_version:
            rows: Any = topics.table.encoded()
            if self._config.broker_permission & PERM_ALL != PERM_ALL:
                rows = topics.table.rows()
                for row in rows.values():
                    row["perm"] &= self._config.broker_permission
            self._encoded = encode_body(
                {
                    "filterServerList": [],
                    "topicConfigSerializeWrapper": {"dataVersion": topics.version(), "topicConfigTable": rows},
                }
            )
            self._encoded_version = version
        return self._encoded


def is_address(text: str) -> bool:
    """Return whether `text` is `host:port`."""
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
    return bool(host) and is_port and len(text) <= ADDRESS_SIZE_MAX
