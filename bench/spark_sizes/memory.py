"""Memory of a Spark executor and its Python workers, from /proc, the JVM's memory accounts and its log of collections."""

import os
import re
import subprocess
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

EXECUTOR_CLASS: Final = b"CoarseGrainedExecutorBackend"
SAMPLED_EVERY_S: Final = 0.25
MIB: Final = 1 << 20
_ACCOUNT: Final = re.compile(r"^-\s+(\S[^(]*?) \(reserved=\d+KB, committed=(\d+)KB", re.MULTILINE)
_COLLECTION: Final = re.compile(r"(\d+)M->(\d+)M\(\d+M\)")


def below(root: int) -> list[int]:
    """Return the process ids of the descendants of a process."""
    children = defaultdict[int, list[int]](list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children[parent].append(int(path.parent.name))
    found = list(children[root])
    for pid in found:
        found += children[pid]
    return found


def executor_pid() -> int:
    """Return the id of the only executor below this process. Raises LookupError."""
    for pid in below(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].endswith(b"java") and any(part.endswith(EXECUTOR_CLASS) for part in command):
            return pid
    raise LookupError("no executor runs below this process")


def memory_mib(pid: int) -> tuple[float, float]:
    """Return (anonymous, file-backed) resident memory of a process in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0.0, 0.0
    sizes = {name: int(value.split()[0]) / 1024 for name, _, value in (line.partition(":") for line in lines)}
    return sizes["Anonymous"], sizes["Rss"] - sizes["Anonymous"]


class ExecutorMemory:
    """The maximum memory of an executor and its Python workers in MiB, sampled by a thread between enter and exit."""

    def __init__(self, pid: int) -> None:
        self.anonymous = self.files = self.workers = self.largest_worker = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "ExecutorMemory":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLED_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        anonymous, files = memory_mib(self._pid)
        self.anonymous, self.files = max(self.anonymous, anonymous), max(self.files, files)
        workers = [memory_mib(pid)[0] for pid in below(self._pid)]
        self.workers = max(self.workers, sum(workers))
        self.largest_worker = max(self.largest_worker, *workers, 0.0)


def accounts_mib(pid: int) -> dict[str, float]:
    """Return the memory that a JVM has committed by purpose (NativeMemoryTracking) in MiB."""
    command = ["jcmd", str(pid), "VM.native_memory", "summary"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return {name: int(size) / 1024 for name, size in _ACCOUNT.findall(shown)}


def live_heap_mib(log: Path) -> int:
    """Return the largest heap in MiB after a garbage collection, by the JVM's log; 0 if there was none."""
    return max((int(after) for _, after in _COLLECTION.findall(log.read_text())), default=0)
