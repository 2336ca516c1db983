"""Composition root of the broker: makes its parts and connects them.

The broker process and the tests build the same parts here. They differ in the disk, the clock, the event loop and the table
writer that they pass in. Sockets are opened by `broker.broker`.
"""

import asyncio
import logging
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pocketmq.broker.clients.absent_holders import AbsentHolders
from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.clients.group_notifier import GroupNotifier
from pocketmq.broker.clients.rebalance_lock import RebalanceLock
from pocketmq.broker.config import BrokerConfig, advertised_host
from pocketmq.broker.config_updates import config_updates
from pocketmq.broker.context import Context
from pocketmq.broker.delay.cancel import DelayCancelled
from pocketmq.broker.delay.engine import DelayEngine
from pocketmq.broker.delay.level_pending import LevelPending
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.delay.pending import DelayQuery, PendingSource
from pocketmq.broker.delay.progress import LevelMark
from pocketmq.broker.delay.sources import Source
from pocketmq.broker.delay.wheel_source import WheelSource, roll_window_slots
from pocketmq.broker.figures.timer_figures import DEQUEUE_NUMS
from pocketmq.broker.filter.consumer_filter import ConsumerFilterManager
from pocketmq.broker.ha.ha_client import HAClient
from pocketmq.broker.ha.ha_service import HAService
from pocketmq.broker.ha.slave_role import PUT_REFUSAL
from pocketmq.broker.ha.slave_synchronize import SlaveSynchronize
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from pocketmq.broker.polling.held_requests import HoldLimits
from pocketmq.broker.polling.lock_polling import LockRequestHoldService
from pocketmq.broker.polling.long_polling import PullRequestHoldService
from pocketmq.broker.pop.pop import PopMessageService
from pocketmq.broker.pop.pop_order import ConsumerOrderInfoManager
from pocketmq.broker.pop.pop_positions import recover_positions
from pocketmq.broker.pop.pop_revive import PopReviveService
from pocketmq.broker.put.answer_gate import AnswerGate
from pocketmq.broker.put.copy_sink import LogSink
from pocketmq.broker.put.delivery_time import DeliveryTimes
from pocketmq.broker.put.put import CLUSTER, MessagePutter
from pocketmq.broker.registration.registration import Registration
from pocketmq.broker.registration.route_barrier import RouteBarrier
from pocketmq.broker.services import Services
from pocketmq.broker.startup import table_recovery
from pocketmq.broker.startup.recovery_progress import RecoveryProgress
from pocketmq.broker.stats.stats import BrokerStats
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.transaction.transaction import TransactionalMessageService
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_op import TransactionProgress
from pocketmq.broker.wiring.acting import prepare_for_acting_masters
from pocketmq.broker.wiring.measuring import measure
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.hosts import pack_host
from pocketmq.remoting.tls import ReloadingContext
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.clock_steps import ClockSteps
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Phase, Turn
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mark_file import MarkFile
from pocketmq.store.format.message import Arrival
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_store import SLOTS_TOTAL, TimerStore

if TYPE_CHECKING:
    from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager
    from pocketmq.broker.access.auth.users import AuthUsers

log = logging.getLogger("broker")

ROUTE_WAIT_MAX_S: Final = 2.0
"""Maximum time for which the answer to a send that created its topic waits for a name server. Clients give up after 3 s."""


def build(
    config: BrokerConfig, store_config: MessageStoreConfig, disk: Disk, clock: Clock, loop: asyncio.AbstractEventLoop, *,
    port: int, tables: TableWriter, name_server_tls: ReloadingContext | None = None,
    master_tls: ReloadingContext | None = None, timer_slots: int = SLOTS_TOTAL, config_file: Path | None = None,
    more_configs: Sequence[Any] = (),
) -> Services:  # fmt: skip
    """Load the store and the tables, and return the connected parts of a broker; `recover` must follow.

    `port` is the port that the broker listens on, the TLS settings are for connections to these servers, `tables` writes the
    files of config/, `timer_slots` is half the size of the timer wheel, changes of the config are written to `config_file`
    (None: they are not kept), `more_configs` are further configs shown to tools. Raises StartError, StoreError, ValueError
    or OSError; the store is closed then.
    """
    store = MessageStore(store_config, disk, clock)
    with RecoveryProgress() as progress:
        report = store.load(progress)
    try:
        for line in report.lines():
            log.log(logging.INFO if report.clean and not report.repairs else logging.WARNING, line)
        parts = _Parts(config, store, loop, port, tables, name_server_tls, master_tls, timer_slots)
        services = parts.services()
        services.config_updates = config_updates(services, port, config_file, tables, more_configs)
        services.measured.store_recovery_s = report.duration_ms / 1000
        services.measured.repairs = len(report.repairs)
        services.measured.started_cleanly = report.clean
        if (ha_client := services.ha_client) is not None:
            services.slave_synchronize = SlaveSynchronize(
                parts.context, services.client, services.topics, services.groups, services.offsets, services.schedule,
                services.request_modes, lambda: ha_client.is_connected,
            )  # fmt: skip
        prepare_for_acting_masters(services, parts.context, parts.timer_store)
        _connect(services)
        measure(services)
    except Exception:
        store.shutdown()
        raise
    return services


def recover(services: Services) -> None:
    """Restore timers and transactions to where the last process left them. Raises OSError or StoreError.

    A slave has neither; they are recovered when its store is started as a master's.
    """
    if services.store.config.is_slave:
        return
    began_s = services.clock.monotonic()
    if services.store.config.timer_wheel_enable:
        with RecoveryProgress() as progress:
            services.timer_messages.recover(progress)
    services.transactions.recover()
    revive_topic = REVIVE_TOPIC_PREFIX + services.config.broker_cluster_name
    recover_positions(services.store, services.offsets, services.groups, revive_topic)
    services.measured.timer_recovery_s = services.clock.monotonic() - began_s


def start(services: Services) -> None:
    """Begin to deliver delayed messages, to check transactions and to revive popped messages: a master's work."""
    if services.members is not None:
        services.members.start()
    if services.acting_master is not None:
        services.acting_master.start()
    if services.store.config.is_slave:
        return
    services.delays.start()
    services.transactions.check.work.start()
    services.pops.start()


def stop(services: Services) -> None:
    """Stop the work that `start` began, and answer held pops and lock requests."""
    if services.members is not None:
        services.members.stop()
    services.delays.stop()
    services.transactions.check.work.stop()
    services.pops.stop()
    services.lock_holds.stop()


def close(services: Services) -> None:
    """Write the tables and marks, and close the store. The loop must serve no requests any more. Raises OSError."""
    is_master = not services.store.config.is_slave
    if is_master:
        services.transactions.close()
    services.offsets.persist()
    services.pops.orders.persist()
    if services.config.enable_property_filter:
        services.filters.persist()
    services.delay_cancelled.persist()
    services.schedule.persist()
    if is_master:
        services.schedule.close()
        services.timer_messages.close()
    services.store.shutdown()


