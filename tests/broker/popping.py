"""Test support for pops: a broker, and a client of one group that pops from it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pocketmq.broker.broker import Broker
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.handles.pop_handle import Handle
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PopMessageRequestHeader,
)
from pocketmq.remoting.headers.send import SendMessageRequestHeader
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import Record, decode_record
from tests.broker.running import ask, connected, running_broker, until

TOPIC, GROUP = "T", "g"
INVISIBLE_MS = 60_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


class Popper:
    """A client of one group, and the broker's clock."""

    def __init__(self, client: RemotingClient, broker: Broker, clock: VirtualClock, group: str = GROUP) -> None:
        self.client, self.broker, self.clock, self.group = client, broker, clock, group
        self.handles: dict[str, str] = {}

    async def send(self, *bodies: str, queue_id: int = 0, tags: str = "") -> None:
        for body in bodies:
            header = SendMessageRequestHeader(
                "p", TOPIC, "TBW102", 8, queue_id, 0, 1_700_000_000_000, 0, f"TAGS\x01{tags}" if tags else "", 0
            )
            answer = await ask(self.client, self.broker, RequestCode.SEND_MESSAGE, header, body.encode())
            assert answer.code == 0, answer.remark

    async def pop(self, count: int = 32, queue_id: int = -1, poll_ms: int = 0, **how: object) -> RemotingCommand:
        header = PopMessageRequestHeader(self.group, TOPIC, queue_id, count, INVISIBLE_MS, poll_ms, **how)  # type: ignore[arg-type]
        return await ask(self.client, self.broker, RequestCode.POP_MESSAGE, header)

    async def waiting_pops(self, count: int) -> "list[asyncio.Future[RemotingCommand]]":
        """Start pops that find nothing and are held."""
        channel = await self.client.channel(f"127.0.0.1:{self.broker.port}")
        header = PopMessageRequestHeader(self.group, TOPIC, -1, 32, INVISIBLE_MS, 20_000)
        waiting = [channel.invoke(RequestCode.POP_MESSAGE, header, b"", 15.0) for _ in range(count)]
        await until(lambda: self.broker.services.pops.polling.count == count)
        return waiting

    async def waiting_notifications(self, *queue_ids: int, poll_ms: int = 20_000) -> "list[asyncio.Future[RemotingCommand]]":
        """Start NOTIFICATION requests that find nothing and are held."""
        channel = await self.client.channel(f"127.0.0.1:{self.broker.port}")
        headers = [NotificationRequestHeader(self.group, TOPIC, queue_id, poll_ms) for queue_id in queue_ids]
        waiting = [channel.invoke(RequestCode.NOTIFICATION, header, b"", 15.0) for header in headers]
        await until(lambda: self.broker.services.pops.notifications.count == len(queue_ids))
        return waiting

    async def bodies(self, *args: int, **how: object) -> list[str]:
        """Pop and return the bodies; the handles are kept in the form of the Java client."""
        answer = await self.pop(*args, **how)  # type: ignore[arg-type]
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return []
        found = records(answer.body)
        starts = {tuple(row.split(" ")[:2]): row.split(" ")[2] for row in answer.ext["startOffsetInfo"].split(";")}
        told = {tuple(row.split(" ")[:2]): row.split(" ")[2].split(",") for row in answer.ext["msgOffsetInfo"].split(";")}
        assert sum(map(len, told.values())) == len(found)
        for record in found:
            given = decode_properties(record.properties).get("POP_CK")
            key = ("0", str(record.queue_id))
            if given is None:
                assert str(record.queue_offset) in told[key]
            fields = starts.get(key), answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"], "0", "b"
            made = " ".join(map(str, (*fields, record.queue_id, record.queue_offset)))
            self.handles[record.body.decode()] = given or made
        return [record.body.decode() for record in found]

    async def ack(self, body: str) -> RemotingCommand:
        handle = Handle.parse(self.handles[body])
        topic = TOPIC if handle.flag == "0" else f"%RETRY%{self.group}_{TOPIC}"
        header = AckMessageRequestHeader(self.group, topic, handle.queue_id, str(handle), handle.queue_offset)
        return await ask(self.client, self.broker, RequestCode.ACK_MESSAGE, header)

    async def change(self, body: str, invisible_ms: int) -> None:
        handle = Handle.parse(self.handles[body])
        header = ChangeInvisibleTimeRequestHeader(
            self.group, TOPIC, handle.queue_id, str(handle), handle.queue_offset, invisible_ms
        )
        answer = await ask(self.client, self.broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert answer.code == 0, answer.remark
        times = {"pop_time_ms": int(answer.ext["popTime"]), "invisible_time_ms": int(answer.ext["invisibleTime"])}
        self.handles[body] = str(handle._replace(start_offset=handle.queue_offset, **times))

    async def advance(self, ms: int) -> None:
        """Advance the broker's time and wait until everything due is done."""
        for part in (ms - 1500, 1000, 500):
            if part > 0:
                self.clock.advance(part)
                await until(self.is_idle)

    def is_idle(self) -> bool:
        services = self.broker.services
        services.turn.run()
        is_delivered = services.timer_messages.delivered_to_ms >= self.clock.message_time_ms()
        return is_delivered and services.delays.is_idle and services.pops.revive.work.is_idle


def records(body: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(body):
        found.append(decode_record(memoryview(body), position))
        position += found[-1].total_size
    return found


@contextlib.asynccontextmanager
async def popping(disk: Disk | None = None, clock: VirtualClock | None = None, **how: object) -> AsyncIterator[Popper]:
    clock = clock or VirtualClock()
    async with running_broker(disk=disk, clock=clock, **how) as broker, connected() as client:  # type: ignore[arg-type]
        yield Popper(client, broker, clock)
