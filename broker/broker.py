"""The broker: its parts put together, started and stopped.

Order matters in both directions. At start: the store is loaded, then the tables that speak of its queues; the port opens
when a send would succeed; the name servers hear of the broker last. At stop: the name servers forget it first, then clients
lose their connections, and the store closes when nothing can write any more.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pocketmq.broker.access.access_table import needs_admin
from pocketmq.broker.access.access_validator import guard
from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.clients.group_notifier import GroupNotifier
from pocketmq.broker.clients.rebalance_lock import RebalanceLock
from pocketmq.broker.config import BrokerConfig, advertised_host, check
from pocketmq.broker.delay.clock_steps import ClockSteps
from pocketmq.broker.delay.delay_cancelled import DelayCancelled
from pocketmq.broker.delay.delay_query import DelayQuery, NoTimers
from pocketmq.broker.delay.level_mark import LevelMark
from pocketmq.broker.delay.schedule import ScheduleMessageService
from pocketmq.broker.figures.timer_figures import DEQUEUE_NUMS
from pocketmq.broker.filter.consumer_filter import ConsumerFilterManager
from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from pocketmq.broker.polling.held_requests import HoldLimits
from pocketmq.broker.polling.long_polling import PullRequestHoldService
from pocketmq.broker.pop.pop import PopMessageService
from pocketmq.broker.pop.pop_order import ConsumerOrderInfoManager
from pocketmq.broker.pop.pop_revive import PopReviveService
from pocketmq.broker.put.delivery_time import DeliveryTimes
from pocketmq.broker.put.put import CLUSTER, MessagePutter
from pocketmq.broker.registration.registration import Registration
from pocketmq.broker.registration.route_barrier import RouteBarrier
from pocketmq.broker.services import Services
from pocketmq.broker.startup import table_recovery as lost_tables
from pocketmq.broker.startup import unsupported_tables as foreign_tables
from pocketmq.broker.startup.ports import reserve_ports
from pocketmq.broker.startup.recovery_progress import RecoveryProgress
from pocketmq.broker.stats.stats import SAMPLE_STEP_S, BrokerStats
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.timer.timer_service import TimerMessageService, roll_window_slots
from pocketmq.broker.transaction.transaction import TransactionalMessageService
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_op import TransactionProgress
from pocketmq.remoting.allow_list import restricted
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.limits import DESCRIPTORS_KEPT
from pocketmq.remoting.server import RemotingServer, pack_host
from pocketmq.remoting.tls import TLS_FILES_S, ReloadingContext, ServerTls, TlsConfig, TlsMode, client_tls, server_tls
from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.runtime.lifecycle import StartError, listening
from pocketmq.runtime.priority import run_in_real_time
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.turn import Phase, Turn
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.disk import NO_ROOM, Disk, StoreError, no_room
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mark_file import MarkFile
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_store import TimerStore

if TYPE_CHECKING:
    from pocketmq.broker.acl.plain_permission import PlainPermissionManager

log = logging.getLogger("broker")

CLIENT_SCAN_S: Final = 10.0
OFFSETS_FIRST_S: Final = 10.0
FILTERS_S: Final = 10.0
ACL_FILES_S: Final = 1.0
"""How often it is looked whether ACL files changed."""
FLUSH_POLL_S: Final = 0.005
PULL_AGAIN_S: Final = 0.1
"""How long a client may take from the answer to its held pull to the next one: a round trip."""
FLUSH_TIMEOUT_S: Final = 10.0
LOOK_AT_CLOCKS_S: Final = 0.05
"""How soon it is noticed that somebody set the calendar."""
ROUTE_WAIT_MAX_S: Final = 2.0
"""A name server that hangs holds nobody's first send longer than this; clients give up after 3 s."""
VIP_PORT_REFUSED: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))


