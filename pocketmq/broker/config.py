"""BrokerConfig: Apache's keys and defaults, and PocketMQ's own keys.

A broker has two addresses: the one it binds (`bindAddress`) and the one it advertises to clients through the name servers
(`brokerIP1` and `advertisedPort`). They differ if there is a container or a proxy in between.
"""

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field
from typing import Final

from pocketmq.metrics.config import MetricsConfig
from pocketmq.remoting.allow_list import networks
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.hosts import local_address
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.tls import TlsMode
from pocketmq.runtime.apache_keys import BROKER_KEYS
from pocketmq.runtime.config import setting
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import IGNORED_KEYS as STORE_IGNORED_KEYS
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.format.record import SECTOR_SIZE

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
"""Limit of Java's long: larger values are refused for Apache's keys."""
HOURS_MAX: Final = 24
"""Limit of entries in deleteWhen: each hour once."""
TEXT_SIZE_MAX: Final = 200
"""Limit of characters of an invalid value shown in an error."""
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,253}")


@dataclass
class BrokerConfig(MetricsConfig, ConnectionLimits):
    """Apache's BrokerConfig without the keys that have no meaning here. Times in ms unless stated."""

    namesrv_addr: str | None = field(
        default_factory=lambda: os.environ.get("NAMESRV_ADDR") or None, metadata={"important": True}
    )
    """`host:port`, several separated by `;`. None: the broker does not register."""
    broker_cluster_name: str = setting("DefaultCluster", important=True)
    broker_name: str = field(default_factory=lambda: socket.gethostname() or "DEFAULT_BROKER", metadata={"important": True})
    broker_id: int = setting(0, low=0, important=True)
    broker_ip1: str | None = setting(None, key="brokerIP1", important=True)
    """The advertised host, a name or an address. None: the bound address, or the machine's first one if all are bound."""
    broker_ip2: str | None = setting(None, key="brokerIP2", important=True)
    """The host to which slaves connect. None: brokerIP1."""
    bind_address: str = setting("127.0.0.1", important=True)
    listen_port: int = setting(10911, low=0, high=65535, important=True)
    advertised_port: int | None = setting(None, low=1, high=65535)
    """The port advertised to clients. None: listenPort."""
    server_channel_max_idle_time_seconds: int = setting(120, low=1)
    enable_controller_mode: bool = False
    """5.x: masters elected by a controller; refused at start."""
    real_time_priority: int = setting(0, low=0, high=99)
    """Real-time priority of the event loop's thread; 0: an ordinary thread."""

    max_held_requests: int = setting(100_000, low=1)
    """Limit of held requests of each kind: pulls, pops, notifications (Apache: pullThreadPoolQueueCapacity,
    maxPopPollingSize)."""
    max_held_requests_per_connection: int = setting(4_096, low=1)
    max_held_request_bytes: int = setting(64 << 20, low=1 << 20)
    """Limit of the bytes of held requests of each kind."""
    max_locked_queues: int = setting(100_000, low=1)
    """Limit of queue locks of ordered consumers, over all groups."""
    max_producer_groups: int = setting(100_000, low=1)
    """Limit of groups with a connected producer."""
    max_client_registrations: int = setting(200_000, low=1)
    """Limit of registered clients; a client counts once per group."""
    max_groups_per_connection: int = setting(4_096, low=1)

    rocketmq_home: str | None = field(default_factory=lambda: os.environ.get("ROCKETMQ_HOME") or None)
    """The folder with conf/plain_acl.yml and conf/acl; only needed with acl_enable."""
    use_tls: bool | None = setting(None, key="useTLS")
    """Whether to connect to name servers by TLS. None: if tls.server.mode=enforcing."""
    ha_use_tls: bool | None = setting(None, key="haUseTLS")
    """Master: whether its port for slaves takes only TLS. Slave: whether it connects to that port by TLS. None: use_tls."""
    acl_enable: bool = setting(False, important=True)
    """Whether requests are checked against the rules in these files."""
    authentication_enabled: bool = setting(False, important=True)
    """5.x: whether requests must be signed by one of the users in config/auth.json."""
    authorization_enabled: bool = setting(False, important=True)
    """5.x: whether the user's policies must allow what a request does."""
    init_authentication_user: str | None = setting(None, secret=True)
    """5.x: {"username":..., "password":...} of a Super user that is created at start if it does not exist."""
    inner_client_authentication_credentials: str | None = setting(None, secret=True)
    """5.x: {"accessKey":..., "secretKey":...} with which this broker signs its own requests; creates such a user, too."""
    authentication_whitelist: str = ""
    """5.x: comma-separated request codes that need no signature."""
    authorization_whitelist: str = ""
    """5.x: comma-separated request codes that every user may send."""
    max_auth_users: int = setting(1_000, low=1, high=100_000)
    max_acl_entries_per_user: int = setting(1_000, low=1, high=10_000)
    max_auth_bytes: int = setting(4 << 20, low=1 << 10, high=12 << 20)
    """Limit of the size of all users and policies together."""
    admin_allow: str = ""
    """Comma-separated addresses and CIDR networks allowed to use administrative codes. Empty: all, as in Apache."""

    metrics_topics_max: int = setting(1_000, low=0, high=10_000)
    """Limit of topics, and of pairs of topic and group, with metrics of their own; the others are summed up as `(other)`."""

    broker_permission: int = setting(6, low=0, high=7)
    default_topic_queue_nums: int = setting(8, low=1, high=65536)
    auto_create_topic_enable: bool = setting(True, important=True)
    auto_create_subscription_group: bool = True
    max_topics: int = setting(50_000, low=1)
    """Number of topics at which no new one is created; a stored table with more topics is kept."""
    max_subscription_groups: int = setting(50_000, low=1)
    max_topic_creations_per_second: int = setting(6, low=0, high=1_000_000)
    """Limit over all clients; the number for 100 seconds may be created at once. 0: no limit."""
    max_group_creations_per_second: int = setting(10, low=0, high=1_000_000)
    """The same limit for consumer groups, each with its retry topic."""
    max_consumer_offsets: int = setting(500_000, low=1)
    """Limit over all groups and queues."""
    max_acks_per_batch: int = setting(1_024, low=1, high=65_536)
    """Limit of entries in one BATCH_ACK_MESSAGE, each of which stores a record and acknowledges up to one pop's messages."""
    max_groups_per_heartbeat: int = setting(1_000, low=1)
    """Limit of consumer and producer groups of one client."""
    max_subscriptions_per_heartbeat: int = setting(10_000, low=1, high=100_000)
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    trace_on: bool = True
    region_id: str = "DefaultRegion"

    register_name_server_period: int = setting(30_000, low=1)  # limited to 10..60 s, as in Apache
    register_broker_timeout_mills: int = setting(6_000, low=1)
    enable_slave_acting_master: bool = False
    """5.x: whether the slave with the smallest id acts as master while the name servers have none."""
    enable_remote_escape: bool = False
    """5.x: whether an acting master sends due messages to other masters; else they wait for its own."""
    skip_pre_online: bool = False
    """5.x: whether a master starts without asking its slaves for their progress."""
    broker_heartbeat_interval: int = setting(1_000, low=100, high=60_000)
    broker_not_active_timeout_millis: int = setting(10_000, low=1_000, high=120_000)
    """Time without a heartbeat after which name servers remove this broker. Like brokerHeartbeatInterval and
    syncBrokerMemberGroupPeriod, it has an effect only with enableSlaveActingMaster."""
    sync_broker_member_group_period: int = setting(1_000, low=100, high=60_000)
    """Interval in ms at which the name servers are asked for the brokers of this name."""
    flush_consumer_offset_interval: int = setting(5_000, low=1)
    start_accept_send_request_time_stamp: int = setting(0, low=0, high=LONG_MAX)

    enable_property_filter: bool = False
    """Whether consumers may subscribe with SQL92."""
    max_filter_expression_length: int = setting(8_192, low=1, high=16_384)
    """Limit of characters of an SQL92 expression."""
    filter_support_retry: bool = False
    enable_calc_filter_bit_map: bool = False
    expect_consumer_num_use_filter: int = setting(32, low=1, high=10_000)
    max_error_rate_of_bloom_filter: int = setting(20, low=1, high=99)
    filter_data_clean_time_span: int = setting(24 * 3600 * 1000, low=1)

    recall_message_enable: bool = True  # Apache's default is false
    allow_recall_when_broker_not_writeable: bool = True

    store_reply_message_enable: bool = True
    """Whether replies to requests are also stored, besides being pushed to the requesting client."""

    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = setting(3_000, low=1, high=INT_MAX)
    """Time after which a send is refused, because its client has given up and sends it again. Apache's default is 200."""

    reject_transaction_message: bool = False
    transaction_time_out: int = setting(6_000, low=0, high=INT_MAX)
    """Time between storing a half message and its first check."""
    transaction_check_max: int = setting(15, low=0, high=INT_MAX)
    transaction_check_interval: int = setting(60_000, low=1, high=INT_MAX)

    revive_queue_num: int = setting(8, low=1, high=999)
    pop_from_retry_probability: int = setting(20, low=0, high=100)
    """Number of pops out of 100 that read the group's retry topic first."""
    pop_from_retry_probability_for_priority: int = setting(0, low=0, high=100)
    """The same for pops by priority."""
    priority_order_asc: bool = True
    """Whether a higher queue id, and thus a higher priority of a message, comes first in pops by priority."""
    use_separate_retry_queue: bool = False
    """Whether the retry topic of a popping group has a queue for each of the topic's queues."""
    init_pop_offset_by_check_msg_in_mem: bool = True
    pop_response_return_actual_retry_topic: bool = False
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    default_message_request_mode: str = "PULL"
    """PULL or POP, for groups without a mode of their own if the broker allocates queues."""
    default_pop_share_queue_num: int = setting(-1, low=-1)

    use_server_side_reset_offset: bool = True
    """Whether the broker resets consumer offsets itself, as in 5.x, or has online consumers do it, as in 4.9."""

    slave_read_enable: bool = False
    """Whether pull answers suggest the broker of the consumer group, or another one for slow consumers."""
    long_polling_enable: bool = True
    lite_pull_message_enable: bool = True
    short_polling_time_mills: int = setting(1_000, low=1, high=INT_MAX)
    notify_consumer_ids_changed_enable: bool = True
    rebalance_lock_max_live_time: int = setting(60_000, low=1, key="rocketmq.broker.rebalance.lockMaxLiveTime")
    """Time after which an ordered consumer loses a queue unless it locks it again, which clients do every 20 s. In Apache a
    system property."""
    lock_wait_millis: int = setting(300, low=0, high=900)
    """Maximum time for which a lock request waits for a queue that another consumer is about to unlock; 0: it does not wait,
    as in Apache. Clients wait 1 s for the answer."""
    lock_grace_millis: int = setting(10_000, low=0, high=INT_MAX)
    """Time after which the locks of a consumer are freed if its connection ended without UNREGISTER_CLIENT and it did not
    come back. With the lock's life time (60 s) or more no lock is freed early, as in Apache."""
    auto_delete_unused_stats: bool = False

    def settle_tls(self, mode: TlsMode) -> None:
        """Set `use_tls` and `ha_use_tls` if they are not given."""
        if self.use_tls is None:
            self.use_tls = mode is TlsMode.ENFORCING
        if self.ha_use_tls is None:
            self.ha_use_tls = self.use_tls

    @property
    def hold_limits(self) -> tuple[int, int, int]:
        """Limits of held requests of each kind: total, per connection, bytes."""
        return self.max_held_requests, self.max_held_requests_per_connection, self.max_held_request_bytes

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers, each once, in the order given. Raises StartError for an invalid `host:port`."""
        addresses = dict.fromkeys(part.strip() for part in (self.namesrv_addr or "").split(";") if part.strip())
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                key = "NAMESRV_ADDR" if self.namesrv_addr == os.environ.get("NAMESRV_ADDR") else "namesrvAddr"
                raise StartError(
                    f"{key}={self.namesrv_addr}: expected HOST:PORT, several separated by ';', such as 127.0.0.1:9876"
                )
        return tuple(addresses)


AUTH_CODES: Final = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
"""5.x's administration of users and ACLs."""

