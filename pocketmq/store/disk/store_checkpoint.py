"""StoreCheckpoint: the `checkpoint` file with the store time up to which log, queues and index are on disk.

After a crash recovery starts from it: nothing older than `min_timestamp_ms` needs to be read again. 5.x keeps two more
numbers in the file, which are preserved, so that a 5.x broker can use the store again. The checkpoint is a hint: if it is
missing, truncated or invalid, recovery only takes longer.

Times that are too late would lose messages from queues. The file therefore has a seal with a copy of the numbers, in a part
of the page that Apache's brokers neither read nor write. They update only the numbers, and such checkpoints are accepted,
too.
"""

from typing import Final

from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk, map_sized
from pocketmq.store.format.layout import (
    CHECKPOINT_FILE_SIZE,
    CHECKPOINT_SEAL_POSITION,
    CHECKPOINT_SEAL_STRUCT,
    CHECKPOINT_SIZE,
    CHECKPOINT_STRUCT,
)

# Recovery begins this much earlier, as times are not exactly those of the syncs (StoreCheckpoint.getMinTimestamp).
_MARGIN_MS = 3000
_SEAL_HEAD: Final = 0x504D5143 << 32
# Damage changes few bits, an update by another broker many.
_FLIPPED_MAX: Final = 2
_NONE: Final = bytes(CHECKPOINT_SIZE)


def _seal_of(numbers: bytes) -> int:
    return _SEAL_HEAD | crc32(numbers)


def believed(page: bytes) -> tuple[bytes, str]:
    """Return (the trustworthy numbers of a checkpoint page in stored form, error text or "")."""
    if len(page) != CHECKPOINT_FILE_SIZE:
        return _NONE, f"the checkpoint has {len(page)} bytes instead of {CHECKPOINT_FILE_SIZE}"
    numbers, end = page[:CHECKPOINT_SIZE], CHECKPOINT_SEAL_POSITION + CHECKPOINT_SEAL_STRUCT.size
    sealed = page[CHECKPOINT_SEAL_POSITION:end]
    if not any(sealed):
        return numbers, ""  # written by another broker
    copy, seal = sealed[:CHECKPOINT_SIZE], int.from_bytes(sealed[CHECKPOINT_SIZE:], "big")
    if _seal_of(numbers) == seal:
        return numbers, "" if copy == numbers else "the copy in the checkpoint's seal is damaged; the numbers are intact"
    if copy == numbers:
        return numbers, "the checkpoint's seal is damaged; the numbers and their copy are intact"
    if _seal_of(copy) == seal:
        if (int.from_bytes(numbers, "big") ^ int.from_bytes(copy, "big")).bit_count() <= _FLIPPED_MAX:
            return copy, "a number in the checkpoint is damaged; its copy in the seal is used"
        pairs = zip(CHECKPOINT_STRUCT.unpack(copy)[:3], CHECKPOINT_STRUCT.unpack(numbers)[:3], strict=True)
        if all(before <= now for before, now in pairs):
            return numbers, ""  # updated by another broker
    return _NONE, "the checkpoint is damaged: its seal does not match its numbers, which are ignored"


class StoreCheckpoint:
    """Checkpoint times in epoch ms. Setting one changes memory only; `write` and `flush` update the file."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint at `path`. If it is not trustworthy, the times are 0 and `problem` has the reason.

        Raises OSError.
        """
        self._region, size = map_sized(disk, path, CHECKPOINT_FILE_SIZE)
        self._region.reserve(0, CHECKPOINT_FILE_SIZE)
        numbers, self.problem = _NONE, "there is no checkpoint"
        if size is not None:
            # Another size: truncated by a crash or by hand.
            numbers, self.problem = believed(bytes(self._region.view) if size == CHECKPOINT_FILE_SIZE else bytes(size))
        physic_ms, logics_ms, index_ms, *self._numbers_of_5x = CHECKPOINT_STRUCT.unpack(numbers)
        self.physic_msg_timestamp_ms: int = physic_ms
        self.logics_msg_timestamp_ms: int = logics_ms
        self.index_msg_timestamp_ms: int = index_ms

    @property
    def min_timestamp_ms(self) -> int:
        """Store time up to which log and queues are on disk, less a margin; at least 0."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - _MARGIN_MS)

    @property
    def min_timestamp_with_index_ms(self) -> int:
        """Store time up to which log, queues and index are on disk, less a margin; at least 0."""
        return max(0, min(self.min_timestamp_ms, self.index_msg_timestamp_ms))

    def set_back(self, timestamp_ms: int) -> None:
        """Reduce the times of queues and index to at most `timestamp_ms`, durably. Raises OSError."""
        self.logics_msg_timestamp_ms = min(self.logics_msg_timestamp_ms, timestamp_ms)
        self.index_msg_timestamp_ms = min(self.index_msg_timestamp_ms, timestamp_ms)
        self.flush()

    def move_on(self, timestamp_ms: int, *, physic_ms: int) -> None:
        """Set the times of queues and index to `timestamp_ms` and the log's to `physic_ms`, durably. Raises OSError."""
        self.logics_msg_timestamp_ms = self.index_msg_timestamp_ms = timestamp_ms
        self.physic_msg_timestamp_ms = physic_ms
        self.flush()

    def write(self) -> None:
        """Write the times to the page cache, where they survive a process kill."""
        times_ms = self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms
        numbers = CHECKPOINT_STRUCT.pack(*times_ms, *self._numbers_of_5x)
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
