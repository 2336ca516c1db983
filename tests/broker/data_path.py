"""A broker's data path without sockets: real parts on a memory disk, clocks that tests move, connections that are lists."""

import asyncio
import itertools
from typing import Any

from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.clients.group_notifier import GroupNotifier
from pocketmq.broker.clients.rebalance_lock import RebalanceLock
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.clock_steps import ClockSteps
from pocketmq.broker.delay.delay_cancelled import DelayCancelled
from pocketmq.broker.delay.delay_query import DelayQuery
from pocketmq.broker.delay.schedule import ScheduleMessageService
from pocketmq.broker.filter.consumer_filter import ConsumerFilterManager
from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.polling.held_requests import HoldLimits
from pocketmq.broker.polling.long_polling import PullRequestHoldService
from pocketmq.broker.pop.pop import PopMessageService
from pocketmq.broker.pop.pop_order import ConsumerOrderInfoManager
from pocketmq.broker.pop.pop_revive import PopReviveService
from pocketmq.broker.put.delivery_time import DeliveryTimes
from pocketmq.broker.put.put import MessagePutter
from pocketmq.broker.registration.registration import Registration
from pocketmq.broker.registration.route_barrier import RouteBarrier
from pocketmq.broker.services import Services
from pocketmq.broker.stats.stats import BrokerStats
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.timer.timer_service import TimerMessageService
from pocketmq.broker.transaction.transaction import TransactionalMessageService
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_op import TransactionProgress
from pocketmq.remoting.bodies import DataVersion, TopicConfig
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode_header, encode_request
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.frame import Frame, FrameBuffer
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from pocketmq.remoting.server import pack_host
from pocketmq.runtime.clock import VirtualClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Phase, Turn
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.record import Record, bounds, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_store import TimerStore

STORE_HOST = pack_host("127.0.0.1", 10911)
TOPIC = "T"