UPDATABLE_KEYS: Final = frozenset(
    """
    advertisedPort autoCreateSubscriptionGroup autoCreateTopicEnable autoDeleteUnusedStats brokerFastFailureEnable brokerIP1
    brokerPermission
    cleanFileForciblyEnable defaultQueryMaxNum deleteWhen diskMaxUsedSpaceRatio fileReservedTime litePullMessageEnable
    longPollingEnable maxMsgsNumBatch maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory notifyConsumerIdsChangedEnable
    shortPollingTimeMills recallMessageEnable rejectTransactionMessage slaveReadEnable startAcceptSendRequestTimeStamp
    storeReplyMessageEnable traceOn transactionCheckInterval transactionCheckMax transactionTimeOut
    useServerSideResetOffset waitTimeMillsInSendQueue
    """.split()  # noqa: SIM905
)
"""Keys that UPDATE_BROKER_CONFIG may change: no paths, no identities, and of addresses only the advertised one."""

ADDRESS_KEYS: Final = frozenset({"brokerIP1", "advertisedPort"})
"""Updatable keys that form the advertised address."""

FIXED_KEYS: Final = {
    "clientCallbackExecutorThreads": ("2", "there is no such thread pool"),
    "filterServerNums": ("0", "filter servers were removed in 5.x"),
    "forceRegister": ("true", "every registration is sent"),
    "compressedRegister": ("false", "registrations are sent uncompressed"),
}
"""Keys with one fixed value, which GET_BROKER_CONFIG returns (tools fail without some of them)."""

