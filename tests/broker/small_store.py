"""A small store with every kind of data that a broker keeps, and functions that read it as a consumer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData, SubscriptionGroupConfig
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.delay import DelayedMessageRequestHeader
from pocketmq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import BadRecordError
from tests.broker.popping import Popper, records
from tests.broker.running import ask, connected, create_topic, running_broker
from tests.patience import PATIENCE_S

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 13,
    "mapped_file_size_consume_queue": 400,
    "mapped_file_size_timer_log": 1 << 12,
    "max_hash_slot_num": 16,
    "max_index_num": 80,
}
TOPICS = ("T0", "T1", "T2")
POPPED = "T"
GROUP, POP_GROUP = "g", "poppers"
READ = (*TOPICS, POPPED, f"%RETRY%{POP_GROUP}_{POPPED}")
"""Topics that consumers read."""
DUE_AFTER_MS = 700_000
"""After this time every waiting message is due: delay levels, timers, and unacknowledged pops."""
PLAIN = [f"plain-{number}" for number in range(24)]
LEVELS = [f"level-{number}" for number in range(6)]
TIMERS = [f"timer-{number}" for number in range(6)]
POPS = [f"pop-{number}" for number in range(4)]
COMMITTED, OPEN, CANCELLED = "committed", "half-open", "cancelled"
BODIES = [*PLAIN, *LEVELS, *TIMERS, *POPS, COMMITTED]
"""Bodies of the messages that consumers must be able to read in the end."""
WAIT_S = PATIENCE_S


class Stuck(AssertionError):
    """Raised when an expected delivery does not happen in time."""


async def until(condition: Callable[[], bool], what: str) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + WAIT_S
    while not condition():
        if loop.time() > end_s:
            raise Stuck(f"{what}: not within {WAIT_S:.0f} s")
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def opened(disk: Disk, root: str, clock: VirtualClock) -> AsyncIterator[Broker]:
    """Open a broker on the store under `root`."""
    store = {**SIZES, "store_path_root_dir": root}
    async with running_broker(disk=disk, clock=clock, store=store, enable_property_filter=True) as broker:
        yield broker


async def make_store(disk: Disk, root: str, clock: VirtualClock, before_stop: Callable[[], None]) -> None:
    """Create the store and stop it cleanly. `before_stop` runs when all is in the page cache: the state after a kill."""
    async with opened(disk, root, clock) as broker, connected() as client:
        for topic in (*TOPICS, POPPED):
            await create_topic(client, broker, topic, 2)
        await _configure(client, broker)
        await _send_all(client, broker, clock)
        await _transactions(client, broker)
        popper = Popper(client, broker, clock, POP_GROUP)
        await popper.send(*POPS)
        assert len(await popper.bodies()) == len(POPS)
        await popper.ack(POPS[0])
        for queue_id in (0, 1):
            header = UpdateConsumerOffsetRequestHeader(GROUP, TOPICS[0], queue_id, 2)
            await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await until(lambda: is_idle(broker), "the store is made")
        _persist(broker)
        before_stop()


def _persist(broker: Broker) -> None:
    """Write the tables that a broker writes periodically."""
    services = broker.services
    services.store.flush_service.flush_log()
    services.store.flush_queues()
    for _ in range(2):
        services.transactions.persist()
        services.offsets.persist()
    services.filters.persist()
    services.delay_cancelled.persist()
    services.schedule.persist()
    services.delays.mark_in(broker._writer)
    broker._writer.submit(lambda: None).result()


async def _configure(client: RemotingClient, broker: Broker) -> None:
    group = SubscriptionGroupConfig(GROUP, retry_queue_nums=1, retry_max_times=7)
    await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, msgspec.json.encode(group))
    wanted = SubscriptionData(TOPICS[0], "a > 1", "SQL92", 1)
    beat = HeartbeatData("c1", [], [ConsumerData(GROUP, subscription_data_set=[wanted])])
    await ask(client, broker, RequestCode.HEART_BEAT, None, msgspec.json.encode(beat))


async def _send(
    client: RemotingClient, broker: Broker, topic: str, queue_id: int, body: str, sys_flag: int = 0, **properties: str
) -> Any:
    text = encode_properties({"UNIQ_KEY": f"U-{body}", "KEYS": f"k-{body}", **properties})
    header = SendMessageRequestHeader("pg", topic, "TBW102", 4, queue_id, sys_flag, 1_700_000_000_000, 0, text)
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE, header, body.encode())
    assert answer.code == 0, answer.remark
    return answer


async def _send_all(client: RemotingClient, broker: Broker, clock: VirtualClock) -> None:
    for number, body in enumerate(PLAIN):
        await _send(client, broker, TOPICS[number % 3], number // 3 % 2, body, TAGS="a")
    for number, body in enumerate(LEVELS):
        # Levels of 1 s, 5 s, 1 min and 10 min: some are delivered before the stop.
        await _send(client, broker, "T1", 0, body, DELAY=str((1, 2, 5, 14)[number % 4]))
    await _cancelled(client, broker)
    for number, body in enumerate(TIMERS):
        await _send(client, broker, "T2", 1, body, TIMER_DELAY_SEC=str((3, 60, 90, 600)[number % 4]))
    for _ in range(4):
        await until(lambda: is_idle(broker), "what is due is delivered")
        clock.advance(2_000)


async def _cancelled(client: RemotingClient, broker: Broker) -> None:
    answer = await _send(client, broker, "T1", 0, CANCELLED, DELAY="14")
    header = DelayedMessageRequestHeader(int(answer.ext["msgId"][16:], 16))
    assert (await ask(client, broker, RequestCode.CANCEL_DELAYED, header)).code == 0


async def _transactions(client: RemotingClient, broker: Broker) -> None:
    for body in (OPEN, COMMITTED):
        answer = await _send(client, broker, "T0", 0, body, TRANSACTION_PREPARED_TYPE, TRAN_MSG="true", PGROUP="pg")
    message_id = answer.ext["msgId"]
    header = EndTransactionRequestHeader(
        "pg", int(answer.ext["queueOffset"]), int(message_id[16:], 16), TRANSACTION_COMMIT_TYPE, msg_id=message_id
    )
    assert (await ask(client, broker, RequestCode.END_TRANSACTION, header)).code == 0


def is_idle(broker: Broker) -> bool:
    """Whether everything due is delivered."""
    services = broker.services
    services.turn.run()
    is_delivered = services.timer_messages.delivered_to_ms >= services.clock.message_time_ms() // 1000 * 1000
    idle = services.delays.is_idle and services.pops.revive.work.is_idle
    return is_delivered and idle and services.transactions.check.work.is_idle


async def let_all_be_delivered(broker: Broker, clock: VirtualClock) -> None:
    """Advance the time until no message waits."""
    for _ in range(5):
        await until(lambda: is_idle(broker), "what is due is delivered")
        clock.advance(DUE_AFTER_MS // 4)
    await until(lambda: is_idle(broker), "what is due is delivered")


async def read_all(client: RemotingClient, broker: Broker, topic: str) -> list[str]:
    """Return the bodies in a topic's queues, as a pulling client gets them. Raises AssertionError for an error answer."""
    found: list[str] = []
    config = broker.services.topics.get(topic)
    for queue_id in range(0 if config is None else min(config.read_queue_nums, 16)):
        if broker.services.store.queue(topic, queue_id) is None:
            continue
        offset = broker.services.store.min_offset(topic, queue_id)
        for _ in range(100):
            header = PullMessageRequestHeader("reader", topic, queue_id, offset, 32, 4, 0, 0, 0, "*", "TAG")
            answer = await ask(client, broker, RequestCode.PULL_MESSAGE, header)
            next_offset = int((answer.ext or {}).get("nextBeginOffset", offset))
            assert answer.code in (0, 19, 20, 21), f"{topic}/{queue_id} at {offset}: {answer.code} {answer.remark}"
            if answer.code == 0:
                try:
                    found += [record.body.decode(errors="replace") for record in records(answer.body)]
                except BadRecordError as error:
                    raise AssertionError(
                        f"{topic}/{queue_id} at {offset}: a pull returns an invalid record: {error}"
                    ) from None
            elif next_offset <= offset:
                break
            offset = next_offset
        else:
            raise AssertionError(f"{topic}/{queue_id} at {offset}: pulls do not come to an end")
    return found
