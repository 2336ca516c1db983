"""The metrics of a broker. Those named `rocketmq_` have the names and labels of RocketMQ 5.5.0."""

from typing import Final

from pocketmq.metrics.family import Declared

_TOPIC: Final = ("topic", "message_type", "is_system")
_GROUP: Final = ("topic", "consumer_group", "is_retry", "is_system")
_PULLED: Final = ("topic", "consumer_group", "is_system")
_STORAGE: Final = ("storage_type", "storage_medium")

PERMISSION: Final = Declared("rocketmq_broker_permission", "gauge", "brokerPermission: 4 (readable) + 2 (writable).")
TOPICS: Final = Declared("rocketmq_topic_number", "gauge", "Number of topics.")
GROUPS: Final = Declared("rocketmq_consumer_group_number", "gauge", "Number of consumer groups in the table.")
MESSAGES_IN: Final = Declared("rocketmq_messages_in_total", "counter", "Messages stored in a topic.", _TOPIC)
BYTES_IN: Final = Declared("rocketmq_throughput_in_total", "counter", "Bytes of messages stored in a topic.", _TOPIC)
MESSAGES_OUT: Final = Declared("rocketmq_messages_out_total", "counter", "Messages pulled by a group.", _PULLED)
BYTES_OUT: Final = Declared("rocketmq_throughput_out_total", "counter", "Bytes of messages pulled by a group.", _PULLED)
DLQ: Final = Declared(
    "rocketmq_send_to_dlq_messages_total", "counter", "Messages moved to the dead-letter topic of a group.",
    ("topic", "consumer_group"),
)  # fmt: skip
LAG: Final = Declared("rocketmq_consumer_lag_messages", "gauge", "Messages that a group has not consumed.", _GROUP)
INFLIGHT: Final = Declared("rocketmq_consumer_inflight_messages", "gauge", "Messages pulled and not yet consumed.", _GROUP)
READY: Final = Declared("rocketmq_consumer_ready_messages", "gauge", "Messages that a group has not pulled.", _GROUP)
LAG_LATENCY: Final = Declared(
    "rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the oldest message that a group has not consumed.", _GROUP
)
QUEUEING_LATENCY: Final = Declared(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "gauge",
    "Age of the oldest message that a group has not pulled.",
    _GROUP,
)
PRODUCERS: Final = Declared(
    "rocketmq_producer_connections", "gauge", "Connected producers.", ("language", "version", "protocol_type")
)
CONSUMERS: Final = Declared(
    "rocketmq_consumer_connections", "gauge", "Connected consumers of a group.",
    ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)  # fmt: skip
STORAGE_SIZE: Final = Declared("rocketmq_storage_size_bytes", "gauge", "Bytes in the CommitLog.", _STORAGE)
FLUSH_BEHIND: Final = Declared(
    "rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the CommitLog that are not synced yet.", _STORAGE
)
DISPATCH_BEHIND: Final = Declared(
    "rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes of the CommitLog that are in no queue yet.", _STORAGE
)
RESERVE_TIME: Final = Declared(
    "rocketmq_storage_message_reserve_time_milliseconds", "gauge", "Age of the oldest stored message.", _STORAGE
)
TIMING: Final = Declared(
    "rocketmq_timing_messages", "gauge", "Pending messages with a delivery time of their own.", ("topic", *_STORAGE)
)
SNAPSHOT: Final = Declared(
    "rocketmq_timer_message_snapshot", "gauge", "Pending messages with a delivery time of their own, by the seconds "
    "until they are due: at most `timer_bound_s`, and more than the next smaller bound.", ("timer_bound_s", *_STORAGE),
)  # fmt: skip
ENQUEUE_LAG: Final = Declared(
    "rocketmq_timer_enqueue_lag", "gauge", "Timer messages that are not in the wheel yet.", _STORAGE
)
DEQUEUE_LAG: Final = Declared("rocketmq_timer_dequeue_lag", "gauge", "Timer messages that are overdue.", _STORAGE)
DEQUEUE_LATENCY: Final = Declared(
    "rocketmq_timer_dequeue_latency_milliseconds", "gauge", "How late the delivery of timer messages is now.", _STORAGE
)

PENDING: Final = Declared(
    "pocketmq_delayed_pending_messages", "gauge", "Pending delayed messages by the hour of the clock in which they are due: "
    "0 is the current hour, `later` is hour 24 or later.", ("due_hour",),
)  # fmt: skip
LATENESS: Final = Declared(
    "pocketmq_delayed_lateness_seconds", "histogram", "How late delayed messages were delivered: those of delay levels "
    "(`level`), and those with a delivery time of their own (`timer`).", ("kind",),
)  # fmt: skip
PUT: Final = Declared(
    "pocketmq_put_seconds", "histogram", "Time until a message was stored, or synced if its answer waits for it."
)
SYNC: Final = Declared("pocketmq_fsync_seconds", "histogram", "Time that syncs of the CommitLog took.")
PUT_FAILURES: Final = Declared("pocketmq_put_failures_total", "counter", "Messages that could not be stored.")
PULLS: Final = Declared(
    "pocketmq_pulls_total", "counter", "Pulls that found messages (`found`) or none (`missed`).", ("result",)
)
TRANSACTIONS: Final = Declared("pocketmq_transactions_open", "gauge", "Transactions neither committed nor rolled back.")
CONNECTIONS: Final = Declared("pocketmq_connections", "gauge", "Open connections of clients.")
HELD: Final = Declared("pocketmq_held_pulls", "gauge", "Pulls that wait for a message.")
DISK_USED: Final = Declared(
    "pocketmq_disk_used_ratio", "gauge", "Used fraction (0 to 1) of a file system that holds CommitLog files.", ("path",)
)
NAME_SERVER: Final = Declared(
    "pocketmq_name_server_registered", "gauge", "1 if the last registration with a name server succeeded.", ("address",)
)
READY_STATE: Final = Declared("pocketmq_ready", "gauge", "1 if `/health/ready` answers 200, else 0.")
SLAVES: Final = Declared("pocketmq_replication_slaves", "gauge", "Connected slaves of a master.")
SLAVE_LAG_BYTES: Final = Declared(
    "pocketmq_replication_lag_bytes", "gauge", "Bytes of the CommitLog that a slave has not acknowledged.", ("slave",)
)
SLAVE_LAG: Final = Declared(
    "pocketmq_replication_lag_seconds", "gauge", "Time that a slave takes to acknowledge the end of the CommitLog; 0 if it "
    "has acknowledged everything.", ("slave",),
)  # fmt: skip
MASTER_CONNECTED: Final = Declared(
    "pocketmq_replication_master_connected", "gauge", "1 if this slave is connected to its master."
)
RECOVERY: Final = Declared(
    "pocketmq_recovery_seconds", "gauge", "Time that recovery took at the start: of the store (`store`), and of "
    "timers and transactions (`timers`).", ("part",),
)  # fmt: skip
REPAIRS: Final = Declared("pocketmq_recovery_repairs", "gauge", "Repairs made in the store at the start.")
CLEAN: Final = Declared("pocketmq_recovery_clean", "gauge", "1 if the last broker on this store had stopped cleanly.")
