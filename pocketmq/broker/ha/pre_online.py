"""PreOnline: step of a master with enableSlaveActingMaster before it serves (Apache: BrokerPreOnlineService).

While the master was away a slave may have acted as master. From each live slave of its broker name the master takes over
consumer offsets and the progress of levels, timers, transactions and pops, as far as these are ahead of its own: everything
before such an offset was delivered, by the master or the slave. First it announces itself, so that the slave stops acting
and copies its log.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pocketmq.broker.context import Context
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.ha.ha_service import HAService
from pocketmq.broker.registration.member_group import MemberGroup
from pocketmq.broker.registration.registration import Registration
from pocketmq.broker.tables.consumer_offset import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
from pocketmq.remoting import fastjson
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from pocketmq.runtime.error_text import reason
from pocketmq.store.format.layout import TIMER_CHECKPOINT_SIZE, TIMER_CHECKPOINT_STRUCT
from pocketmq.store.format.message import SCHEDULE_TOPIC

log = logging.getLogger("broker")

MEMBERS_TRIES: Final = 5
SLAVE_S: Final = 15.0
"""Longest time spent on one slave."""
CONNECT_S: Final = 5.0
LOOK_S: Final = 0.02
TIMEOUT_S: Final = 8.0


class PreOnline:
    """Takes over the progress of slaves. To be run before the services of a master start."""

    def __init__(
        self, context: Context, registration: Registration, members: MemberGroup, client: RemotingClient, ha: HAService,
        schedule: LevelSource, offsets: ConsumerOffsetManager, adopt_timers: Callable[[int, int], bool],
    ) -> None:  # fmt: skip
        """`adopt_timers` takes a read time and a queue offset, and returns whether they are ahead."""
        self._context = context
        self._registration = registration
        self._members = members
        self._client = client
        self._ha = ha
        self._schedule = schedule
        self._offsets = offsets
        self._adopt_timers = adopt_timers

    async def run(self) -> None:
        """Take over the progress of all live slaves. A slave that does not answer is left out."""
        members = await self._members.ask()
        for _ in range(MEMBERS_TRIES - 1 if self._context.config.namesrv_addresses else 0):
            if members is not None:
                break
            await asyncio.sleep(1.0)
            members = await self._members.ask()
        for broker_id, address in sorted((members or {}).items()):
            if broker_id == self._context.config.broker_id:
                continue
            try:
                async with asyncio.timeout(SLAVE_S):
                    await self._take_over(address)
            except (OSError, TimeoutError, RemotingError, ValueError, TypeError, AttributeError) as error:
                why = error.remark if isinstance(error, RemotingError) else reason(error)
                log.warning("the progress of slave %s cannot be taken over: %s", address, why)
            else:
                log.info("the progress of slave %s is taken over", address)

    async def _take_over(self, address: str) -> None:
        store = self._context.store
        header = ExchangeHAInfoRequestHeader(
            self._registration.ha_server_address, store.max_physical_offset, self._registration.broker_address
        )
        answer = await self._client.call(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header, timeout_s=TIMEOUT_S)
        followed = answer.header(ExchangeHAInfoResponseHeader).master_ha_address
        loop = asyncio.get_running_loop()
        # A slave that follows another address comes after the registration.
        deadline_s = loop.time() + (CONNECT_S if followed in (None, self._registration.ha_server_address) else 0)
        while not self._ha.replicas() and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_S)
        self._take_offsets(await self._table(address, RequestCode.GET_ALL_CONSUMER_OFFSET, dict[str, dict[int, int]]))
        for level, next_offset in (await self._table(address, RequestCode.GET_ALL_DELAY_OFFSET, dict[int, int])).items():
            has_records = level > 0 and next_offset <= self._context.store.max_offset(SCHEDULE_TOPIC, level - 1)
            if has_records and next_offset > self._schedule.next_offset(level):
                self._schedule.begin_at(level, next_offset)
        answer = await self._client.call(address, RequestCode.GET_TIMER_CHECK_POINT, timeout_s=TIMEOUT_S)
        if len(answer.body) == TIMER_CHECKPOINT_SIZE and any(answer.body):
            read_time_ms, _, queue_offset, *_ = TIMER_CHECKPOINT_STRUCT.unpack(bytes(answer.body))
            if read_time_ms >= 0 and queue_offset >= 0:
                self._adopt_timers(read_time_ms, queue_offset)

    async def _table(self, address: str, code: int, kind: type[Any]) -> Any:
        answer = await self._client.call(address, code, timeout_s=TIMEOUT_S)
        document = fastjson.loads(answer.body) if answer.body else {}
        return msgspec.convert(document.get("offsetTable") or {}, kind, strict=False)

    def _take_offsets(self, table: dict[str, dict[int, int]]) -> None:
        """Take the offsets that are ahead, as far as this broker has the messages before them."""
        ahead: dict[str, dict[int, int]] = {}
        for key, queues in table.items():
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            for queue_id, consumer_offset in queues.items():
                own = self._offsets.query(group, topic, queue_id)
                if own < consumer_offset <= self._context.store.max_offset(topic, queue_id):
                    ahead.setdefault(key, {})[queue_id] = consumer_offset
        self._offsets.merge(ahead)
