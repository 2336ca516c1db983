"""The `checkpoint` file: up to which store time each kind of file is known to be on disk.

After a crash it tells recovery where to begin: nothing that is older than `min_timestamp_ms` needs a second look. 5.x keeps
two more numbers in it; they are carried over as they were found, so that a 5.x broker may come back to its store. It is a
hint: one that is missing, cut or wrong costs time and nothing else.
"""

from store.disk import Disk
from store.layout import CHECKPOINT_FILE_SIZE, CHECKPOINT_SIZE, CHECKPOINT_STRUCT

# The stamps are taken beside the syncs, not with them: recovery begins this much earlier (StoreCheckpoint.getMinTimestamp).
_MARGIN_MS = 3000


class StoreCheckpoint:
    """Times in epoch ms; setting one is cheap, `flush` writes them."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint at `path`; one that is missing or has not 4096 bytes begins with zeros. Raises OSError."""
        exists = disk.exists(path)
        if exists and disk.size(path) != CHECKPOINT_FILE_SIZE:
            # Its length was lost in a crash, or somebody cut it.
            disk.delete(path)
            exists = False
        self._region = disk.map(path, CHECKPOINT_FILE_SIZE, create=not exists)
        self._region.reserve(0, CHECKPOINT_FILE_SIZE)
        self.physic_msg_timestamp_ms: int
        self.logics_msg_timestamp_ms: int
        self.index_msg_timestamp_ms: int
        (
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self._master_flushed_offset,
            self._confirm_physical_offset,
        ) = CHECKPOINT_STRUCT.unpack_from(self._region.view, 0)

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
        CHECKPOINT_STRUCT.pack_into(
            self._region.view,
            0,
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self._master_flushed_offset,
            self._confirm_physical_offset,
        )

    def flush(self) -> None:
        """Write the times and make them durable. Raises OSError."""
        self.write()
        self._region.sync(0, CHECKPOINT_SIZE)

    def close(self) -> None:
        """Flush and close. Raises OSError."""
        self.flush()
        self._region.close()
