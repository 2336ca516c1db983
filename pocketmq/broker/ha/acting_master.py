"""ActingMaster: decides whether this slave acts as master, from the ids of the live brokers with its broker name (5.x).

The name servers are asked every `syncBrokerMemberGroupPeriod`. While this broker has the smallest id, there is no master,
and it acts: it copies no tables, and with `enableRemoteEscape` it delivers due messages (`acting_services`). A master that
returns announces itself before it registers (`pre_online`). The slave then ends its work before it answers, so that the
master takes over its final progress and nothing is delivered by both. If that master does not register, the slave acts
again.

A notification of another broker or a name server only makes this broker ask the name servers at once. An announcement also
ends the slave's work, but anyone can send it: the slave copies only from the master that the name servers name.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.ha.acting_services import ActingServices
from pocketmq.broker.ha.ha_client import HAClient
from pocketmq.broker.ha.slave_synchronize import SlaveSynchronize
from pocketmq.broker.registration.member_group import MemberGroup
from pocketmq.broker.registration.registration import Master, Registration
from pocketmq.runtime.timers import Timer
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.format.message import Arrival

log = logging.getLogger("broker")

MASTER_ID: Final = 0
STAND_BACK_S: Final = 30.0
"""Time for which a slave does not act after a master has announced itself; it ends once the name servers list the master."""


class ActingMaster:
    """The state of a slave with enableSlaveActingMaster."""

    def __init__(
        self, context: Context, registration: Registration, members: MemberGroup, synchronize: SlaveSynchronize,
        ha_client: HAClient, make_services: Callable[[], ActingServices],
    ) -> None:  # fmt: skip
        self.is_acting = False
        """Whether it serves as master, at least for reads."""
        self._context = context
        self._config = context.config
        self._registration = registration
        self._members = members
        self._synchronize = synchronize
        self._ha_client = ha_client
        self._make_services = make_services
        self._services: ActingServices | None = None
        self._lock = asyncio.Lock()
        self._timer: Timer | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stand_back_until_s = 0.0
        self._is_stopped = False

    def start(self) -> None:
        """Begin to ask the name servers."""
        self._timer = self._context.timers.every(self._config.sync_broker_member_group_period / 1000, self.look)

    async def stop(self) -> None:
        """Stop acting."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        async with self._lock:
            await self._end("the broker stops")

    def look(self) -> None:
        """Ask the name servers now."""
        if not self._is_stopped and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._looked())

    async def master_announced(self, announced: Master) -> Master | None:
        """Stop acting because the master is about to return. Return the master from which this slave copies.

        If the name servers last named the announced addresses, the slave connects to them at once. A master at other
        addresses is followed once it has registered.
        """
        self._stand_back_until_s = self._context.clock.monotonic() + STAND_BACK_S
        async with self._lock:
            await self._end(f"master {announced.address} returns")
        known = self._registration.master
        if known == announced:
            self._ha_client.set_master(*known)
        else:
            log.info("master %s announces itself: its log is copied once the name servers name it", announced.address)
        return known

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Pass on the arrivals of messages that were just copied."""
        if self._services is not None:
            self._services.arrived(arrivals)

    def persist_in(self, executor: Executor) -> None:
        """Write the progress to disk in `executor`. To be called every second."""
        if self._services is not None:
            self._services.persist_in(executor)

    # --- deciding ---------------------------------------------------------------------------------------------------

    async def _looked(self) -> None:
        try:
            await self._look()
        except Exception:  # the timer looks again soon
            log.exception("this slave cannot decide whether it acts as master")

    async def _look(self) -> None:
        members = await self._members.ask()
        if not members:
            return
        least = min(members)
        known = self._registration.master
        if MASTER_ID in members and (known is None or members[MASTER_ID] != known.address):
            self._registration.register()  # the answer has both addresses of the master
        async with self._lock:
            if least != self._config.broker_id:
                role = "the" if least == MASTER_ID else "acting as"
                await self._end(f"broker {least} of this broker name is {role} master")
                self._synchronize.resume()
                self._stand_back_until_s = 0.0
            elif self._context.clock.monotonic() >= self._stand_back_until_s:
                await self._begin()

    async def _begin(self) -> None:
        if self.is_acting:
            return
        self.is_acting = True
        await self._synchronize.pause()
        log.warning("no master of this broker name is alive: this slave acts as master")
        if not self._config.enable_remote_escape:
            log.info("enableRemoteEscape=false: delayed, timed, popped and half messages wait for the master")
            return
        services = self._make_services()
        try:
            services.start()
        except (OSError, StoreError) as error:
            self.is_acting = False
            log.error("this slave cannot act as master: %s; trying again", error)
            return
        self._services = services

    async def _end(self, why: str) -> None:
        if not self.is_acting:
            return
        services, self._services = self._services, None
        if services is not None:
            try:
                await services.stop()
            except OSError as error:
                log.error("the progress made while acting as master cannot be saved completely: %s", error)
        self.is_acting = False
        log.warning("this slave does not act as master any more: %s", why)