class Broker:
    """One broker. `port`, `fast_port` (None: off) and `services` are there once it started."""

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, disk: Disk | None = None, clock: Clock | None = None,
        tls_config: TlsConfig | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.store_config = store_config
        self.port = 0
        self.fast_port: int | None = None
        self.services: Services
        self._tls_config = tls_config or TlsConfig()
        if config.use_tls is None:
            config.use_tls = self._tls_config.mode is TlsMode.ENFORCING
        self._tls: ServerTls | None = None
        self._name_server_tls: ReloadingContext | None = None
        self._clock = clock or SystemClock()
        self._disk = disk or FileDisk()
        self._store: MessageStore | None = None
        self._server: RemotingServer | None = None
        self._client: RemotingClient | None = None
        self._is_serving = False
        self._housekeeping: list[Timer] = []
        # Files are written here when the loop must not wait for their sync; one thread, so in the order given.
        self._writer = ThreadPoolExecutor(1, "config-writer")
        self._tables = TableWriter(self._writer)

    @property
    def address(self) -> str:
        """The advertised address `host:port`."""
        return self.services.broker_address

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, listen, register. Raises StartError, saying what to mend."""
        config = self.config
        check(config, self.store_config)
        self._load_certificates()
        host = advertised_host(config)
        with listening(config.bind_address, config.listen_port, "listenPort"):
            reserved = reserve_ports(config.bind_address, config.listen_port)
        try:
            port = int(reserved[0].getsockname()[1])
            try:
                store = self._store = MessageStore(self.store_config, self._disk, self._clock)
                with RecoveryProgress() as progress:
                    report = store.load(progress)
                for line in report.lines():
                    log.log(logging.INFO if report.clean and not report.repairs else logging.WARNING, line)
                services = self._build(store, host.name, host.address, config.advertised_port or port)
                self._connect(services)
                if self.store_config.timer_wheel_enable:
                    with RecoveryProgress() as progress:
                        services.timer_messages.recover(progress)
                services.transactions.recover()
            except (StoreError, ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno in NO_ROOM:
                    path = error.filename or self.store_config.store_path_root_dir
                    raise StartError(no_room(self._disk, path, "files of a start", error)) from error
                raise StartError(str(error)) from error
            store.start()
            await self._listen(services, port, with_fast_port=len(reserved) > 1)
        finally:
            for held in reserved:
                held.close()
        self._is_serving = True
        services.schedule.start()
        if self.store_config.timer_wheel_enable:
            services.timer_messages.start()
        services.transactions.start()
        services.pops.start()
        self._keep_house(services)
        if config.real_time_priority:
            run_in_real_time(config.real_time_priority)
        await services.registration.start()

    def _build(self, store: MessageStore, host: str, address: str, advertised_port: int) -> Services:
        config, clock = self.config, self._clock
        loop = asyncio.get_running_loop()
        turn, timers = Turn(loop), Timers(clock, loop)

        def file(name: str) -> ConfigFile:
            return ConfigFile(self._disk, self.store_config.store_path(f"config/{name}.json"))

        broker_address = f"{host}:{advertised_port}"
        store_host = pack_host(address, advertised_port)
        with_lmq = self.store_config.enable_lmq
        topics = TopicConfigManager(config, file("topics"), clock, with_lmq=with_lmq)
        groups = SubscriptionGroupManager(config, file("subscriptionGroup"), clock, with_lmq=with_lmq)
        offsets = self._consumer_offsets(store, file)
        filters = self._consumer_filters(store, file("consumerFilter"))
        stats = BrokerStats(config.broker_cluster_name, clock)
        cancelled = DelayCancelled(file("delayCancelled"), clock, lambda: store.flushed_offset)
        steps = ClockSteps(clock)
        schedule = self._schedule(store, file("delayOffset"), cancelled, steps, timers, turn)
        request_modes = MessageRequestModeManager(file("messageRequestMode"), clock)
        for manager in (topics, groups, schedule, cancelled, request_modes):
            manager.load()
        lost_tables.make_again(store, topics, groups, offsets, schedule)
        cancelled.passed(schedule.progress())
        foreign_tables.refuse_batch_topics(store, topics)
        foreign_tables.warn_of_rocksdb(self._disk, self.store_config.store_path_root_dir)
        self._client = RemotingClient(turn, timers, tls=self._name_server_tls)
        registration = Registration(config, topics, self._client, timers, broker_address)
        holds = PullRequestHoldService(timers, store.any_matches, HoldLimits(*config.hold_limits))
        timer_messages = self._timer_messages(store, steps, timers, turn)
        times = self._delivery_times(timer_messages)
        waiting = timer_messages if times.is_enabled else NoTimers()
        putter = MessagePutter(config, store, store_host, timers, loop, times)
        putter.on_put_failed = schedule.on_put_failed = timer_messages.on_put_failed = stats.put_failed
        stats.others[DEQUEUE_NUMS, TIMER_TOPIC] = lambda: timer_messages.delivered_total
        route_barrier = RouteBarrier(registration, timers, self._route_wait_s(), putter.is_immediate)
        self._write_off_the_loop(topics, groups, request_modes, route_barrier, registration)
        clients = ClientRegistry(config, groups, clock, GroupNotifier(timers, turn), filters.unregister)
        services = self.services = Services(
            config=config,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            filters=filters,
            clients=clients,
            locks=RebalanceLock(clock, config.rebalance_lock_max_live_time, config.max_locked_queues),
            holds=holds,
            putter=putter,
            schedule=schedule,
            timer_messages=timer_messages,
            delivery_times=times,
            transactions=self._transactions(store, putter, topics, clients, offsets, store_host, steps, timers, turn),
            pops=self._pops(store, putter, offsets, topics, groups, stats, timer_messages, timers, turn, store_host, steps),
            request_modes=request_modes,
            delay_query=DelayQuery(store, waiting, schedule, cancelled, times.precision_ms, steps.shift_ms),
            delay_cancelled=cancelled,
            registration=registration,
            route_barrier=route_barrier,
            stats=stats,
            permissions=self._permissions(),
            config_version=DataVersion(0, clock.message_time_ms()),
            turn=turn,
            timers=timers,
            clock=clock,
            store_host=store_host,
            broker_address=broker_address,
        )
        return services

    def _write_off_the_loop(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, request_modes: MessageRequestModeManager,
        route_barrier: RouteBarrier, registration: Registration,
    ) -> None:  # fmt: skip
        topics.writer = groups.writer = request_modes.writer = self._tables
        topics.on_change, route_barrier.unwritten = route_barrier.topic_changed, topics.unwritten
        topics.on_taken_back = lambda _: registration.register()

    @staticmethod
    def _connect(services: Services) -> None:
        """What is done at the end of each turn of the loop, and who still needs a file of the log."""
        store, turn = services.store, services.turn
        waits = (services.schedule, services.timer_messages, services.transactions)
        store.ask_before_removing(lambda end: all(one.may_remove(end) for one in waits))
        listeners = (services.stats, services.holds, services.schedule, services.timer_messages, services.pops)

        def dispatch() -> None:
            arrivals = store.dispatch()
            if arrivals:
                for listener in listeners:
                    try:
                        listener.arrived(arrivals)
                    except Exception:  # the others hear of them all the same
                        log.exception("arrivals are lost to %s", type(listener).__name__)

        turn.add(Phase.DISPATCH, services.transactions.end_turn)
        turn.add(Phase.DISPATCH, dispatch)
        turn.add(Phase.FLUSH, services.putter.end_turn)
        turn.add(Phase.WAKE, services.holds.wake)
        turn.add(Phase.WAKE, services.pops.wake)

    def _route_wait_s(self) -> float:
        return min(self.config.register_broker_timeout_mills / 1000, ROUTE_WAIT_MAX_S)

    def _consumer_offsets(self, store: MessageStore, file: Callable[[str], ConfigFile]) -> ConsumerOffsetManager:
        with_lmq = self.store_config.enable_lmq
        offsets = ConsumerOffsetManager(
            file("lmqConsumerOffset" if with_lmq else "consumerOffset"), self._clock, with_lmq=with_lmq,
            count_max=self.config.max_consumer_offsets,
        )  # fmt: skip
        offsets.log_end, offsets.flushed_offset = lambda: store.max_physical_offset, lambda: store.flushed_offset
        offsets.load()
        if with_lmq and offsets.file.is_missing:
            offsets.decode(file("consumerOffset").load())  # what was committed before light queues were enabled
        return offsets

    def _consumer_filters(self, store: MessageStore, file: ConfigFile) -> ConsumerFilterManager:
        filters = ConsumerFilterManager(self.config, file, self._clock)
        if self.config.enable_property_filter:
            filters.load()
            if self.config.enable_calc_filter_bit_map:
                store.queues.ext.bitmap_of = filters.bitmaps(store.message_at)
        return filters

    def _timer_messages(self, store: MessageStore, steps: ClockSteps, timers: Timers, turn: Turn) -> TimerMessageService:
        config = self.store_config
        files = TimerStore(
            self._disk, wheel_path=config.store_path("timerwheel"), log_directory=config.store_path("timerlog"),
            checkpoint_path=config.store_path("config/timercheck"), log_file_size=config.mapped_file_size_timer_log,
            precision_ms=config.timer_precision_ms, open_files=store.open_files,
            roll_window_slots=roll_window_slots(config.timer_roll_window_slot, config.timer_precision_ms),
        )  # fmt: skip
        return TimerMessageService(
            store, files, steps, timers, turn, precision_ms=config.timer_precision_ms,
            stop_enter=config.timer_stop_enqueue, stop_deliver=config.timer_stop_dequeue,
        )  # fmt: skip

    def _schedule(
        self, store: MessageStore, file: ConfigFile, cancelled: DelayCancelled, steps: ClockSteps, timers: Timers, turn: Turn
    ) -> ScheduleMessageService:
        mark = LevelMark(store, MarkFile(self._disk, self.store_config.store_path("config/levelmark")))
        return ScheduleMessageService(store, store.delay_levels, file, timers, turn, cancelled, steps, mark)

    def _transactions(
        self, store: MessageStore, putter: MessagePutter, topics: TopicConfigManager, clients: ClientRegistry,
        offsets: ConsumerOffsetManager, store_host: bytes, steps: ClockSteps, timers: Timers, turn: Turn,
    ) -> TransactionalMessageService:  # fmt: skip
        progress = TransactionProgress()
        check = TransactionCheck(store, putter, progress, topics, clients, self.config, store_host, steps, timers, turn)
        return TransactionalMessageService(store, putter, offsets, progress, check, store_host=store_host, clock=self._clock)

    def _pops(
        self, store: MessageStore, putter: MessagePutter, offsets: ConsumerOffsetManager, topics: TopicConfigManager,
        groups: SubscriptionGroupManager, stats: BrokerStats,
        timer_messages: TimerMessageService, timers: Timers, turn: Turn, store_host: bytes, steps: ClockSteps,
    ) -> PopMessageService:  # fmt: skip
        config = self.config
        revive = PopReviveService(
            store, putter, offsets, topics, groups, timer_messages, timers, turn,
            revive_topic=REVIVE_TOPIC_PREFIX + config.broker_cluster_name, queue_nums=config.revive_queue_num,
            store_host=store_host, with_retry_v2=config.enable_retry_topic_v2, steps=steps,
        )  # fmt: skip
        file = ConfigFile(self._disk, self.store_config.store_path("config/consumerOrderInfo.json"))
        orders = ConsumerOrderInfoManager(file, self._clock, timers)
        orders.load()
        return PopMessageService(
            config, store, putter, offsets, topics, stats, orders, revive, timers, turn, self._clock, store_host, steps
        )  # fmt: skip

    def _permissions(self) -> "PlainPermissionManager | None":
        if not self.config.acl_enable:
            return None
        from pocketmq.broker.acl.plain_permission import PlainPermissionManager  # YAML is loaded for who wants it

        permissions = PlainPermissionManager(Path(self.config.rocketmq_home or ""), self._clock)
        permissions.load()
        return permissions

    def _load_certificates(self) -> None:
        self._tls_config.read_config_file()
        self._tls = server_tls(self._tls_config)
        if self.config.use_tls:
            self._name_server_tls = client_tls(self._tls_config)

    def _delivery_times(self, timer_messages: TimerMessageService) -> DeliveryTimes:
        config = self.store_config
        return DeliveryTimes(
            self._clock, timer_messages, cluster=(CLUSTER, self.config.broker_cluster_name),
            is_enabled=config.timer_wheel_enable, precision_ms=config.timer_precision_ms,
            delay_max_s=config.timer_max_delay_sec, congestion_max=config.timer_congest_num_each_slot,
        )  # fmt: skip

    async def _listen(self, services: Services, port: int, with_fast_port: bool) -> None:
        config = self.config
        idle_s = config.server_channel_max_idle_time_seconds
        table = ROUTES if services.permissions is None else guard(ROUTES, services.permissions)
        table = restricted(table, filter(needs_admin, ROUTES), "adminAllow", config.admin_allow, log)
        kept = DESCRIPTORS_KEPT + services.store.open_files.count_max
        self._server = RemotingServer(services, table, services.turn, services.timers, idle_s, self._tls, config, kept)
        with listening(config.bind_address, port, "listenPort"):
            self.port = await self._server.listen(config.bind_address, port)
        if with_fast_port:
            self.fast_port = await self._server.listen(config.bind_address, port - 2, VIP_PORT_REFUSED)
        else:
            log.warning("port %d (listenPort - 2) cannot be had: the VIP channel is off", port - 2)

    def _keep_house(self, services: Services) -> None:
        every, slices = services.timers.every, WorkSlices(services.timers)
        offsets_s = self.config.flush_consumer_offset_interval / 1000
        self._housekeeping = [
            every(offsets_s, self._persist_offsets, OFFSETS_FIRST_S),
            every(FILTERS_S, lambda: services.filters.persist_in(self._writer)),
            every(self.store_config.flush_delay_offset_interval / 1000, self._persist_delays),
            every(self.store_config.timer_flush_interval_ms / 1000, self._persist_marks),
            every(self.store_config.clean_resource_interval / 1000, self._clean),
            every(CLIENT_SCAN_S, services.clients.scan),
            every(CLIENT_SCAN_S, services.locks.expire),
            every(SAMPLE_STEP_S, lambda: slices.start(services.stats.sampling())),
            every(1.0, services.stats.sample_tps),
        ]
        for certificates in (None if self._tls is None else self._tls.certificates, self._name_server_tls):
            if certificates is not None:
                self._housekeeping.append(every(TLS_FILES_S, certificates.reload))
        if services.permissions is not None:
            self._housekeeping.append(every(ACL_FILES_S, services.permissions.reload))

    def _persist_offsets(self) -> None:
        self.services.transactions.persist()
        self.services.offsets.persist_in(self._writer)
        self.services.pops.persist_in(self._writer)

    def _persist_delays(self) -> None:
        # First what is cancelled: behind progress that passed over it, it is no longer asked for.
        self.services.delay_cancelled.persist_in(self._writer)
        self.services.schedule.persist_in(self._writer)

    def _persist_marks(self) -> None:
        self.services.timer_messages.persist_in(self._writer)
        self.services.schedule.mark_in(self._writer)

    def _clean(self) -> None:
        try:
            self.services.store.clean()
        except OSError:
            log.exception("cannot clean the store; trying again")
        # What found no room in a queue is dispatched with the turn; there may be no other for long.
        self.services.turn.arm()

    # --- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop cleanly. Harmless when not started, or only half."""
        for timer in self._housekeeping:
            timer.cancel()
        if self._is_serving:
            await self.services.registration.stop()
            self.services.schedule.stop()
            self.services.timer_messages.stop()
            self.services.transactions.stop()
            self.services.pops.stop()
            await self._release_pulls()
            await self._flush()
            await self._tables.drain()
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            await self._server.close()
        await self._tables.drain()
        self._writer.shutdown()
        if self._store is not None:
            if self._is_serving:
                self.services.transactions.close()
                self.services.offsets.persist()
                self.services.pops.persist()
                if self.config.enable_property_filter:
                    self.services.filters.persist()
                self.services.delay_cancelled.persist()
                self.services.schedule.persist()
                self.services.schedule.close()
                self.services.timer_messages.close()
            self._store.shutdown()
        self._is_serving = False

    async def _release_pulls(self) -> None:
        """Answer held pulls before their connections close, and refuse the ones that come at once again."""
        if self.services.holds.stop():
            self.services.turn.run()
            await asyncio.sleep(PULL_AGAIN_S)

    async def _flush(self) -> None:
        """Have everything on the disk: senders that wait for it are answered, delay offsets may be written."""
        store, clock = self.services.store, self._clock
        self.services.turn.run()
        end_offset = store.max_physical_offset
        store.request_sync(end_offset)
        deadline_s = clock.monotonic() + FLUSH_TIMEOUT_S
        while store.flushed_offset < end_offset and store.writeable and clock.monotonic() < deadline_s:
            await asyncio.sleep(FLUSH_POLL_S)
        await asyncio.sleep(FLUSH_POLL_S)  # what the flush thread has to say comes through the loop
        self.services.putter.close()
        self.services.turn.run()