_WITHOUT_EFFECT: Final = {
    "there is only one thread and no queue in front of it": """
        adminBrokerThreadPoolNums clientManagerThreadPoolNums clientManageThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientWorkerThreads consumerManageThreadPoolNums
        consumerManagerThreadPoolQueueCapacity endTransactionPoolQueueCapacity endTransactionThreadPoolNums
        heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putMessageFutureThreadPoolNums queryMessageThreadPoolNums queryThreadPoolQueueCapacity
        replyThreadPoolQueueCapacity sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
        serverCallbackExecutorThreads serverOnewaySemaphoreValue serverSelectorThreads serverWorkerThreads
        waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue waitTimeMillsInTransactionQueue""",
    "4.9.4 ignores this spelling too; the key is mappedFileSizeCommitLog (bytes)": "mapedFileSizeCommitLog",
    "4.9.4 ignores this spelling too; the key is mappedFileSizeConsumeQueue (bytes, not units)": "mapedFileSizeConsumeQueue",
    "pull consumers are always served": "rejectPullConsumerEnable",
    "messages are always sent from the mapped files": "transferMsgByHeap",
    "slow consumers are always served": "disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold",
    "name servers are set by namesrvAddr": "fetchNamesrvAddrByAddressServer",
    "enableDLegerCommitLog=true is not supported": """
        dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId isEnableBatchPush dledgerDiskType""",
    "enableControllerMode=true is not supported": """
        controllerAddr fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
        syncControllerMetadataPeriod controllerHeartBeatTimeoutMills asyncLearner startupControllerEnabled
        allAckInSyncStateSet minInSyncReplicas haMaxTimeSlaveNotCatchup""",
    "member groups and heartbeats use the requests of 5.x": "compatibleWithOldNameSrv sendHeartbeatTimeoutMillis",
    "queue locks are always kept by a single broker": "lockInStrictMode",
    "statistics by queue are always available": "enableDetailStat",
    "there are no commercial statistics": "commercialEnable",
    "it does nothing in 4.9.4 either": "highSpeedMode",
    "the backlog is 1024": "serverSocketBacklog",
    "the event loop is uvloop": "useEpollNativeSelector",
    "there are no pooled buffers": "serverPooledByteBufAllocatorEnable",
}
IGNORED_KEYS: Final[dict[str, str]] = {
    **BROKER_KEYS,
    **STORE_IGNORED_KEYS,
    **{key: f"always reported as {value}: {why}" for key, (value, why) in FIXED_KEYS.items()},
    **{key: why for why, keys in _WITHOUT_EFFECT.items() for key in keys.split()},
}
"""Apache's keys that have no effect here -> reason."""


