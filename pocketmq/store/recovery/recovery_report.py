"""RecoveryReport: what a start found and repaired, and what a power cut may lose, as text for operators."""

from dataclasses import dataclass, field
from enum import Enum

from pocketmq.store.config import MessageStoreConfig


class StartKind(Enum):
    """How the last broker on the store ended."""

    CLEAN = "clean stop"
    KILLED = "killed process"  # on this machine without a reboot since, so the page cache has every byte
    CRASHED = "crash"


@dataclass
class RecoveryReport:
    """Result of a start. Offsets are physical, sizes in bytes, times in ms."""

    kind: StartKind
    scan_start_offset: int = 0
    end_offset: int = 0
    bytes_scanned: int = 0
    records_scanned: int = 0
    log_files_deleted: int = 0
    duration_ms: int = 0
    # Why the bytes at `end_offset` are not a valid record; empty if there were none.
    end_reason: str = ""
    # Everything older is known to have been synced. None: everything that was written is available.
    synced_timestamp_ms: int | None = None
    # What a power cut may lose in the configured flush mode.
    loss_window: str = ""
    # One line per problem found.
    repairs: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.kind is StartKind.CLEAN

    def lines(self) -> list[str]:
        """Return the lines of the start message; only one if nothing was repaired."""
        line = f"store opened after a {self.kind.value}: log ends at {self.end_offset}"
        if self.records_scanned:
            line += (
                f", {self.records_scanned} records ({self.bytes_scanned} bytes) read from {self.scan_start_offset} on "
                f"in {self.duration_ms} ms"
            )
        if self.kind is StartKind.CRASHED:
            line += f", the last known sync covers what was stored before {self.synced_timestamp_ms} (epoch ms)"
        repairs = [f"repaired: {repair}" for repair in self.repairs]
        return [line + (f"; {self.loss_window}" if self.loss_window else ""), *repairs]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def loss_window(config: MessageStoreConfig) -> str:
    """Return the text about what a power cut may lose at most; a process kill loses nothing in either mode."""
    if config.flush_disk_type == "SYNC_FLUSH":
        return "SYNC_FLUSH: nothing acknowledged is lost by a power cut"
    pages, longest = config.flush_commit_log_least_pages, config.flush_commit_log_thorough_interval
    few = f" ({longest} ms while fewer than {pages} pages are unsynced)" if pages else ""
    return f"ASYNC_FLUSH: a power cut may lose the messages of the last {config.flush_interval_commit_log} ms{few}"
