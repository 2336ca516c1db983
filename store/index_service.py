"""The index files of a store: from `topic#key` to the physical offsets of the records that carry the key.

Only the newest file is written. When it is full a new one takes over, and the full one waits for the flush thread: once it
is on disk the checkpoint's index time says so. The unfinished file is synced at a clean stop only, hence after a crash only
the full files that the checkpoint vouches for are kept, and `indexed_to` tells recovery from which physical offset on the
log has to be indexed again. (Apache re-indexes only what its log scan happens to touch, and loses the rest.)
"""

import time
from collections.abc import Iterable
from typing import Final

from runtime.clock import Clock
from store.disk import Disk, StoreError
from store.index_file import IndexFile, Place, index_file_size
from store.key_hash import key_hashes
from store.message import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK, DispatchRequest
from store.store_checkpoint import StoreCheckpoint

_FILE_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


class IndexService:
    """The index as a whole. All but `flush_full` belongs to the thread that dispatches."""

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
        """`slot_count` is maxHashSlotNum, `index_count_max` maxIndexNum: a file takes one entry less than that."""
        if slot_count < 1 or index_count_max < 2:
            raise ValueError(f"maxHashSlotNum={slot_count} must be >= 1 and maxIndexNum={index_count_max} >= 2")
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._checkpoint = checkpoint
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self._files: list[IndexFile] = []
        self._unflushed: list[IndexFile] = []

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self, *, clean: bool) -> None:
        """Open the files that are there. Without a clean stop those that may be incomplete are deleted.

        Raises StoreError for a file of another size than configured.
        """
        size = index_file_size(self._slot_count, self._index_count_max)
        for name in self._disk.listdir(self._folder):
            if len(name) != _FILE_NAME_DIGITS or not name.isdigit():
                continue
            path = f"{self._folder}/{name}"
            found = self._disk.size(path)
            if found != size:
                if not clean:
                    self._disk.delete(path)
                    continue
                raise StoreError(
                    f"index file {path} has {found} bytes, but maxHashSlotNum={self._slot_count} and "
                    f"maxIndexNum={self._index_count_max} ask for {size}: set the two as they were"
                )
            self._files.append(IndexFile(self._disk, path, self._slot_count, self._index_count_max))
        if not clean:
            self._keep_vouched()

    def _keep_vouched(self) -> None:
        """After a crash: keep the files that are known to be whole, and remove all from the first doubtful one on.

        Whole is a full file that ends at or before the checkpoint's index time. A lost header sector reads as zeros or as an
        earlier, unfinished state. Of several files that end in the same ms the checkpoint vouches for the first only.
        """
        files, kept, newest_ms = self._files, 0, 0
        for file in files:
            if not (file.full and newest_ms < file.end_timestamp_ms <= self._checkpoint.index_msg_timestamp_ms):
                break
            newest_ms = file.end_timestamp_ms
            kept += 1
        for file in files[kept:]:
            self._remove(file)
        self._vouch()

    def _vouch(self) -> None:
        """After files were removed: let the checkpoint vouch for those that are left, which are synced, and no more.

        What is indexed again has old times: it would pass for durable before it is.
        """
        full_ms = max((file.end_timestamp_ms for file in self._files if file.full), default=0)
        if self._checkpoint.index_msg_timestamp_ms > full_ms:
            self._checkpoint.index_msg_timestamp_ms = full_ms
            self._checkpoint.flush()

    @property
    def indexed_to(self) -> int:
        """Physical offset of the newest record in the index; records before it are never indexed again. 0 without one."""
        return self._files[-1].end_physical_offset if self._files else 0

    def truncate(self, physical_offset: int) -> None:
        """Drop the files that know of records at or beyond `physical_offset`: the log now ends there. Raises OSError."""
        while self._files and self._files[-1].end_physical_offset >= physical_offset:
            self._remove(self._files[-1])
        self._vouch()

    def delete_below(self, physical_offset: int) -> int:
        """Delete the files whose records are all gone from the log, never the newest file; how many were deleted."""
        expired = [file for file in self._files[:-1] if file.end_physical_offset < physical_offset]
        for file in expired:
            self._remove(file)
        return len(expired)

    def flush_full(self) -> None:
        """Sync the files that filled up and tell the checkpoint. For the flush thread. Raises OSError."""
        for file in tuple(self._unflushed):
            file.flush()
            self._checkpoint.index_msg_timestamp_ms = file.end_timestamp_ms
            self._checkpoint.flush()
            if file in self._unflushed:
                self._unflushed.remove(file)

    def close(self) -> None:
        """Sync all, let the checkpoint (which the caller closes) vouch for the full files, and close. Raises OSError."""
        for file in self._files:
            file.flush()
            if file.full:
                self._checkpoint.index_msg_timestamp_ms = file.end_timestamp_ms
        for file in self._files:
            file.close()
        self._files, self._unflushed = [], []

    def destroy(self) -> None:
        """Delete every file."""
        for file in tuple(self._files):
            self._remove(file)
        self._vouch()

    def _remove(self, file: IndexFile) -> None:
        self._files.remove(file)
        if file in self._unflushed:
            self._unflushed.remove(file)
        file.destroy()

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Index the keys of records that come in the log's order. Raises OSError when a new file cannot be made.

        Measured with 5 million slots, two keys a record, in us a key: 2.8 in a dispatch of 2, 1.5 of 16, 1.1 of 64.
        """
        keys: list[str] = []
        places: list[Place] = []
        indexed_to = self.indexed_to
        for request in requests:
            physical_offset = request.physical_offset
            if physical_offset < indexed_to or request.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE:
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

    def _put_hashes(self, hashes: list[int], places: list[Place]) -> None:
        while hashes:
            taken = self._writable().put_keys(hashes, places)
            if taken == len(hashes):
                return
            hashes, places = hashes[taken:], places[taken:]

    def _writable(self) -> IndexFile:
        if self._files and not self._files[-1].full:
            return self._files[-1]
        after = self._files[-1] if self._files else None
        file = IndexFile(self._disk, self._next_path(), self._slot_count, self._index_count_max, after=after)
        self._disk.sync_dir(self._folder)
        self._files.append(file)
        if after is not None:
            self._unflushed.append(after)
        return file

    def _next_path(self) -> str:
        now_ms = self._clock.message_time_ms()
        newest = self._files[-1].path.rpartition("/")[2] if self._files else ""
        while True:
            name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03}"
            # The order of the names is the order of the files, even when two fill up in one ms or the clock went back.
            if name > newest:
                return f"{self._folder}/{name}"
            if newest[:14] > name[:14]:
                return f"{self._folder}/{int(newest) + 1:017}"
            now_ms += 1

    # --- reading ----------------------------------------------------------------------------------------------------

    def find(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of records under `topic#key` stored in [begin_ms, end_ms], ascending.

        Of more than `count_max` the newest are taken. Strangers with the same hash are among them, and a record that was
        indexed twice after a crash comes twice: as in Apache's answer, readers must look at the record's own keys.
        """
        if not key:
            return []
        (key_hash,) = key_hashes((f"{topic}#{key}",))
        found: list[int] = []
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                found += file.find(key_hash, count_max - len(found), begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms or len(found) >= count_max:
                break
        return sorted(found)

    @property
    def last_update(self) -> tuple[int, int]:
        """(store time in ms, physical offset) of the newest indexed record; zeros without one."""
        if not self._files:
            return 0, 0
        return self._files[-1].end_timestamp_ms, self._files[-1].end_physical_offset
