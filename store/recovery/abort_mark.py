"""The file `abort`: there while a broker runs on the store, and after it was killed or the machine went down.

Apache's brokers write nothing into it, or their process id. Ours has a second line, the mark of the running kernel and mount
(`Disk.boot_mark`): under the same one the page cache has every byte that a killed process wrote. A third line is the
checksum of the two before.
"""

import os

from isal.isal_zlib import crc32

from pocketmq.store.recovery.recovery_report import StartKind


def encode(boot_mark: str) -> bytes:
    """The content of the file while this process has the store."""
    lines = f"{os.getpid()}\n{boot_mark}\n".encode()
    return lines + b"%08x\n" % crc32(lines)


def problem_of(data: bytes) -> str:
    """What is wrong with the content of the file, in words; "" when nothing is."""
    process_id, *rest = data.split(b"\n")
    if not data or (process_id.isdigit() and not any(rest)):
        return ""  # another broker's
    lines, line_end, seal = data.removesuffix(b"\n").rpartition(b"\n")
    if lines.count(b"\n") == 1 and seal == b"%08x" % crc32(lines + line_end):
        return ""
    return "the mark `abort` is damaged, or an older version's"


def decode(data: bytes, boot_mark: str) -> tuple[StartKind, str]:
    """What the broker that left the mark came to, `boot_mark` being that of now; and what is wrong with it."""
    _, mark, *_ = [*data.split(b"\n"), b""]
    if boot_mark and mark == boot_mark.encode():
        return StartKind.KILLED, problem_of(data)
    problem = problem_of(data)
    return StartKind.CRASHED, f"{problem}: it is taken for a crash's" if problem else ""
