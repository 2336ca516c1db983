"""IndexService: the index files of a store, which map `topic#key` to the physical offsets of records with that key.

Only the newest file is written. When it is full, a new one is begun, and the checkpoint thread syncs both. After a crash all
entries covered by the checkpoint's index time are kept, including those of the unfinished file. (Apache deletes that file,
re-indexes only what its log scan reads, and loses the rest.)
"""

import time
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.runtime.clock import Clock
from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.message import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK, DispatchRequest
from pocketmq.store.index.index_file import IndexFile, Place, index_file_size

_FILE_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


class IndexService:
    """All index files of a store. Only the flush and release methods may be called by another thread."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        clock: Clock,
        checkpoint: StoreCheckpoint,
        *,
        slot_count: int = 5_000_000,
        index_count_max: int = 20_000_000,
    ) -> None:
        """`slot_count` is maxHashSlotNum, `index_count_max` maxIndexNum; a file has one entry less than that."""
        if slot_count < 1 or index_count_max < 2:
            raise ValueError(f"maxHashSlotNum={slot_count} must be >= 1 and maxIndexNum={index_count_max} >= 2")
        self._disk = disk
        self.folder = folder
        self.file_size = index_file_size(slot_count, index_count_max)
        self._clock = clock
        self._checkpoint = checkpoint
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self.files: list[IndexFile] = []
        self._unflushed: list[IndexFile] = []
        # Whether files were created or deleted without a sync of the folder.
        self._names_changed = False
        # Records before this physical offset are in the index with all their keys.
        self._known_to = 0

    # --- lifecycle---------------------------------------------------------------------------------------------------

    def load(self, *, clean: bool) -> None:
        """Open the existing files. After an unclean stop files of a wrong size are deleted, and `recover` must follow.

        Raises StoreError after a clean stop if a file has a different size than configured.
        """
        size = self.file_size
        for name in self._disk.listdir(self.folder):
            if len(name) != _FILE_NAME_DIGITS or not name.isdigit():
                continue
            path = f"{self.folder}/{name}"
            found = self._disk.size(path)
            if found == size:
                file = IndexFile(self._disk, path, self._slot_count, self._index_count_max)
                if clean and file.is_empty:
                    # Left by a failed attempt. It has no time and would end each search.
                    file.destroy()
                else:
                    self.files.append(file)
            elif clean and found:
                raise StoreError(
                    f"index file {path} has {found} bytes, but maxHashSlotNum={self._slot_count} and "
                    f"maxIndexNum={self._index_count_max} require {size}: restore the previous values"
                )
            else:
                self._disk.delete(path)
        if clean and self.files:
            self._known_to = self.indexed_to + 1

    def recover(self, trusted_to: int) -> int:
        """Keep the entries of records below the physical offset `trusted_to`, which are known to be on the disk.

        Called after a crash. Returns the physical offset from which the log must be indexed again: `trusted_to`, or less if
        files are lost or damaged. The loss of a whole file is not detected here. Raises OSError.
        """
        self._known_to = trusted_to
        for number, file in enumerate(self.files):
            kept = file.truncate(trusted_to)
            if kept and file.full:
                continue
            doubtful = self.files[number + kept :]
            lost = any(other.has_below(trusted_to) for other in doubtful)
            for other in doubtful:
                self._remove(other)
            if lost:
                # The newest record is indexed again: some of its keys may have been in a lost file.
                self._known_to = self.indexed_to
                self._truncate(self.indexed_to)
            break
        self._limit_checkpoint()
        return self._known_to

    def _limit_checkpoint(self) -> None:
        """Reduce the checkpoint's index time to the remaining entries, which are synced.

        Called after entries were removed: entries indexed again have old times and would count as durable too early.
        """
        newest_ms = self.files[-1].end_timestamp_ms if self.files else 0
        if self._checkpoint.index_msg_timestamp_ms > newest_ms:
            self._checkpoint.index_msg_timestamp_ms = newest_ms
            self._checkpoint.flush()

    @property
    def indexed_to(self) -> int:
        """Physical offset of the newest record in the index, or 0."""
        return self.files[-1].end_physical_offset if self.files else 0

    def truncate(self, physical_offset: int) -> None:
        """Drop the records at or beyond `physical_offset`, where the log now ends. Raises OSError."""
        self._truncate(physical_offset)
        self._known_to = min(self._known_to, physical_offset)
        self._limit_checkpoint()

    def _truncate(self, physical_offset: int) -> None:
        while self.files and self.files[-1].end_physical_offset >= physical_offset:
            if self.files[-1].truncate(physical_offset):
                break
            self._remove(self.files[-1])

    def delete_below(self, physical_offset: int) -> int:
        """Delete the files whose records are all gone from the log, except the newest. Return the number of files."""
        expired = [file for file in self.files[:-1] if file.end_physical_offset < physical_offset]
        for file in expired:
            self._remove(file)
        return len(expired)

    def flush_full(self) -> None:
        """Sync newly full files and update the checkpoint. Called by the checkpoint thread. Raises OSError."""
        self._sync_names()
        for file in tuple(self._unflushed):
            file.flush()
            if self._checkpoint.index_msg_timestamp_ms < file.end_timestamp_ms:
                self._checkpoint.index_msg_timestamp_ms = file.end_timestamp_ms
                self._checkpoint.flush()
            if file in self._unflushed:
                self._unflushed.remove(file)

    def flush_current(self) -> int:
        """Sync all files including the unfinished one; safe while another thread calls `put`. Raises OSError.

        Returns a store time in ms for the checkpoint: the entries of all records *before* it are on the disk; 0 without any.
        (At an unclean start Apache deletes index files that end later than the checkpoint, so it keeps an unfinished one
        only if nothing was added after the last call.)
        """
        file = self.files[-1] if self.files else None
        # Read before the sync: entries added during the sync are not covered.
        newest_ms = file.end_timestamp_ms if file is not None else 0
        self.flush_full()
        if file is not None:
            file.flush()
        return newest_ms

    def release_memory(self) -> None:
        """Remove the pages of all files from the resident set. May be called by the checkpoint thread."""
        for file in tuple(self.files):
            file.release_memory()

    def flush(self) -> None:
        """Sync all files. Raises OSError."""
        self._sync_names()
        for file in tuple(self.files):
            file.flush()

    def close(self) -> None:
        """Sync and close all files, and set the checkpoint's time for full ones; the caller closes it. Raises OSError."""
        self.flush()
        for file in self.files:
            if file.full:
                self._checkpoint.index_msg_timestamp_ms = max(self._checkpoint.index_msg_timestamp_ms, file.end_timestamp_ms)
            file.close()
        self.files, self._unflushed = [], []

    def _sync_names(self) -> None:
        if self._names_changed:
            # Cleared before the sync, as a file created during the sync sets it again.
            self._names_changed = False
            self._disk.sync_dir(self.folder)

    def destroy(self) -> None:
        """Delete every file."""
        for file in tuple(self.files):
            self._remove(file)
        self._known_to = 0
        self._limit_checkpoint()

    def _remove(self, file: IndexFile) -> None:
        self.files.remove(file)
        if file in self._unflushed:
            self._unflushed.remove(file)
        self._names_changed = True
        file.destroy()

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Index the keys of records, given in log order. Raises OSError if a new file cannot be created."""
        keys: list[str] = []
        places: list[Place] = []
        known_to = self._known_to
        for request in requests:
            physical_offset = request.physical_offset
            if physical_offset < known_to or request.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE:
                continue
            topic, uniq_key, tokens = request.topic, request.uniq_key, request.keys
            place = (physical_offset, request.store_timestamp_ms)
            if uniq_key:
                keys.append(f"{topic}#{uniq_key}")
                places.append(place)
            if tokens:
                for token in tokens.split(" ") if " " in tokens else (tokens,):
                    if token:
                        keys.append(f"{topic}#{token}")
                        places.append(place)
        if keys:
            self._put_hashes(key_hashes(keys), places)
            self._known_to = places[-1][0] + 1

    def _put_hashes(self, hashes: list[int], places: list[Place]) -> None:
        while hashes:
            taken = self._writable().put_keys(hashes, places)
            if taken == len(hashes):
                return
            hashes, places = hashes[taken:], places[taken:]

    def units_put(self) -> None:
        """Note that the compiled lane has put keys of its records into the newest file."""
        self._known_to = max(self._known_to, self.files[-1].end_physical_offset + 1)

    def put_many(
        self,
        hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps_ms: npt.NDArray[np.int64],
    ) -> int:
        """Index entries with hashed keys, given in log order. Return how many were new. Raises OSError."""
        known = int(np.searchsorted(physical_offsets, self._known_to))
        start = known
        while start < len(hashes):
            start += self._writable().put_many(hashes[start:], physical_offsets[start:], store_timestamps_ms[start:])
        if start > known:
            self._known_to = int(physical_offsets[-1]) + 1
        return start - known

    def _writable(self) -> IndexFile:
        if self.files and not self.files[-1].full:
            return self.files[-1]
        after = self.files[-1] if self.files else None
        file = IndexFile(self._disk, self._next_path(), self._slot_count, self._index_count_max, after=after)
        self._names_changed = True
        if after is not None:
            # Before `files`: otherwise the checkpoint thread could sync the new file while the full one is not synced.
            self._unflushed.append(after)
        self.files.append(file)
        return file

    def _next_path(self) -> str:
        now_ms = self._clock.message_time_ms()
        newest = self.files[-1].path.rpartition("/")[2] if self.files else ""
        while True:
            name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03}"
            # Names must ascend, even if two files fill up within one ms or the clock was set back.
            if name > newest:
                return f"{self.folder}/{name}"
            if newest[:14] > name[:14]:
                return f"{self.folder}/{int(newest) + 1:017}"
            now_ms += 1

    # --- reading ----------------------------------------------------------------------------------------------------

    def find(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the physical offsets of records for `topic#key` stored in [begin_ms, end_ms], ascending.

        Of more than `count_max` the newest are returned. Records of other keys with the same hash may be included, and a
        record indexed twice after a crash twice. As in Apache, callers must check the record's own keys.
        """
        if not key:
            return []
        (key_hash,) = key_hashes((f"{topic}#{key}",))
        found: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                found += file.find(key_hash, count_max - len(found), begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms or len(found) >= count_max:
                break
        return sorted(found)

    @property
    def last_update(self) -> tuple[int, int]:
        """(store time in ms, physical offset) of the newest indexed record, or zeros."""
        if not self.files:
            return 0, 0
        return self.files[-1].end_timestamp_ms, self.files[-1].end_physical_offset
