"""MessageStoreConfig: settings of the store, with Apache's keys and defaults.

A key on the wire and in `.properties` files is the field's name in camelCase unless its metadata names another `key`.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE

_INT_MAX: Final = 2**31 - 1  # offsets within a file are Java ints
_UNIT_SIZE: Final = CONSUME_QUEUE_UNIT_SIZE
# Keys of Apache's MessageStoreConfig without effect here, by reason. Using one is logged at start, not an error.
_WITHOUT_EFFECT: Final = {
    "there is no pool beside the page cache: records are written to the file directly and survive a killed process": """
        transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool commitIntervalCommitLog
        commitCommitLogLeastPages commitCommitLogThoroughInterval""",
    "as with Apache's broker, it is always under storePathRootDir": """
        abortFile storeCheckpoint storePathConsumeQueue storePathIndex""",
    "one thread appends: there is no lock to choose and no queue before it": """
        useReentrantLockWhenPutMessage putMsgIndexHightWater debugLockEnable""",
    "a delayed message is delivered by a put into the page cache, which never waits for the disk": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked""",
    "two masters never write to one group of brokers": "duplicationEnable",
    "the log is always flushed at fixed intervals": "flushCommitLogTimed",
    "queue files are small, so that deleting them needs no pause": "deleteConsumeQueueFilesInterval",
    "files can be deleted while pulls still read from them": "destroyMapedFileIntervalForcibly",
    "the index is always brought up to date at start": "messageIndexSafe",
    "the length follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter": "bitMapLengthConsumeQueueExt",
    "there are no statistics about lagging pulls": "accessMessageInMemoryHotRatio diskFallRecorded",
}
IGNORED_KEYS: Final = {key: why for why, keys in _WITHOUT_EFFECT.items() for key in keys.split()}


def _setting(
    default: Any, low: int | None = None, high: int | None = None, *, key: str | None = None, important: bool = False
) -> Any:
    """Return a field with inclusive limits, an explicit key, or `important`, which includes it in the output of `-m`."""
    return field(default=default, metadata={"key": key, "low": low, "high": high, "important": important})


def _default_root() -> str:
    return os.path.join(os.path.expanduser("~"), "store")


