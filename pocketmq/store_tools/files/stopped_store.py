"""Opening of a store for writing by a tool, with the sizes of its files, and only if no broker uses it."""

from pocketmq.runtime.clock import Clock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.index_files import index_files
from pocketmq.store.offline.queue_files import ext_row
from pocketmq.store_tools.files.store_files import StoreFiles

# maxMessageSize of a broker does not apply here.
_BODY_SIZE_MAX = (1 << 31) - 1


def stopped_store(root: str, files: StoreFiles | None, clock: Clock, delay_levels: str | None = None) -> MessageStore:
    """Return the store, not yet loaded. `files` None: the store does not exist yet, Apache's defaults are used.

    Raises StoreError if a broker is running on it, or the sizes of its files are inconsistent.
    """
    try:
        DelayLevels(delay_levels or DEFAULT_MESSAGE_DELAY_LEVEL)
    except ValueError as error:
        raise StoreError(str(error)) from None
    config = MessageStoreConfig(
        store_path_root_dir=root,
        max_message_size=_BODY_SIZE_MAX,
        message_delay_level=delay_levels or DEFAULT_MESSAGE_DELAY_LEVEL,
    )
    if files is not None:
        if files.is_running():
            raise StoreError(f"a broker is running on {root} (its file `lock` is locked): stop it first")
        _take_sizes(config, files)
    return MessageStore(config, FileDisk(), clock)


def _take_sizes(config: MessageStoreConfig, files: StoreFiles) -> None:
    if files.commit_log_folder != files.path("commitlog"):
        config.store_path_commit_log = files.commit_log_folder
    if files.log.files:
        config.mapped_file_size_commit_log = files.log.file_size
    keys = files.queue_keys()
    sizes = {size for key in keys if (size := files.queue_row(key).file_size)}
    if len(sizes) > 1:
        raise StoreError(
            f"queues have files of different sizes, {sorted(sizes)}: delete those of the wrong size, then repair"
        )
    for size in sizes:
        config.mapped_file_size_consume_queue = size // CONSUME_QUEUE_UNIT_SIZE * CONSUME_QUEUE_UNIT_SIZE
    ext_sizes = {size for key in keys if (size := ext_row(files, key).file_size)}
    for size in ext_sizes:
        config.enable_consume_queue_ext = True
        config.mapped_file_size_consume_queue_ext = size
    config.enable_multi_dispatch = True
    config.enable_lmq = any(topic.startswith("%LMQ%") for topic, _ in keys)
    index = next(index_files(files), None)
    if index is not None:
        config.max_hash_slot_num, config.max_index_num = index.slot_count, index.entry_count_max
