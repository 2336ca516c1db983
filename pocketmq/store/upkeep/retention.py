"""Retention: deletion of old files, and refusal of messages on a full disk.

It corresponds to Java's CleanCommitLogService and CleanConsumeQueueService. A CommitLog file expires `fileReservedTime`
after its last message. Apache uses the file's modification time for that; here it is the store time of the next file's first
record, which is never earlier, seldom much later, survives a copy of the store and uses the broker's clock. The last file is
never deleted. Expired files are deleted at the hours of `deleteWhen`, if a disk is fuller than `diskMaxUsedSpaceRatio`, or
on request. Above `diskSpaceCleanForciblyRatio` the oldest files are deleted even if not expired, and above
`diskSpaceWarningLevelRatio` messages are refused. If the log is on several disks, the emptiest one counts.

The loop only removes files from the log's sequence. The checkpoint thread deletes them (`delete_removed`), oldest first, so
that there is never a gap.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.record import BadRecordError, check_record, store_timestamp_of
from pocketmq.store.parts import StoreParts

log = logging.getLogger("store")

_HOUR_MS = 3_600_000
# Number of rounds for which a manual request is valid, as each round deletes at most `deleteFileBatchMax` files.
_MANUAL_ROUNDS = 20


class Retention:
    """Retention of log files, queue files and index files.

    All methods except `delete_removed` may only be called by the event loop.
    """

    def __init__(self, store: StoreParts) -> None:
        self._store = store
        self._manual_rounds = 0
        self._is_full = False
        # Min offset of the log up to which queues and index have been deleted.
        self._deleted_below = 0
        self._is_deleting = self._is_closed = False
        self._removed: deque[MappedFile] = deque()
        self._delete_due = store.clock.monotonic()
        # Called with a file's end offset before it is removed; returns whether its contents are no longer needed.
        self.may_remove: Callable[[int], bool] = lambda end_offset: True
        # Does work in steps. There may be tens of thousands of queues.
        self.run: Callable[[Iterator[None]], object] = lambda steps: deque(steps, maxlen=0)

    def clean(self, manual: bool = False) -> int:
        """Check the disks and remove files that are due. Return the number of CommitLog files. Raises OSError."""
        if manual:
            self._manual_rounds = _MANUAL_ROUNDS
        removed = self._remove_log_files(self._look_at_disks())
        min_offset = self._store.commit_log.min_offset
        # Compared this way, so that a round that failed or was interrupted by a crash is completed by the next.
        if min_offset > self._deleted_below and not self._is_deleting:
            self._is_deleting = True
            self.run(self._deleting_below(min_offset))
        return removed

    def _deleting_below(self, min_offset: int) -> Iterator[None]:
        """Delete of queues and index what belongs to removed log files, in steps."""
        try:
            for _ in self._store.queues.deleting_below(min_offset):
                yield
                if self._is_closed:
                    return
            if self._store.index is not None:
                self._store.index.delete_below(min_offset)
            self._deleted_below = min_offset
        finally:
            self._is_deleting = False

    def _look_at_disks(self) -> float:
        """Refuse or accept messages. Return the used fraction (0 to 1) of the disk that counts."""
        limit, reason = self._store.config.disk_space_warning_level_ratio, None
        queues_path = self._store.config.store_path("consumequeue")
        emptiest = min((self._store.disk.usage(path), path) for path in self._store.config.commit_log_directories)
        used, path = max(emptiest, (self._store.disk.usage(queues_path), queues_path))
        if used * 100 > limit:
            reason = f"disk full: the file system of {path} is {used:.1%} full, diskSpaceWarningLevelRatio allows {limit}%"
        self._is_full = reason is not None
        self._store.commit_log.refuse("disk full", reason)
        return used

    @property
    def delete_interval_s(self) -> float:
        """Longest time until `delete_removed` should be called."""
        return self._store.config.delete_commit_log_files_interval / 1000 if self._removed else 60.0

    def delete_removed(self) -> None:
        """Delete the next removed file if it is due, and accept messages again once there is space.

        Called by the checkpoint thread. Raises OSError if the deletion cannot be made durable.
        """
        now = self._store.clock.monotonic()
        if self._removed and now >= self._delete_due:
            self._delete_due = now + self._store.config.delete_commit_log_files_interval / 1000
            if (error := self._delete_next()) is not None:
                self._delete_due = now + self._store.config.redelete_hanged_file_interval / 1000
                log.warning("a CommitLog file cannot be deleted: %s; trying again", error)
        if self._is_full:
            with suppress(OSError):
                self._look_at_disks()

    def delete_all_removed(self) -> None:
        """Delete all removed files, so that the next start does not find them, and end the work on queues.

        Raises OSError like `delete_removed`.
        """
        self._is_closed = True
        while self._removed:
            if (error := self._delete_next()) is not None:
                log.warning("a CommitLog file cannot be deleted: %s", error)
                return

    def _delete_next(self) -> OSError | None:
        """Delete the oldest removed file, or return why that fails, which has no further consequences. Raises OSError."""
        files = self._store.commit_log.mapped_files
        try:
            files.delete(self._removed[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            return error
        self._removed.popleft()
        # Synced one by one: of several unsynced deletions a power cut may undo any, which could leave a gap in the log.
        files.sync_names()
        return None

    def _remove_log_files(self, used: float) -> int:
        config = self._store.config
        manual = self._manual_rounds > 0
        self._manual_rounds = max(self._manual_rounds - 1, 0)
        too_full = used * 100 > min(max(config.disk_max_used_space_ratio, 10), 95)
        if not (manual or too_full or self._is_time_to_delete()):
            return 0
        at_once = config.clean_file_forcibly_enable and used * 100 > config.disk_space_clean_forcibly_ratio
        expired_before_ms = self._store.clock.message_time_ms() - config.file_reserved_time * _HOUR_MS
        files = self._store.commit_log.mapped_files
        removed = 0
        while len(files.files) > 1 and removed < config.delete_file_batch_max:
            # After a power cut an unsynced file could reappear with missing data, which would look like the log's end.
            if files.files[0].flushed < files.file_size:
                break
            if not at_once and self._last_message_ms() > expired_before_ms:
                break
            if not self.may_remove(files.files[0].start_offset + files.file_size):
                break
            self._removed.append(files.take_first())
            removed += 1
        return removed

    def _last_message_ms(self) -> int:
        """Return a time in ms at which the first file was certainly complete."""
        following = self._store.commit_log.mapped_files.files[1]
        try:
            check_record(following.view[: following.wrote], 0, following.start_offset, check_crc=False)
        except BadRecordError:
            # Just created and empty, so the file before it is new.
            return self._store.clock.message_time_ms()
        return store_timestamp_of(following.view)

    def _is_time_to_delete(self) -> bool:
        hour = time.localtime(self._store.clock.message_time_ms() / 1000).tm_hour
        return hour in {int(text) for text in self._store.config.delete_when.split(";") if text.strip().isdecimal()}
