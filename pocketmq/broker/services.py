"""Dependencies available to request handlers.

`broker.wiring` fills one `Services` per broker, and the dispatcher passes it to every handler. Only handlers get all of it:
any other part gets from `broker.wiring` just the parts that it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pocketmq.broker.stats.measurements import Measurements
from pocketmq.remoting.after_write import Work, answer_in_slices, while_open
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.codes import VERSION
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.remoting.header import CommandHeader

if TYPE_CHECKING:
    from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager
    from pocketmq.broker.access.auth.users import AuthUsers
    from pocketmq.broker.clients.absent_holders import AbsentHolders
    from pocketmq.broker.clients.client_registry import ClientRegistry
    from pocketmq.broker.clients.rebalance_lock import RebalanceLock
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.broker.delay.cancel import DelayCancelled
    from pocketmq.broker.delay.engine import DelayEngine
    from pocketmq.broker.delay.level_source import LevelSource
    from pocketmq.broker.delay.pending import DelayQuery
    from pocketmq.broker.delay.wheel_source import WheelSource
    from pocketmq.broker.filter.consumer_filter import ConsumerFilterManager
    from pocketmq.broker.ha.acting_master import ActingMaster
    from pocketmq.broker.ha.ha_client import HAClient
    from pocketmq.broker.ha.ha_service import HAService
    from pocketmq.broker.ha.pre_online import PreOnline
    from pocketmq.broker.ha.slave_synchronize import SlaveSynchronize
    from pocketmq.broker.polling.lock_polling import LockRequestHoldService
    from pocketmq.broker.polling.long_polling import PullRequestHoldService
    from pocketmq.broker.pop.pop import PopMessageService
    from pocketmq.broker.put.answer_gate import AnswerGate
    from pocketmq.broker.put.delivery_time import DeliveryTimes
    from pocketmq.broker.put.put import MessagePutter
    from pocketmq.broker.registration.member_group import MemberGroup
    from pocketmq.broker.registration.registration import Registration
    from pocketmq.broker.stats.stats import BrokerStats
    from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
    from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
    from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
    from pocketmq.broker.tables.topic_config import TopicConfigManager
    from pocketmq.broker.transaction.transaction import TransactionalMessageService
    from pocketmq.remoting.channels import Channels
    from pocketmq.remoting.client import RemotingClient
    from pocketmq.runtime.clock import Clock
    from pocketmq.runtime.config_updates import ConfigUpdates
    from pocketmq.runtime.timers import Timers
    from pocketmq.runtime.turn import Turn
    from pocketmq.runtime.work_slices import WorkSlices
    from pocketmq.store.message_store import MessageStore

H = TypeVar("H", bound=CommandHeader)


@dataclass(slots=True)
class Services:
    """The parts of a running broker."""

    config: "BrokerConfig"
    store: "MessageStore"
    topics: "TopicConfigManager"
    groups: "SubscriptionGroupManager"
    offsets: "ConsumerOffsetManager"
    filters: "ConsumerFilterManager"
    clients: "ClientRegistry"
    locks: "RebalanceLock"
    lock_holds: "LockRequestHoldService"
    absent_holders: "AbsentHolders"
    holds: "PullRequestHoldService"
    putter: "MessagePutter"
    delays: "DelayEngine"
    schedule: "LevelSource"
    timer_messages: "WheelSource"
    delivery_times: "DeliveryTimes"
    transactions: "TransactionalMessageService"
    pops: "PopMessageService"
    request_modes: "MessageRequestModeManager"
    delay_query: "DelayQuery"
    delay_cancelled: "DelayCancelled"
    client: "RemotingClient"
    """Connections to the name servers."""
    registration: "Registration"
    ha: "HAService | None"
    """The connections to slaves; None at a slave."""
    ha_client: "HAClient | None"
    """The connection of a slave to its master; None at a master."""
    gate: "AnswerGate"
    stats: "BrokerStats"
    permissions: "PlainPermissionManager | None"
    """The access rules; None with aclEnable=false."""
    users: "AuthUsers | None"
    """5.x's users and policies; None with authenticationEnabled=false."""
    config_version: DataVersion
    """Version of the configuration, which counts the changes made by requests."""
    turn: "Turn"
    timers: "Timers"
    slices: "WorkSlices"
    """Runs all long work in slices."""
    clock: "Clock"
    store_host: bytes
    """The advertised address as it is stored in records: 4 or 16 bytes of address, then 4 of port."""
    broker_address: str
    """The advertised address `host:port`, as registered with the name servers."""
    config_updates: "ConfigUpdates" = field(init=False)
    """The changes of `config` and of the store's config by requests."""
    channels: "Channels | None" = None
    """The connections of clients; None before the port is open."""
    measured: Measurements = field(default_factory=Measurements)
    """Durations of puts, syncs, deliveries, the event loop's lag and recovery."""
    slave_synchronize: "SlaveSynchronize | None" = None
    """Copies the tables of a slave's master; None at a master."""
    members: "MemberGroup | None" = None
    """The live brokers of this broker name. Like the next two, it is set only with enableSlaveActingMaster."""
    acting_master: "ActingMaster | None" = None
    """Makes a slave act as master; None at a master."""
    pre_online: "PreOnline | None" = None
    """Takes over the progress of a slave that acted as master; None at a slave."""

    def version_for(self, code: int, client_version: int) -> DataVersion | None:
        """Return the version of the offsets answered to `code`, which brokers of 5.x need; None for older ones."""
        if client_version <= VERSION:
            return None
        return DataVersion(0, 0, 0) if self.slave_synchronize is None else self.slave_synchronize.version(code)

    @property
    def is_master(self) -> bool:
        """Whether this broker is a master, or acts as one."""
        return not self.store.config.is_slave or (self.acting_master is not None and self.acting_master.is_acting)


def in_slices(handle: Callable[[Services, Request[H]], Work]) -> Callable[[Services, Request[H]], Response | Deferred]:
    """Return the handler of a request that only reads, where `handle` does a small piece of the work per step."""

    def handler(services: Services, request: Request[H]) -> Response | Deferred:
        return answer_in_slices(services.slices, request, while_open(request.channel, handle(services, request)))

    return handler
