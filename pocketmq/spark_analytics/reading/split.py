"""The share of one task in a log file."""

from dataclasses import dataclass

from pocketmq.store.format.record_chain import Positions
from pocketmq.store.offline.places import LogFile


@dataclass(frozen=True, slots=True)
class Copy:
    """The same part of another store's log; its records that begin before position `stop` are read from there."""

    file: LogFile
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The records of a file that begin in [begin, stop); positions count from the file's first byte.

    `end` is the end of the log in this file as far as known: up to there records follow each other without a gap. If
    `starts` (ascending positions) and `sizes` are given, only the records there belong to the split. If `lost` is set, the
    records of the split no longer exist, and `lost` says why. If `is_exact`, a record should begin at `begin`: other bytes
    there are damage that belongs to this split rather than to the one before. Records that one of `copies` has, too, are
    left out (`replicas`).
    """

    file: LogFile
    begin: int
    stop: int
    end: int
    starts: Positions | None = None
    sizes: Positions | None = None
    lost: str = ""
    is_exact: bool = False
    broker_name: str = ""
    copies: tuple["Copy", ...] = ()

    @property
    def size(self) -> int:
        """The bytes of the log that belong to the split."""
        return self.stop - self.begin if self.sizes is None else int(self.sizes.sum())
