"""What can be set about the store: Apache's keys and defaults.

A key on the wire and in `.properties` files is the field's name in camelCase unless its metadata names another `key`.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Final

from store.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL

# Keys of Apache's MessageStoreConfig that have no meaning here (or not yet); naming one is reported, not an error.
IGNORED_KEYS: Final = frozenset(
    (
        "abortFile",
        "accessMessageInMemoryHotRatio",
        "bitMapLengthConsumeQueueExt",
        "commitCommitLogLeastPages",
        "commitCommitLogThoroughInterval",
        "commitIntervalCommitLog",
        "debugLockEnable",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "destroyMapedFileIntervalForcibly",
        "diskFallRecorded",
        "duplicationEnable",
        "enableConsumeQueueExt",
        "enableDLegerCommitLog",
        "enableLmq",
        "enableMultiDispatch",
        "enableScheduleAsyncDeliver",
        "fastFailIfNoBufferInStorePool",
        "flushCommitLogTimed",
        "flushLeastPagesWhenWarmMapedFile",
        "haHousekeepingInterval",
        "haListenPort",
        "haMasterAddress",
        "haSendHeartbeatInterval",
        "haSlaveFallbehindMax",
        "haTransferBatchSize",
        "mappedFileSizeConsumeQueueExt",
        "maxLmqConsumeQueueNum",
        "messageIndexSafe",
        "offsetCheckInSlave",
        "osPageCacheBusyTimeOutMills",
        "putMsgIndexHightWater",
        "redeleteHangedFileInterval",
        "scheduleAsyncDeliverMaxPendingLimit",
        "scheduleAsyncDeliverMaxResendNum2Blocked",
        "slaveTimeout",
        "storeCheckpoint",
        "storePathConsumeQueue",
        "storePathIndex",
        "transientStorePoolEnable",
        "transientStorePoolSize",
        "useReentrantLockWhenPutMessage",
        "warmMapedFileEnable",
    )
)


def _important(default: Any) -> Any:
    """A field that `-m` prints, as Apache's does."""
    return field(default=default, metadata={"important": True})


@dataclass
class MessageStoreConfig:
    """Java's MessageStoreConfig, as far as it has a meaning here. Times in ms and sizes in bytes unless said."""

    store_path_root_dir: str = field(
        default_factory=lambda: os.path.join(os.path.expanduser("~"), "store"), metadata={"important": True}
    )
    store_path_commit_log: str = _important("")  # empty: commitlog under the root
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * 20
    max_message_size: int = 4 << 20  # of one body
    auto_message_version_on_topic_len: bool = True  # 5.x: topics over 127 bytes become V2 records, else are refused
    broker_role: str = _important("ASYNC_MASTER")

    flush_disk_type: str = _important("ASYNC_FLUSH")  # or SYNC_FLUSH
    sync_flush_timeout: int = 5_000
    flush_interval_commit_log: int = _important(500)
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000

    check_crc_on_recover: bool = field(default=True, metadata={"key": "checkCRCOnRecover"})
    file_reserved_time: int = _important(72)  # hours
    delete_when: str = _important("04")  # hours of the day, with ; between
    disk_max_used_space_ratio: int = 75  # percent, held to 10..95
    disk_space_clean_forcibly_ratio: int = 85  # 5.x keys; 4.9.4 takes both from system properties
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000
    delete_file_batch_max: int = 10

    max_transfer_bytes_on_message_in_memory: int = _important(256 << 10)
    max_transfer_count_on_message_in_memory: int = _important(32)
    max_transfer_bytes_on_message_in_disk: int = _important(64 << 10)
    max_transfer_count_on_message_in_disk: int = _important(8)
    access_message_in_memory_max_ratio: int = _important(40)  # percent of the machine's memory

    message_index_enable: bool = _important(True)
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    message_delay_level: str = DEFAULT_MESSAGE_DELAY_LEVEL
    flush_delay_offset_interval: int = 10_000

    @property
    def commit_log_directory(self) -> str:
        return self.store_path_commit_log or self.store_path("commitlog")

    def store_path(self, name: str) -> str:
        """Path of a file or folder under the root."""
        return f"{self.store_path_root_dir}/{name}"