@dataclass
class MessageStoreConfig:
    """Java's MessageStoreConfig, without keys that have no effect here. Times in ms, sizes in bytes unless noted."""

    store_path_root_dir: str = field(default_factory=_default_root, metadata={"important": True})
    store_path_commit_log: str = _setting("", important=True)  # empty: commitlog under the root; comma-separated
    read_only_commit_log_store_paths: str = ""  # folders in which no new file is created
    mapped_file_size_commit_log: int = _setting(1 << 30, 4096, _INT_MAX)
    mapped_file_size_consume_queue: int = _setting(300_000 * 20, _UNIT_SIZE, _INT_MAX)
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = _setting(48 << 20, 64, _INT_MAX)
    enable_multi_dispatch: bool = False  # one message in several queues, by its property INNER_MULTI_DISPATCH
    enable_lmq: bool = False  # queues %LMQ%..., which are in no topic table
    max_lmq_consume_queue_num: int = _setting(20_000, 0)
    max_message_size: int = _setting(4 << 20, 1, _INT_MAX)  # of a body
    auto_message_version_on_topic_len: bool = True  # 5.x: topics over 127 bytes get V2 records; false: are refused
    broker_role: str = _setting("ASYNC_MASTER", important=True)  # or SYNC_MASTER, SLAVE
    enable_dleger_commit_log: bool = _setting(False, key="enableDLegerCommitLog")  # refused at start

    ha_listen_port: int = _setting(0, 0, 65535)
    """Port at which a master serves its slaves. 0: listenPort + 1. Masters advertise it to the name servers."""
    ha_master_address: str | None = None
    """`host:port` of the master's haListenPort, for slaves. None: the address that the name servers have."""
    ha_allowed_hosts: str = ""  # own key: addresses and CIDR networks of slaves, separated by commas; empty: all
    ha_fetch_whole_log: bool = False  # own key: an empty slave copies the whole log, not only from its last file on
    ha_transfer_batch_size: int = _setting(32 << 10, 1, _INT_MAX)
    ha_send_heartbeat_interval: int = _setting(5_000, 1)
    ha_housekeeping_interval: int = _setting(20_000, 1)
    ha_slave_fallbehind_max: int = _setting(256 << 20, 0)
    """If even the most up-to-date slave lags by this many bytes, a SYNC_MASTER answers SLAVE_NOT_AVAILABLE at once."""
    slave_timeout: int = _setting(3_000, 1)  # after which a SYNC_MASTER answers FLUSH_SLAVE_TIMEOUT
    in_sync_replicas: int | None = _setting(None, 1, 100)
    """5.x: copies that a SYNC_MASTER waits for, its own included. None: as 4.9.4, one slave."""
    offset_check_in_slave: bool = False  # slaves correct offsets of pulls outside a queue, as masters do

    flush_disk_type: str = _setting("ASYNC_FLUSH", important=True)  # or SYNC_FLUSH
    sync_flush_timeout: int = _setting(5_000, 1)
    flush_interval_commit_log: int = _setting(500, 1, important=True)
    flush_commit_log_least_pages: int = _setting(4, 0)
    flush_commit_log_thorough_interval: int = _setting(10_000, 0)
    flush_interval_consume_queue: int = _setting(1_000, 1)
    flush_consume_queue_least_pages: int = _setting(2, 0)
    flush_consume_queue_thorough_interval: int = _setting(60_000, 0)
    warm_maped_file_enable: bool = False  # write the next log file to the disk as zeros in advance
    flush_least_pages_when_warm_maped_file: int = _setting(4096, 1)  # of 4 KiB, written at once

    mapped_file_open_max: int = _setting(0, 0)  # own key; 0: as many as the kernel allows (`open_files`)
    mapped_memory_resident_max: int = _setting(128 << 20, 0)  # own key: above it pages of mapped files are released
    lock_mapped_file_enable: bool = False  # own key: lock the current log file in memory (RLIMIT_MEMLOCK)
    data_read_ahead_enable: bool = True  # 5.x: let the kernel read ahead in the log

    check_crc_on_recover: bool = _setting(True, key="checkCRCOnRecover")
    file_reserved_time: int = _setting(72, 0, _INT_MAX, important=True)  # hours
    delete_when: str = _setting("04", important=True)  # hours of the day, separated by semicolons
    disk_max_used_space_ratio: int = _setting(75, 0, 100)  # percent, clamped to 10..95
    disk_space_clean_forcibly_ratio: int = _setting(85, 1, 100)  # 5.x keys; 4.9.4 takes both from system properties
    disk_space_warning_level_ratio: int = _setting(90, 1, 100)
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = _setting(10_000, 1)
    delete_file_batch_max: int = _setting(10, 1)
    delete_commit_log_files_interval: int = _setting(100, 0)  # between two files
    redelete_hanged_file_interval: int = _setting(120_000, 1)  # until a failed deletion is retried

    os_page_cache_busy_time_out_mills: int = _setting(3_000, 1)
    """Sends that had to wait for a slower put are refused. Apache's default is 1000."""

    max_transfer_bytes_on_message_in_memory: int = _setting(256 << 10, 1, _INT_MAX, important=True)
    max_transfer_count_on_message_in_memory: int = _setting(32, 1, _INT_MAX, important=True)
    max_transfer_bytes_on_message_in_disk: int = _setting(64 << 10, 1, _INT_MAX, important=True)
    max_transfer_count_on_message_in_disk: int = _setting(8, 1, _INT_MAX, important=True)
    access_message_in_memory_max_ratio: int = _setting(40, 0, 100, important=True)  # percent of the machine's memory

    message_index_enable: bool = _setting(True, important=True)
    max_hash_slot_num: int = _setting(5_000_000, 1, _INT_MAX // 4)
    max_index_num: int = _setting(20_000_000, 2, _INT_MAX // 20)
    max_msgs_num_batch: int = _setting(64, 1, _INT_MAX)
    default_query_max_num: int = _setting(32, 1, _INT_MAX)

    timer_wheel_enable: bool = True  # 5.x keys up to append_topic_for_timer_delete_key
    timer_precision_ms: int = _setting(1000, 1)
    timer_max_delay_sec: int = 400 * 86_400  # Apache's default is 3 days
    timer_congest_num_each_slot: int = (1 << 31) - 1
    timer_roll_window_slot: int = _setting(172_800, 2)
    timer_flush_interval_ms: int = _setting(1000, 1)
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    mapped_file_size_timer_log: int = _setting(100 << 20, 68, _INT_MAX)  # at least a unit of 52 bytes and a blank of 16
    append_topic_for_timer_delete_key: bool = False

    message_delay_level: str = DEFAULT_MESSAGE_DELAY_LEVEL
    flush_delay_offset_interval: int = _setting(10_000, 1)

    def __post_init__(self) -> None:
        # As in Apache: a file contains whole units.
        self.mapped_file_size_consume_queue += -self.mapped_file_size_consume_queue % _UNIT_SIZE

    @property
    def commit_log_directories(self) -> tuple[str, ...]:
        """Folders that may have files of the CommitLog, in configured order."""
        paths = _split(self.store_path_commit_log) or (self.store_path("commitlog"),)
        return tuple(dict.fromkeys((*paths, *self.read_only_commit_log_directories)))

    @property
    def read_only_commit_log_directories(self) -> tuple[str, ...]:
        """Those of `commit_log_directories` in which no new file is created."""
        return _split(self.read_only_commit_log_store_paths)

    @property
    def commit_log_directory(self) -> str:
        return self.commit_log_directories[0]

    @property
    def is_slave(self) -> bool:
        """Return whether the log is a copy of a master's: it takes no messages."""
        return self.broker_role == "SLAVE"

    @property
    def is_sync_master(self) -> bool:
        """Return whether answers to sends wait for slaves."""
        return self.broker_role == "SYNC_MASTER"

    def store_path(self, name: str) -> str:
        """Return the path of a file or folder under the root."""
        return f"{self.store_path_root_dir}/{name}"


def _split(paths: str) -> tuple[str, ...]:
    return tuple(path.strip().rstrip("/") for path in paths.split(",") if path.strip())
