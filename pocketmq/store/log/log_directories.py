"""Choice of the folder for a new CommitLog file if the log is spread over several folders."""

from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk


def directory_for(config: MessageStoreConfig, disk: Disk, start_offset: int) -> str:
    """Return the next of the folders that are not nearly full, in turn, as Java's MultiPathMappedFileQueue does."""
    writable = sorted(set(config.commit_log_directories) - set(config.read_only_commit_log_directories))
    limit = config.disk_space_clean_forcibly_ratio / 100
    usable = [path for path in writable if disk.usage(path) <= limit] or writable
    return usable[start_offset // config.mapped_file_size_commit_log % len(usable)]
