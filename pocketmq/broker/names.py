"""Names of RocketMQ's system topics and of message properties that several parts of the broker use."""

from typing import Final

from pocketmq.remoting.handles.pop_handle import RETRY_PREFIX as RETRY_PREFIX

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Topic in which messages with a delivery time wait."""

POP_CK: Final = "POP_CK"
"""Property with the handle of a popped message."""
WAIT: Final = "WAIT"
"""Property by which a sender says whether it waits for disk and slaves."""
