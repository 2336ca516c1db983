"""Which files go, and when a disk is too full to go on (Java's CleanCommitLogService and CleanConsumeQueueService).

A CommitLog file is expired when `fileReservedTime` has passed since its last message. Apache asks the file's modification
time for that; here it is the store time of the next file's first record: never earlier, seldom much later, it survives a
copy of the store and is told by the same clock as everything else. The last file is never deleted. Expired files go at the
hours of `deleteWhen`, when a disk is fuller than `diskMaxUsedSpaceRatio`, or on request; above
`diskSpaceCleanForciblyRatio` the oldest go even if they are not expired, and above `diskSpaceWarningLevelRatio` nothing is
stored any more.
"""

import time

from runtime.clock import Clock
from store.commit_log import CommitLog
from store.config import MessageStoreConfig
from store.consume_queue_store import ConsumeQueueStore
from store.disk import Disk
from store.index_service import IndexService
from store.record import BadRecordError, check_record, store_timestamp_of

_HOUR_MS = 3_600_000
# A manual request holds for so many rounds, in case the first deletes only its `deleteFileBatchMax`.
_MANUAL_ROUNDS = 20


class Retention:
    """`disk_full` is why nothing may be stored, or None; it is looked at anew in each round."""

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: Disk,
        clock: Clock,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
    ) -> None:
        self.disk_full: str | None = None
        self._config = config
        self._disk = disk
        self._clock = clock
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._manual_rounds = 0

    def clean(self, manual: bool = False) -> int:
        """One round: look at the disks and delete what is due; how many CommitLog files were deleted."""
        if manual:
            self._manual_rounds = _MANUAL_ROUNDS
        usages = self._usages()
        self._note_disk_full(usages)
        deleted = self._delete_log_files(max(used for _, used in usages))
        if deleted:
            min_offset = self._commit_log.min_offset
            self._queues.delete_below(min_offset)
            if self._index is not None:
                self._index.delete_below(min_offset)
            # Room may be there again already.
            self._note_disk_full(self._usages())
        return deleted

    def _usages(self) -> list[tuple[str, float]]:
        paths = dict.fromkeys((self._config.commit_log_directory, self._config.store_path("consumequeue")))
        return [(path, self._disk.usage(path)) for path in paths]

    def _note_disk_full(self, usages: list[tuple[str, float]]) -> None:
        limit = self._config.disk_space_warning_level_ratio
        self.disk_full = None
        for path, used in usages:
            if used * 100 > limit:
                self.disk_full = (
                    f"disk full: the file system of {path} is used to {used:.1%}, diskSpaceWarningLevelRatio allows {limit}%"
                )

    def _delete_log_files(self, used: float) -> int:
        config = self._config
        manual = self._manual_rounds > 0
        self._manual_rounds = max(self._manual_rounds - 1, 0)
        too_full = used * 100 > min(max(config.disk_max_used_space_ratio, 10), 95)
        if not (manual or too_full or self._is_time_to_delete()):
            return 0
        at_once = config.clean_file_forcibly_enable and used * 100 > config.disk_space_clean_forcibly_ratio
        expired_before_ms = self._clock.message_time_ms() - config.file_reserved_time * _HOUR_MS
        files = self._commit_log.mapped_files
        deleted = 0
        while len(files.files) > 1 and deleted < config.delete_file_batch_max:
            if not at_once and self._last_message_ms() > expired_before_ms:
                break
            files.delete_first()
            deleted += 1
        return deleted

    def _last_message_ms(self) -> int:
        """When the first file was surely complete."""
        following = self._commit_log.mapped_files.files[1]
        try:
            check_record(following.view[: following.wrote], 0, following.start_offset, check_crc=False)
        except BadRecordError:
            # Just created, nothing in it yet: the file before is as young as can be.
            return self._clock.message_time_ms()
        return store_timestamp_of(following.view)

    def _is_time_to_delete(self) -> bool:
        hour = time.localtime(self._clock.message_time_ms() / 1000).tm_hour
        return hour in {int(text) for text in self._config.delete_when.split(";") if text.strip().isdecimal()}