@dataclass(frozen=True)
class AdvertisedHost:
    """The host advertised to clients, and its address as stored in records."""

    name: str
    address: str


def advertised_host(config: BrokerConfig) -> AdvertisedHost:
    """Return the host to advertise. Raises StartError if clients could not reach the broker at it."""
    bound = _address(config.bind_address, "bindAddress")
    name = config.broker_ip1
    if name is None:
        name = local_address() if bound.is_unspecified else config.bind_address
    address = _address(name, "brokerIP1")
    if address.is_unspecified:
        raise StartError(f"brokerIP1={name}: clients cannot connect to that; give an address of this machine")
    if bound.is_loopback and not address.is_loopback:
        raise StartError(
            f"brokerIP1={name} is advertised to clients, but only {config.bind_address} is bound (bindAddress): clients "
            f"could not connect. Add to the config file:\nbindAddress=0.0.0.0\nbrokerIP1={name}"
        )
    return AdvertisedHost(name, str(address))


def _address(host: str, key: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.ip_address(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise StartError(f"{key}={host}: unknown host ({error})") from error


def check(config: BrokerConfig, store_config: MessageStoreConfig) -> None:
    """Raise StartError for unsupported settings. Used at start, and for each change at run time."""
    if config.broker_ip1 is not None and _HOST.fullmatch(config.broker_ip1) is None:
        raise StartError(f"brokerIP1={config.broker_ip1[:TEXT_SIZE_MAX]}: expected a host name or an address")
    networks("adminAllow", config.admin_allow)
    networks("haAllowedHosts", store_config.ha_allowed_hosts)
    _ = config.namesrv_addresses  # raises StartError for an invalid one
    if not config.broker_name.strip():
        raise StartError("brokerName=: expected a name that is not empty")
    if store_config.enable_dleger_commit_log:
        raise StartError(
            "enableDLegerCommitLog=true: DLedger is not supported, and without it this broker would run unreplicated; use a "
            "master (brokerRole=SYNC_MASTER, brokerId=0) with slaves (brokerRole=SLAVE, brokerId=1)"
        )
    if config.enable_controller_mode:
        raise StartError(
            "enableControllerMode=true: 5.x's controller, which elects masters, is not supported; use fixed roles: "
            "brokerRole=SYNC_MASTER, brokerId=0, with slaves (brokerRole=SLAVE, brokerId=1)"
        )
    role = store_config.broker_role
    if role not in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"):
        raise StartError(f"brokerRole={role}: unknown role; use ASYNC_MASTER, SYNC_MASTER or SLAVE")
    if store_config.is_slave != (config.broker_id > 0):
        expected = "a slave must have an id of 1 or more" if store_config.is_slave else "a master must have id 0"
        raise StartError(f"brokerId={config.broker_id} with brokerRole={role}: {expected}")
    log_file_size = store_config.mapped_file_size_commit_log
    if log_file_size % SECTOR_SIZE:
        raise StartError(f"mappedFileSizeCommitLog={log_file_size}: expected a multiple of {SECTOR_SIZE}")
    _check_frame(config, store_config.max_message_size)
    if set(store_config.commit_log_directories) == set(store_config.read_only_commit_log_directories):
        raise StartError("readOnlyCommitLogStorePaths contains all of storePathCommitLog: no log file could be created")
    if config.acl_enable and not config.rocketmq_home:
        raise StartError("aclEnable=true: rocketmqHome (or ROCKETMQ_HOME) must be the folder with conf/plain_acl.yml")
    _check_access(config)
    if config.default_message_request_mode not in ("PULL", "POP"):
        raise StartError(f"defaultMessageRequestMode={config.default_message_request_mode}: use PULL or POP")
    _check_hours(store_config.delete_when)
    if store_config.flush_disk_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise StartError(f"flushDiskType={store_config.flush_disk_type}: use ASYNC_FLUSH or SYNC_FLUSH")


def _check_frame(config: BrokerConfig, body_size: int) -> None:
    """Check that the largest message fits into the limits of connections."""
    size = config.frame_size(body_size)
    for key, size_max in (
        ("maxUnfinishedFrameBytes", config.max_unfinished_frame_bytes),
        ("maxUnsentBytes", config.max_unsent_bytes),
        ("maxUnsentBytesPerConnection", config.max_unsent_bytes_per_connection),
    ):
        if size > size_max:
            raise StartError(
                f"maxMessageSize={body_size}: a request or answer with such a message has {size} bytes, which "
                f"{key}={size_max} does not allow; raise {key}"
            )


def _check_access(config: BrokerConfig) -> None:
    if config.acl_enable and config.authentication_enabled:
        raise StartError(
            "aclEnable=true and authenticationEnabled=true: a request has one signature; use the users of 5.x or "
            "plain_acl.yml of 4.9, not both"
        )
    if config.authorization_enabled and not config.authentication_enabled:
        raise StartError(
            "authorizationEnabled=true needs authenticationEnabled=true: otherwise any client could use any user name"
        )
    for key in ("authentication", "authorization"):
        whitelisted_codes(f"{key}Whitelist", getattr(config, f"{key}_whitelist"))


def whitelisted_codes(key: str, text: str) -> frozenset[int]:
    """Return the request codes of a comma-separated list. Raises StartError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise StartError(f"{key}={text[:TEXT_SIZE_MAX]}: expected request codes, separated by commas")
    codes = frozenset(map(int, parts))
    if not codes.isdisjoint(AUTH_CODES):
        raise StartError(
            f"{key}={text[:TEXT_SIZE_MAX]}: request codes 3001 to 3010 manage users and ACLs and are always checked"
        )
    return codes


def _check_hours(delete_when: str) -> None:
    hours = [text.strip() for text in delete_when.split(";") if text.strip()]
    if not all(hour.isascii() and hour.isdecimal() and len(hour) < 9 and int(hour) < 24 for hour in hours):
        shown = delete_when[:TEXT_SIZE_MAX]
        raise StartError(f"deleteWhen={shown}: expected hours from 00 to 23, separated by ';'")
    if len(hours) > HOURS_MAX:
        raise StartError(f"deleteWhen={delete_when[:TEXT_SIZE_MAX]}: {len(hours)} hours, the limit is {HOURS_MAX}")
