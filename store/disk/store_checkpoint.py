"""The `checkpoint` file: up to which store time each kind of file is known to be on disk.

After a crash it tells recovery where to begin: nothing that is older than `min_timestamp_ms` needs a second look. 5.x keeps
two more numbers in it; they are carried over as they were found, so that a 5.x broker may come back to its store. It is a
hint: one that is missing, cut or wrong costs time and nothing else.

A hint that is too late would cost messages of queues, so what we write has a seal, with a copy of the numbers, in the part
of the page that Apache's brokers neither read nor write. They go on with the numbers alone; so do their checkpoints.
"""

from typing import Final

from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.layout import (
    CHECKPOINT_FILE_SIZE,
    CHECKPOINT_SEAL_POSITION,
    CHECKPOINT_SEAL_STRUCT,
    CHECKPOINT_SIZE,
    CHECKPOINT_STRUCT,
)

# The stamps are taken beside the syncs, not with them: recovery begins this much earlier (StoreCheckpoint.getMinTimestamp).
_MARGIN_MS = 3000
_SEAL_HEAD: Final = 0x504D5143 << 32
# Damage changes few bits, another broker many.
_FLIPPED_MAX: Final = 2
_NONE: Final = bytes(CHECKPOINT_SIZE)


def _seal_of(numbers: bytes) -> int:
    return _SEAL_HEAD | crc32(numbers)


def believed(page: bytes) -> tuple[bytes, str]:
    """The numbers in a checkpoint's page that may be believed, as they are stored, and what is wrong ("": nothing)."""
    if len(page) != CHECKPOINT_FILE_SIZE:
        return _NONE, f"the checkpoint has {len(page)} bytes, {CHECKPOINT_FILE_SIZE} are right"
    numbers, end = page[:CHECKPOINT_SIZE], CHECKPOINT_SEAL_POSITION + CHECKPOINT_SEAL_STRUCT.size
    sealed = page[CHECKPOINT_SEAL_POSITION:end]
    if not any(sealed):
        return numbers, ""  # another broker's
    copy, seal = sealed[:CHECKPOINT_SIZE], int.from_bytes(sealed[CHECKPOINT_SIZE:], "big")
    if _seal_of(numbers) == seal:
        return numbers, "" if copy == numbers else "the copy in the checkpoint's seal is damaged; the numbers are not"
    if copy == numbers:
        return numbers, "the checkpoint's seal is damaged; the numbers and their copy are not"
    if _seal_of(copy) == seal:
        if (int.from_bytes(numbers, "big") ^ int.from_bytes(copy, "big")).bit_count() <= _FLIPPED_MAX:
            return copy, "a number in the checkpoint is damaged: its copy in the seal is right"
        pairs = zip(CHECKPOINT_STRUCT.unpack(copy)[:3], CHECKPOINT_STRUCT.unpack(numbers)[:3], strict=True)
        if all(before <= now for before, now in pairs):
            return numbers, ""  # another broker has gone on
    return _NONE, "the checkpoint is damaged: its seal is not that of its numbers, which are not believed"


class StoreCheckpoint:
    """Times in epoch ms; setting one is cheap, `flush` writes them."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint at `path`; what cannot be believed begins with zeros, and `problem` says why.

        Raises OSError.
        """
        exists = disk.exists(path)
        if exists and (size := disk.size(path)) != CHECKPOINT_FILE_SIZE:
            # Its length was lost in a crash, or somebody cut it.
            disk.delete(path)
            exists = False
            self.problem = believed(bytes(size))[1]
        else:
            self.problem = "" if exists else "there is no checkpoint"
        self._region = disk.map(path, CHECKPOINT_FILE_SIZE, create=not exists)
        self._region.reserve(0, CHECKPOINT_FILE_SIZE)
        numbers = _NONE
        if exists:
            numbers, self.problem = believed(bytes(self._region.view))
        self.physic_msg_timestamp_ms: int
        self.logics_msg_timestamp_ms: int
        self.index_msg_timestamp_ms: int
        (
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self._master_flushed_offset,
            self._confirm_physical_offset,
        ) = CHECKPOINT_STRUCT.unpack(numbers)

    @property
    def min_timestamp_ms(self) -> int:
        """Log and queues are on disk up to this store time, with a margin; never below 0."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - _MARGIN_MS)

    @property
    def min_timestamp_with_index_ms(self) -> int:
        """The same with the index."""
        return max(0, min(self.min_timestamp_ms, self.index_msg_timestamp_ms))

    def set_back(self, timestamp_ms: int) -> None:
        """Vouch for queues and index only up to `timestamp_ms` from now on, durably. Raises OSError."""
        self.logics_msg_timestamp_ms = min(self.logics_msg_timestamp_ms, timestamp_ms)
        self.index_msg_timestamp_ms = min(self.index_msg_timestamp_ms, timestamp_ms)
        self.flush()

    def move_on(self, timestamp_ms: int, *, physic_ms: int) -> None:
        """Vouch for queues and index up to `timestamp_ms`, for the log up to `physic_ms`, durably. Raises OSError."""
        self.logics_msg_timestamp_ms = self.index_msg_timestamp_ms = timestamp_ms
        self.physic_msg_timestamp_ms = physic_ms
        self.flush()

    def write(self) -> None:
        """Write the times, into the page cache only: there a killed process leaves them."""
        numbers = CHECKPOINT_STRUCT.pack(
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self._master_flushed_offset,
            self._confirm_physical_offset,
        )
        view, position = self._region.view, CHECKPOINT_SEAL_POSITION
        view[:CHECKPOINT_SIZE] = numbers
        view[position : position + CHECKPOINT_SEAL_STRUCT.size] = numbers + _seal_of(numbers).to_bytes(8, "big")

    def flush(self) -> None:
        """Write the times and make them durable. Raises OSError."""
        self.write()
        self._region.sync(0, CHECKPOINT_FILE_SIZE)

    def close(self) -> None:
        """Flush and close. Raises OSError."""
        self.flush()
        self._region.close()
