"""The file `abort`, which exists while a broker uses the store, and after the broker or the machine crashed.

Apache's brokers leave it empty or write their process id. PocketMQ adds a second line with the mark of the running kernel
and mount (`Disk.boot_mark`): as long as it is the same, the page cache has every byte that a killed process wrote. A third
line is the checksum of the first two.
"""

import os

from isal.isal_zlib import crc32

from pocketmq.store.recovery.recovery_report import StartKind


def encode(boot_mark: str) -> bytes:
    """Return the content of the file for this process."""
    lines = f"{os.getpid()}\n{boot_mark}\n".encode()
    return lines + b"%08x\n" % crc32(lines)


def problem_of(data: bytes) -> str:
    """Return what is wrong with the content of the file, or ""."""
    process_id, *rest = data.split(b"\n")
    if not data or (process_id.isdigit() and not any(rest)):
        return ""  # written by another broker
    lines, line_end, seal = data.removesuffix(b"\n").rpartition(b"\n")
    if lines.count(b"\n") == 1 and seal == b"%08x" % crc32(lines + line_end):
        return ""
    return "the mark `abort` is damaged or from an older version"


def decode(data: bytes, boot_mark: str) -> tuple[StartKind, str]:
    """Return how the broker that left the mark ended, given the present `boot_mark`, and what is wrong with the mark."""
    _, mark, *_ = [*data.split(b"\n"), b""]
    if boot_mark and mark == boot_mark.encode():
        return StartKind.KILLED, problem_of(data)
    problem = problem_of(data)
    return StartKind.CRASHED, f"{problem}: treated as after a crash" if problem else ""
