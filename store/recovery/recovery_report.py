"""What a start found, what it did about it, and what a power cut may take from now on: for people."""

from dataclasses import dataclass, field
from enum import Enum

from pocketmq.store.config import MessageStoreConfig


class StartKind(Enum):
    """What the store's last broker left behind."""

    CLEAN = "clean stop"
    KILLED = "killed process"  # on this machine, which has not been down since: its page cache holds every byte
    CRASHED = "crash"


@dataclass
class RecoveryReport:
    """Offsets are physical, sizes in bytes, times in ms."""

    kind: StartKind
    scan_start_offset: int = 0
    end_offset: int = 0
    bytes_scanned: int = 0
    records_scanned: int = 0
    records_dispatched: int = 0
    log_files_deleted: int = 0
    duration_ms: int = 0
    # Why the bytes at `end_offset` are no record, when there were bytes.
    end_reason: str = ""
    # Everything that is older had been synced for sure; None: everything that was written counts as there.
    synced_timestamp_ms: int | None = None
    # What a power cut may take in the configured flush mode.
    loss_window: str = ""
    # A line for each thing that was not as it should be.
    repairs: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.kind is StartKind.CLEAN

    def lines(self) -> list[str]:
        """The start message: one line when there is nothing to say."""
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
    """What a power cut may take, at the longest; a killed process takes nothing in either mode."""
    if config.flush_disk_type == "SYNC_FLUSH":
        return "SYNC_FLUSH: nothing acknowledged is lost by a power cut"
    pages, longest = config.flush_commit_log_least_pages, config.flush_commit_log_thorough_interval
    few = f" ({longest} ms while fewer than {pages} pages wait)" if pages else ""
    return f"ASYNC_FLUSH: a power cut may take what came in the last {config.flush_interval_commit_log} ms{few}"
