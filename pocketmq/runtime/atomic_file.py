"""Atomic replacement of small files: after a crash either the old or the new content is there, complete.

The new bytes are written to `NAME.tmp`, synced, and renamed over the file; the previous content is kept as `NAME.bak`. Used
for the name server's files. (The store accesses files through its own interface, `store.disk`.)
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

PRIVATE_MODE: Final = 0o600

T = TypeVar("T")
log = logging.getLogger("runtime")


def replace(path: Path, data: bytes) -> None:
    """Durably replace the content of `path` by `data`. Creates the folder, keeps the file mode. Raises OSError.

    A new file is readable by its owner alone: settings and access rules contain passwords.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = PRIVATE_MODE
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        _write(_backup(path), path.read_bytes(), mode)
    _write(path, data, mode)
    _sync_folder(path.parent)


def load(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return the decoded content of `path`, or of its backup if `path` is missing or cannot be decoded; None without either.

    Raises ValueError, naming the file, when a file exists but none can be decoded.
    """
    failure: str | None = None
    for candidate in (path, _backup(path)):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        try:
            decoded = decode(data)
        except ValueError as error:
            failure = failure or f"{candidate} cannot be read: {error}"
            continue
        if candidate != path:
            log.warning("%s; its backup is used", failure or f"{path} is missing")
            # Moved out of the way, so that the next `replace` does not overwrite the good backup with the damaged file.
            with contextlib.suppress(OSError):
                path.replace(path.with_name(path.name + ".damaged"))
        return decoded
    if failure is not None:
        raise ValueError(failure)
    return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _write(path: Path, data: bytes, mode: int) -> None:
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # the new file must not be readable by more users than the old
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