class _Parts:
    """Makes the parts of a broker whose store is loaded."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, loop: asyncio.AbstractEventLoop, port: int, tables: TableWriter,
        name_server_tls: ReloadingContext | None, master_tls: ReloadingContext | None, timer_slots: int,
    ) -> None:  # fmt: skip
        host, advertised_port = advertised_host(config), config.advertised_port or port
        clock, timers = store.clock, Timers(store.clock, loop)
        self.context = Context(
            config, store, clock, timers, WorkSlices(timers), Turn(loop), loop, ClockSteps(clock),
            pack_host(host.address, advertised_port),
        )  # fmt: skip
        clock.subscribe(lambda now_ms: self.context.look_at_clocks())
        self.broker_address = f"{host.name}:{advertised_port}"
        self.tables = tables
        self.name_server_tls = name_server_tls
        self.master_tls = master_tls
        self.timer_slots = timer_slots

    def services(self) -> Services:
        """Load the tables and make everything."""
        context = self.context
        config, store, clock, timers, slices = context.config, context.store, context.clock, context.timers, context.slices
        how: Any = {"with_lmq": store.config.enable_lmq, "writer": self.tables, "is_copy": store.config.is_slave}
        topics = TopicConfigManager(config, self._file("topics"), clock, **how)
        groups = SubscriptionGroupManager(config, self._file("subscriptionGroup"), clock, **how)
        offsets, filters = self._consumer_offsets(), self._consumer_filters()
        stats = BrokerStats(config.broker_cluster_name, clock)
        cancelled = DelayCancelled(self._file("delayCancelled"), clock, lambda: store.flushed_offset)
        mark = LevelMark(store, MarkFile(store.disk, store.config.store_path("config/levelmark")))
        schedule = LevelSource(context, self._file("delayOffset"), cancelled, mark)
        request_modes = MessageRequestModeManager(self._file("messageRequestMode"), clock, self.tables)
        orders = ConsumerOrderInfoManager(context, self._file("consumerOrderInfo"))
        for manager in (topics, groups, schedule, cancelled, request_modes, orders):
            manager.load()
        self._recover_tables(topics, groups, offsets, schedule, orders)
        cancelled.passed(schedule.progress())
        users = self._users()
        client = self._client(users)
        registration = Registration(config, topics, client, timers, self.broker_address, store.config.ha_listen_port)
        ha, ha_client = self._replication(client)
        timer_messages = WheelSource(context, self.timer_store())
        times = self._delivery_times(timer_messages)
        putter = MessagePutter(context, times)
        route_barrier = RouteBarrier(registration, timers, self._route_wait_s(), topics.unwritten)
        topics.topic_changed.subscribe(route_barrier.topic_changed)
        topics.rolled_back.subscribe(lambda _: registration.register())
        clients = ClientRegistry(config, groups, clock, GroupNotifier(timers, slices, context.turn), filters.unregister)
        locks = RebalanceLock(clock, config.rebalance_lock_max_live_time, config.max_locked_queues)
        progress = TransactionProgress()
        check = TransactionCheck(context, putter, progress, topics, clients)
        revive = PopReviveService(context, putter, offsets, topics, groups, timer_messages)
        return Services(
            config=config, store=store, topics=topics, groups=groups, offsets=offsets, filters=filters, clients=clients,
            lock_holds=LockRequestHoldService(timers, slices, locks, clients, HoldLimits(*config.hold_limits)),
            absent_holders=AbsentHolders(locks, clients, timers, slices, config.lock_grace_millis, config.broker_name),
            holds=PullRequestHoldService(timers, slices, store.reader.any_matches, HoldLimits(*config.hold_limits)),
            putter=putter, schedule=schedule, timer_messages=timer_messages, delivery_times=times, delay_cancelled=cancelled,
            delays=self._delays(topics, schedule, timer_messages),
            transactions=TransactionalMessageService(context, putter, offsets, topics, progress, check),
            pops=PopMessageService(context, offsets, topics, groups, stats, orders, revive),
            request_modes=request_modes,
            delay_query=self._delay_query(schedule, timer_messages, cancelled),
            client=client, registration=registration, ha=ha, ha_client=ha_client,
            gate=AnswerGate(context, route_barrier, ha),
            stats=stats, permissions=self._permissions(), users=users,
            config_version=DataVersion(0, clock.message_time_ms()),
            turn=context.turn, timers=timers, slices=slices, clock=clock, locks=locks,
            store_host=context.store_host, broker_address=self.broker_address,
        )  # fmt: skip

    def _recover_tables(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager,
        schedule: LevelSource, orders: ConsumerOrderInfoManager,
    ) -> None:  # fmt: skip
        store = self.context.store
        table_recovery.recover_tables(store, topics, groups, offsets, schedule, orders)
        table_recovery.refuse_batch_topics(store, topics)
        table_recovery.warn_of_rocksdb(store.disk, store.config.store_path_root_dir)

    def _file(self, name: str, *, is_private: bool = False) -> ConfigFile:
        store = self.context.store
        return ConfigFile(store.disk, store.config.store_path(f"config/{name}.json"), is_private=is_private)

    def _consumer_offsets(self) -> ConsumerOffsetManager:
        store, with_lmq = self.context.store, self.context.store.config.enable_lmq
        offsets = ConsumerOffsetManager(
            self._file("lmqConsumerOffset" if with_lmq else "consumerOffset"), self.context.clock, with_lmq=with_lmq,
            count_max=self.context.config.max_consumer_offsets, log_end=lambda: store.max_physical_offset,
            flushed_offset=lambda: store.flushed_offset, is_copy=store.config.is_slave,
        )  # fmt: skip
        offsets.load()
        if with_lmq and offsets.file.is_missing:
            offsets.decode(self._file("consumerOffset").load())  # offsets committed before light queues were enabled
        return offsets

    def _consumer_filters(self) -> ConsumerFilterManager:
        config, store = self.context.config, self.context.store
        filters = ConsumerFilterManager(config, self._file("consumerFilter"), self.context.clock)
        if config.enable_property_filter:
            filters.load()
            if config.enable_calc_filter_bit_map:
                store.queues.ext.bitmap_of = filters.bitmaps(store.message_at)
        return filters

    def timer_store(self) -> TimerStore:
        store, config = self.context.store, self.context.store.config
        return TimerStore(
            store.disk, config.store_path, log_file_size=config.mapped_file_size_timer_log,
            precision_ms=config.timer_precision_ms, open_files=store.open_files, slots_total=self.timer_slots,
            roll_window_slots=roll_window_slots(config.timer_roll_window_slot, config.timer_precision_ms),
        )  # fmt: skip

    def _delays(self, topics: TopicConfigManager, schedule: LevelSource, timer_messages: WheelSource) -> DelayEngine:
        context = self.context
        has_timers = context.store.config.timer_wheel_enable
        sources: list[Source[Any]] = [schedule, timer_messages] if has_timers else [schedule]
        return DelayEngine(context, LogSink(context.store, topics), sources)

    def _delay_query(self, schedule: LevelSource, timer_messages: WheelSource, cancelled: DelayCancelled) -> DelayQuery:
        context = self.context
        levels, has_timers = LevelPending(context.store, schedule, cancelled), context.store.config.timer_wheel_enable
        sources: list[PendingSource] = [levels, timer_messages.waiting] if has_timers else [levels]
        return DelayQuery(context, sources)

    def _delivery_times(self, timer_messages: WheelSource) -> DeliveryTimes:
        config = self.context.store.config
        return DeliveryTimes(
            self.context.clock, timer_messages, cluster=(CLUSTER, self.context.config.broker_cluster_name),
            is_enabled=config.timer_wheel_enable, precision_ms=config.timer_precision_ms,
            delay_max_s=config.timer_max_delay_sec, congestion_max=config.timer_congest_num_each_slot,
        )  # fmt: skip

    def _route_wait_s(self) -> float:
        return min(self.context.config.register_broker_timeout_mills / 1000, ROUTE_WAIT_MAX_S)

    def _replication(self, client: RemotingClient) -> tuple[HAService | None, HAClient | None]:
        """Create the HAService of a master, or the HAClient of a slave."""
        if self.context.store.config.is_slave:
            return None, HAClient(self.context, client, self.master_tls)
        return HAService(self.context), None

    def _client(self, users: "AuthUsers | None") -> RemotingClient:
        context, inner = self.context, None if users is None else users.inner
        return RemotingClient(context.turn, context.timers, tls=self.name_server_tls, credentials=inner)

    def _permissions(self) -> "PlainPermissionManager | None":
        if not self.context.config.acl_enable:
            return None
        from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager  # only brokers with ACLs load YAML

        permissions = PlainPermissionManager(Path(self.context.config.rocketmq_home or ""), self.context.clock)
        permissions.load()
        return permissions

    def _users(self) -> "AuthUsers | None":
        context = self.context
        if not context.config.authentication_enabled:
            return None
        from pocketmq.broker.access.auth.users import AuthUsers

        users = AuthUsers(context.config, self._file("auth", is_private=True), context.clock, self.tables)
        users.load()
        return users


def _connect(services: Services) -> None:
    """Connect the services by events, steps at the end of each turn, and checks before a file of the log is deleted."""
    store, turn = services.store, services.turn
    store.clean_in_slices(services.slices.start)
    if store.config.is_slave:
        store.commit_log.refuse("role", PUT_REFUSAL)
    else:
        store.ask_before_removing(
            lambda end_offset: services.delays.may_remove(end_offset) and services.transactions.may_remove(end_offset)
        )
        services.registration.refused_as_second.subscribe(lambda reason: store.commit_log.refuse("second master", reason))
    for part in (services.putter, services.delays):
        part.put_failed.subscribe(services.stats.put_failed)
    services.stats.others[DEQUEUE_NUMS, TIMER_TOPIC] = lambda: services.timer_messages.delivered_total
    store.units_added.subscribe(services.stats.put)
    pops = services.pops
    store.watched = [services.holds.places], [pops.polling.waiting, pops.notifications.waiting]
    # Services, and the topics whose arrivals they are told of; None: all.
    listeners: list[tuple[Any, Set[str] | None]] = [(services.stats, None)]
    if not store.config.is_slave:
        listeners += [(services.delays, {source.topic for source in services.delays.sources}), (pops, None)]
    elif services.acting_master is not None:
        listeners.append((services.acting_master, None))

    def tell(listener: Any, arrivals: list[Arrival]) -> None:
        try:
            listener.arrived(arrivals)
        except Exception:  # the other listeners must still get the arrivals
            log.exception("%s failed to handle the arrival of messages", type(listener).__name__)

    def dispatch() -> None:
        arrivals = store.dispatch()
        if not arrivals:
            return
        waking.is_due = services.holds.count > 0
        if waking.is_due:
            tell(services.holds, arrivals)
        grown = {arrival.topic for arrival in arrivals}
        for listener, topics in listeners:
            if topics is None or not topics.isdisjoint(grown):
                tell(listener, arrivals)

    turn.add(Phase.DISPATCH, dispatch)
    if store.config.flush_disk_type == "SYNC_FLUSH":
        turn.add(Phase.FLUSH, services.putter.end_turn)
    if services.ha_client is not None and services.slave_synchronize is not None:
        services.registration.master_changed.subscribe(services.ha_client.set_master)
        services.ha_client.unreachable.subscribe(services.registration.seek_master)
        services.registration.master_changed.subscribe(services.slave_synchronize.set_master)
        services.gate.flushed.subscribe(services.ha_client.synced)
        listeners.append((services.slave_synchronize, None))
    waking = turn.add(Phase.WAKE, services.holds.wake, is_always_due=False)
