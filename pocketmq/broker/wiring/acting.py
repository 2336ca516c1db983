"""Builds the parts with which a slave acts as master, and those with which a returning master takes over from it."""

from collections.abc import Callable

from pocketmq.broker.context import Context
from pocketmq.broker.delay.wheel_source import WheelSource
from pocketmq.broker.ha.acting_master import ActingMaster
from pocketmq.broker.ha.acting_services import ActingServices, EscapingCheck
from pocketmq.broker.ha.escape_bridge import EscapeBridge
from pocketmq.broker.ha.pre_online import PreOnline
from pocketmq.broker.registration.member_group import MemberGroup
from pocketmq.broker.services import Services
from pocketmq.broker.transaction.transaction_op import TransactionProgress
from pocketmq.store.format.layout import TIMER_CHECKPOINT_SIZE, TIMER_CHECKPOINT_STRUCT
from pocketmq.store.timer.timer_checkpoint import is_foreign
from pocketmq.store.timer.timer_store import TimerStore


def prepare_for_acting_masters(services: Services, context: Context, make_timer_store: Callable[[], TimerStore]) -> None:
    """Add the parts to `services` if enableSlaveActingMaster is set and there are name servers."""
    config = context.config
    if not config.enable_slave_acting_master or not config.namesrv_addresses:
        return
    members = services.members = MemberGroup(config, services.client, context.timers, services.broker_address)
    if services.ha is not None and not config.skip_pre_online:
        services.pre_online = PreOnline(
            context, services.registration, members, services.client, services.ha, services.schedule, services.offsets,
            services.timer_messages.adopt,
        )  # fmt: skip
    if services.slave_synchronize is None or services.ha_client is None:
        return

    def make_timers() -> WheelSource:
        return WheelSource(context, _continued(context, make_timer_store()))

    def make_check(progress: TransactionProgress) -> EscapingCheck:
        return EscapingCheck(context, services.putter, progress, services.topics, services.clients)

    def make_services() -> ActingServices:
        return ActingServices(
            context, EscapeBridge(config, services.registration, services.client, context.clock), services.delays,
            services.schedule, services.offsets, make_timers if context.store.config.timer_wheel_enable else None,
            make_check,
        )  # fmt: skip

    services.acting_master = ActingMaster(
        context, services.registration, members, services.slave_synchronize, services.ha_client, make_services
    )  # fmt: skip


def _continued(context: Context, timer_store: TimerStore) -> TimerStore:
    """Return the timer store; if the slave has a copy of the master's timer checkpoint, timers continue from it."""
    store = context.store
    path = store.config.store_path("config/timercheck")
    if store.disk.exists(path) and is_foreign(checkpoint := store.disk.read_range(path, 0, TIMER_CHECKPOINT_SIZE)):
        read_time_ms, _, queue_offset, *_ = TIMER_CHECKPOINT_STRUCT.unpack(checkpoint)
        timer_store.adopt(read_time_ms, queue_offset)
    return timer_store