class SteppedClock(VirtualClock):
    """Liveness that a test moves too."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class AtOnce:
    """In the place of the loop: what the flush thread tells is heard at once."""

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> None:
        callback(*args)


class StubChannel:
    """A connection: what the broker sends over it is in `out`, decoded by `answers()` and `requests()`."""

    def __init__(self, port: int = 40000) -> None:
        self.remote_address = f"127.0.0.1:{port}"
        self.host_bytes = pack_host("127.0.0.1", port)
        self.attachments: dict[str, Any] = {}
        self.out: list[Any] = []
        self.is_open = self.is_writable = True
        self.is_suspended = False
        self.deferred_count = 0
        self.rest_s = 0.0
        self._callbacks: list[Any] = []
        self._frames = FrameBuffer()

    def respond(self, response: Any, opaque: int, serialize_type: int) -> None:
        if self.is_open:
            response.encode_into(self.out, opaque, serialize_type)

    def deferred_added(self) -> None:
        self.deferred_count += 1

    def deferred_removed(self) -> None:
        self.deferred_count -= 1

    def invoke_oneway(self, code: int, header: Any = None, body: Any = b"") -> None:
        self.out += encode_request(code, header, body, 0, oneway=True)

    def suspend_reading(self, seconds: float) -> None:
        self.is_suspended = True

    def rest(self, seconds: float) -> None:
        self.rest_s += seconds

    def abort(self) -> None:
        self.close()

    def on_close(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            for callback in self._callbacks:
                callback(self)

    def take(self) -> list[RemotingCommand]:
        """What came since the last call, in order."""
        data = b"".join(map(bytes, self.out))
        self.out.clear()
        commands = []
        for serialize_type, header, body in self._frames.feed(data):
            command = decode_header(serialize_type, header)
            command.body = body
            commands.append(command)
        return commands


class DataPath:
    """The parts, put together as the broker does it. Tests end a turn by `turn()`; only timers run by themselves."""

    def __init__(
        self,
        broker: dict[str, Any] | None = None,
        disk: MemoryDisk | None = None,
        clock: SteppedClock | None = None,
        **store: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.clock = clock = clock or SteppedClock()
        # Turns here are as long as a test wants.
        broker = {"broker_fast_failure_enable": False} | (broker or {})
        config = BrokerConfig(namesrv_addr=None, broker_name="b", **broker)
        self.disk = disk = disk or MemoryDisk()
        settings = {"mapped_file_size_commit_log": 32 << 20, "max_hash_slot_num": 1000, "max_index_num": 5000} | store
        self.store = MessageStore(MessageStoreConfig(store_path_root_dir="/store", **settings), disk, clock)
        self.store.load()
        timers, self._turn = Timers(clock, loop), Turn(loop)

        def file(name: str) -> ConfigFile:
            return ConfigFile(disk, f"/store/config/{name}.json")

        topics = TopicConfigManager(config, file("topics"), clock)
        groups = SubscriptionGroupManager(config, file("subscriptionGroup"), clock)
        filters = ConsumerFilterManager(config, file("consumerFilter"), clock)
        if config.enable_calc_filter_bit_map:
            self.store.queues.ext.bitmap_of = filters.bitmaps(self.store.message_at)
        stats = BrokerStats(config.broker_cluster_name, clock)
        registration = Registration(config, topics, RemotingClient(self._turn, timers), timers, "127.0.0.1:10911")
        timer_store = TimerStore(
            disk, wheel_path="/store/timerwheel", log_directory="/store/timerlog", checkpoint_path="/store/config/timercheck"
        )
        timer_messages = TimerMessageService(self.store, timer_store, ClockSteps(clock), timers, self._turn)
        timer_messages.recover()
        times = DeliveryTimes(clock, timer_messages, cluster=("CLUSTER", config.broker_cluster_name))
        putter = MessagePutter(config, self.store, STORE_HOST, timers, loop, times)
        cancelled = DelayCancelled(file("delayCancelled"), clock, lambda: self.store.flushed_offset)
        schedule = ScheduleMessageService(
            self.store, self.store.delay_levels, file("delayOffset"), timers, self._turn, cancelled
        )
        offsets = ConsumerOffsetManager(file("consumerOffset"), clock)
        clients = ClientRegistry(config, groups, clock, GroupNotifier(timers, self._turn), filters.unregister)
        offsets.load()
        steps, progress = ClockSteps(clock), TransactionProgress()
        check = TransactionCheck(
            self.store, putter, progress, topics, clients, config, STORE_HOST, steps, timers, self._turn
        )
        transactions = TransactionalMessageService(
            self.store, putter, offsets, progress, check, store_host=STORE_HOST, clock=clock
        )
        revive = PopReviveService(
            self.store, putter, offsets, topics, groups, timer_messages, timers, self._turn,
            revive_topic="rmq_sys_REVIVE_LOG_c", queue_nums=8, store_host=STORE_HOST, with_retry_v2=False, steps=steps,
        )  # fmt: skip
        orders = ConsumerOrderInfoManager(file("consumerOrderInfo"), clock, timers)
        pops = PopMessageService(
            config, self.store, putter, offsets, topics, stats, orders, revive, timers, self._turn, clock, STORE_HOST, steps
        )
        self.services = Services(
            config=config,
            store=self.store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            filters=filters,
            clients=clients,
            locks=RebalanceLock(clock, 60_000),
            holds=PullRequestHoldService(timers, self.store.any_matches, HoldLimits(*config.hold_limits)),
            putter=putter,
            schedule=schedule,
            timer_messages=timer_messages,
            delivery_times=times,
            transactions=transactions,
            pops=pops,
            request_modes=MessageRequestModeManager(file("messageRequestMode"), clock),
            delay_query=DelayQuery(self.store, timer_messages, schedule, cancelled),
            delay_cancelled=cancelled,
            registration=registration,
            route_barrier=RouteBarrier(registration, timers, 6.0, putter.is_immediate),
            stats=stats,
            turn=self._turn,
            timers=timers,
            clock=clock,
            permissions=None,
            config_version=DataVersion(),
            store_host=STORE_HOST,
            broker_address="127.0.0.1:10911",
        )
        self.services.topics.update(TopicConfig(TOPIC, 4, 4))
        self.services.schedule.start()
        self.services.timer_messages.start()
        transactions.recover()
        transactions.start()
        self._turn.add(Phase.DISPATCH, transactions.end_turn)
        self._turn.add(Phase.DISPATCH, self._dispatch)
        self._turn.add(Phase.FLUSH, self.services.putter.end_turn)
        self._turn.add(Phase.WAKE, self.services.holds.wake)
        self._dispatcher = Dispatcher(self.services, ROUTES)
        self._opaque = itertools.count(1)
        self.channel = StubChannel()

    def _dispatch(self) -> None:
        arrivals = self.store.dispatch()
        self.services.holds.arrived(arrivals)
        self.services.schedule.arrived(arrivals)
        self.services.timer_messages.arrived(arrivals)

    def turn(self) -> None:
        """End a loop turn: dispatch, flush, wake."""
        self._turn.run()

    def serve(self, frame: Frame, channel: StubChannel) -> None:
        self._dispatcher.serve(channel, frame, channel.out)

    def ask(self, code: int, header: Any = None, body: bytes = b"", channel: StubChannel | None = None, **how: Any) -> None:
        """Send a request; what is answered comes to the channel."""
        channel = channel or self.channel
        data = b"".join(encode_request(code, header, body, next(self._opaque), **how))
        for frame in FrameBuffer().feed(data):
            self.serve(frame, channel)

    def call(self, code: int, header: Any = None, body: bytes = b"", channel: StubChannel | None = None) -> RemotingCommand:
        """Send a request that is answered at once, and end the turn. Other frames that came are dropped."""
        channel = channel or self.channel
        channel.take()
        self.ask(code, header, body, channel)
        answers = [command for command in channel.take() if command.is_response]
        self.turn()
        assert len(answers) == 1, f"code {code} got {len(answers)} answers at once"
        return answers[0]

    def send(self, properties: str | None = None, body: bytes = b"hello", **fields: Any) -> RemotingCommand:
        return self.call(RequestCode.SEND_MESSAGE_V2, send_header(properties, **fields), body)

    def pull(self, queue_offset: int = 0, **fields: Any) -> RemotingCommand:
        return self.call(RequestCode.PULL_MESSAGE, pull_header(queue_offset, **fields))

    def stored(self, topic: str = TOPIC, queue_id: int = 0, queue_offset: int = 0) -> list[Record]:
        """The records of a queue."""
        result = self.store.get_message(topic, queue_id, queue_offset, 32)
        return records(b"".join(map(bytes, result.views)))


def records(body: bytes) -> list[Record]:
    """The records in the body of an answer."""
    view, position, found = memoryview(body), 0, []
    while position < len(view):
        found.append(decode_record(view, position))
        position += bounds(view, position)[0]
    return found


def send_header(properties: str | None = None, long: bool = False, **fields: Any) -> SendMessageRequestHeader:
    settings = {
        "producer_group": "pg",
        "topic": TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_600_000_000_000,
        "flag": 0,
        "properties": properties,
    } | fields
    return (SendMessageRequestHeader if long else SendMessageRequestHeaderV2)(**settings)


def pull_header(queue_offset: int = 0, **fields: Any) -> PullMessageRequestHeader:
    settings = {
        "consumer_group": "cg",
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
        "expression_type": "TAG",
    } | fields
    return PullMessageRequestHeader(**settings)


async def until(condition: Any, deadline_s: float = 5.0) -> None:
    """Wait for a condition, turn by turn; fail when it does not come in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end, f"still not so after {deadline_s} s"
        await asyncio.sleep(0.001)
