"""EscapeBridge: sends to other masters the messages that an acting master must not store (Apache: EscapeBridge).

The log of a slave stays a copy of its master's, so each message that the services of an acting master would put is sent to
the master of another broker name that has the topic, into one of its writable queues. A message is sent until some broker
has stored it. If it is stored but the answer is lost, it is sent again, so it may be delivered twice.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.names import AUTO_CREATE_TOPIC_KEY_TOPIC, WAIT
from pocketmq.broker.put.copy_sink import UNDER_WAY, PutTogether
from pocketmq.broker.put.delivery_time import DELAYING_PROPERTIES, PRODUCER_GROUP
from pocketmq.broker.put.put import CLUSTER, STALE_IN_COPIES
from pocketmq.broker.registration.registration import Registration, is_address
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.format.properties import REAL_QID, REAL_TOPIC, encode_properties
from pocketmq.store.format.record import HOST_FLAGS

log = logging.getLogger("broker")

UNDER_WAY_MAX: Final = 512
SEND_TIMEOUT_S: Final = 3.0
DRAIN_S: Final = 2.0
"""Longest wait for sends under way when the acting master stops."""
ROUTE_S: Final = 5.0
"""Time for which a route is used before it is asked for again."""
ROUTES_MAX: Final = 1000
PAUSE_S, PAUSE_MAX_S = 0.1, 2.0
_TOPIC_QUEUES: Final = 8
_STORED: Final = PutResult(PutStatus.PUT_OK)
# The last three mean: stored, but not yet flushed or replicated. Clients treat them as stored, too.
_STORED_CODES: Final = frozenset(
    (
        ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
)  # fmt: skip
_NOT_SENT_PREFIXES: Final = ("PMQ_", "TIMER_OUT_MS", "TIMER_ROLL")
_NOT_SENT: Final = frozenset((REAL_TOPIC, REAL_QID, WAIT, CLUSTER, *STALE_IN_COPIES))


class _Place(NamedTuple):
    """A writable queue."""

    broker_name: str
    address: str
    queue_id: int


class EscapeBridge:
    """A `CopySink` that sends each copy to another broker."""

    under_way_max: int | None = UNDER_WAY_MAX
    put_together: PutTogether | None = None

    def __init__(self, config: BrokerConfig, registration: Registration, client: RemotingClient, clock: Clock) -> None:
        self._config = config
        self._registration = registration
        self._client = client
        self._clock = clock
        self._group = f"InnerProducerGroup_{config.broker_name}_{config.broker_id}"
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._stored: set[Hashable] = set()
        self._routes: dict[str, tuple[float, list[_Place]]] = {}
        self._turns = 0
        self._is_draining = False
        self._failures = RefusalLog(log)

    def waits(self, source: Hashable) -> bool:
        return source in self._tasks

    def put(self, message: Message, source: Hashable) -> PutResult:
        """Begin to send a copy; PUT_OK once another broker has stored it."""
        if source in self._stored:
            self._stored.discard(source)
            return _STORED
        if source not in self._tasks and not self._is_draining and len(self._tasks) < UNDER_WAY_MAX:
            sending = self._send(source, message.topic, self._header(message), bytes(message.body))
            task = self._tasks[source] = asyncio.ensure_future(sending)
            task.add_done_callback(lambda _: self._tasks.pop(source, None))
        return UNDER_WAY

    @property
    def has_unclaimed(self) -> bool:
        """Whether copies are under way, or stored and not yet reported to their services."""
        return bool(self._tasks or self._stored)

    async def drain(self) -> None:
        """Begin no further sends, and wait until those under way have ended, for a limited time."""
        self._is_draining = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()), timeout=DRAIN_S)
        for task in tuple(self._tasks.values()):
            task.cancel()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _header(self, message: Message) -> Callable[[_Place], CommandHeader]:
        """Return a function that makes the header of the send to a queue.

        A copy of a delayed message has the properties that delayed it; another broker must not delay it again.
        """
        left_out = _NOT_SENT | DELAYING_PROPERTIES if REAL_TOPIC in message.properties else _NOT_SENT
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in left_out and not name.startswith(_NOT_SENT_PREFIXES)
        }
        group, text = properties.get(PRODUCER_GROUP, self._group), encode_properties(properties)
        topic, sys_flag = message.topic, message.sys_flag & ~HOST_FLAGS
        born_ms, flag, times = message.born_timestamp_ms, message.flag, message.reconsume_times
        return lambda place: SendMessageRequestHeaderV2(
            group, topic, AUTO_CREATE_TOPIC_KEY_TOPIC, _TOPIC_QUEUES, place.queue_id, sys_flag, born_ms, flag, text, times,
            False, False, None, place.broker_name,
        )  # fmt: skip

    async def _send(self, source: Hashable, topic: str, header: Callable[[_Place], CommandHeader], body: bytes) -> None:
        """Send until a broker has stored the message."""
        pause_s = PAUSE_S
        while not await self._try(topic, header, body):
            if self._is_draining:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        self._stored.add(source)

    async def _try(self, topic: str, header: Callable[[_Place], CommandHeader], body: bytes) -> bool:
        try:
            place = await self._place(topic)
            code = RequestCode.SEND_MESSAGE_V2
            answer = await self._client.invoke(place.address, code, header(place), body, SEND_TIMEOUT_S)
            if answer.code not in _STORED_CODES:
                raise RemotingError(answer.code, answer.remark or f"response code {answer.code}")
        except (OSError, TimeoutError, RemotingError, ValueError) as error:
            self._routes.pop(topic, None)
            why = error.remark if isinstance(error, RemotingError) else reason(error)
            self._failures.refused(topic, f"a message of {topic} cannot be sent to another master: {why}; trying again")
            return False
        self._failures.over(topic)
        return True

    async def _place(self, topic: str) -> _Place:
        """Return a writable queue of `topic` on another broker's master, in rotation. Raises RemotingError without one."""
        now_s = self._clock.monotonic()
        known = self._routes.get(topic)
        if known is None or known[0] < now_s:
            known = now_s + ROUTE_S, await self._places(topic)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = known
        places = known[1]
        if not places:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, "no other master has a writable queue of the topic")
        self._turns += 1
        return places[self._turns % len(places)]

    async def _places(self, topic: str) -> list[_Place]:
        route = await self._registration.route_of(topic)
        if route is None:
            return []
        masters = {
            broker.broker_name: address
            for broker in route.broker_datas
            if broker.broker_name != self._config.broker_name
            and (address := broker.broker_addrs.get("0")) is not None
            and is_address(address)
        }
        return [
            _Place(row.broker_name, masters[row.broker_name], queue_id)
            for row in route.queue_datas
            if row.broker_name in masters and row.perm & PERM_WRITE
            for queue_id in range(min(row.write_queue_nums, _TOPIC_QUEUES))
        ]
