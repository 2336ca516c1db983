"""What handlers may reach.

One `Services` a broker: the composition root fills it, the dispatcher hands it to every handler. A part that needs another
part is given that part by the composition root; only handlers take the whole.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.client_registry import ClientRegistry
    from broker.config import BrokerConfig
    from broker.consumer_filter import ConsumerFilterManager
    from broker.consumer_offset import ConsumerOffsetManager
    from broker.delay_cancelled import DelayCancelled
    from broker.delay_query import DelayQuery
    from broker.delivery_time import DeliveryTimes
    from broker.long_polling import PullRequestHoldService
    from broker.message_request_mode import MessageRequestModeManager
    from broker.plain_permission import PlainPermissionManager
    from broker.pop import PopMessageService
    from broker.put import MessagePutter
    from broker.rebalance_lock import RebalanceLock
    from broker.registration import Registration
    from broker.route_wait import RouteWait
    from broker.schedule import ScheduleMessageService
    from broker.stats import BrokerStats
    from broker.subscription_group import SubscriptionGroupManager
    from broker.timer_service import TimerMessageService
    from broker.topic_config import TopicConfigManager
    from broker.transaction import TransactionalMessageService
    from remoting.bodies import DataVersion
    from runtime.clock import Clock
    from runtime.timers import Timers
    from runtime.turn import Turn
    from store.message_store import MessageStore


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
    holds: "PullRequestHoldService"
    putter: "MessagePutter"
    schedule: "ScheduleMessageService"
    timer_messages: "TimerMessageService"
    delivery_times: "DeliveryTimes"
    transactions: "TransactionalMessageService"
    pops: "PopMessageService"
    request_modes: "MessageRequestModeManager"
    delay_query: "DelayQuery"
    delay_cancelled: "DelayCancelled"
    registration: "Registration"
    route_wait: "RouteWait"
    stats: "BrokerStats"
    permissions: "PlainPermissionManager | None"
    """The access rules; None with aclEnable=false."""
    config_version: "DataVersion"
    """Counts the changes of the config that came by the wire."""
    turn: "Turn"
    timers: "Timers"
    clock: "Clock"
    store_host: bytes
    """The advertised address as records hold it: 4 or 16 bytes of address, port in 4."""
    broker_address: str
    """The advertised address `host:port`, as registered with the name servers."""
