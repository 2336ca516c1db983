"""Pid files of this user's running servers, by which `mqshutdown` finds them.

A server holds a record lock on its file as long as it runs, and the kernel reports which process holds a lock. So a file
left by a killed process is never taken for a running server, even if its pid has been reused by another process.
"""

import contextlib
import fcntl
import logging
import os
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger("runtime")

_FLOCK: Final = "hhlli"
"""Linux's struct flock: type, whence, start, length, pid."""


@dataclass(frozen=True)
class RunningServer:
    """A running server process. `place` is the folder or file that contains its data."""

    pid: int
    place: str
    pid_file: Path

    @property
    def is_running(self) -> bool:
        """Whether the server has not ended, nor released its data, so far."""
        try:
            return _holder(self.pid_file) == self.pid
        except OSError:
            return False

    def terminate(self) -> bool:
        """Send SIGTERM; return False when the server has ended. Raises PermissionError."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor refers to this process for good: after this check the signal cannot reach another one.
            if not self.is_running:
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def folder() -> Path:
    """Return the folder of pid files: `$POCKETMQ_RUN`, else `~/.local/state/pocketmq`."""
    return Path(os.environ.get("POCKETMQ_RUN") or Path.home() / ".local" / "state" / "pocketmq")


@contextlib.contextmanager
def registered(program: str, place: str) -> Iterator[None]:
    """Keep this process's pid file while the block runs. If it cannot be written, a warning is logged."""
    path = folder() / f"{_prefix(program)}{os.getpid()}"
    descriptor = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in running(program):  # removes the files of killed processes
            pass
        descriptor = _locked(path)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, place.encode(errors="surrogateescape"))
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        log.warning("%s has no pid file, so mqshutdown will not find it: %s", program, error)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)


def running(program: str) -> list[RunningServer]:
    """Return this user's running servers on this machine, and remove the pid files of servers that have ended."""
    found = []
    prefix = _prefix(program)
    for path in sorted(folder().glob(f"{prefix}*")):
        pid = path.name.removeprefix(prefix)
        if not pid.isdigit() or int(pid) == os.getpid():  # a process that reads its own file loses its lock
            continue
        try:
            holder = _holder(path)
            if holder == int(pid):
                found.append(RunningServer(holder, os.fsdecode(path.read_bytes()), path))
            elif holder is None:
                path.unlink()
        except OSError:  # it has ended, or is another user's
            continue
    return found


def _prefix(program: str) -> str:
    # A home may be shared by several machines, whose pids mean nothing here.
    return f"{program}.{os.uname().nodename}."


def _locked(path: Path) -> int:
    """Return a descriptor of the file, created if necessary, with its lock held. Raises OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # `running` removed the file before it was locked


def _holder(path: Path) -> int | None:
    """Return the pid of the process that holds the lock, according to the kernel; None without one. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid
