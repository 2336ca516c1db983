"""Replacing a small file so that a crash leaves the old or the new one, whole.

The new bytes go to `NAME.tmp`, are synced, and are renamed over the file; what was there is kept as `NAME.bak`. (The store
has its own door to files; this is for those of the name server.)
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger("runtime")


def replace(path: Path, data: bytes) -> None:
    """Make `data` the content of `path`, durably; its folder is made if need be, its mode stays. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        _write(_backup(path), path.read_bytes(), mode)
    _write(path, data, mode)
    _sync_folder(path.parent)


def load(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """The decoded content of `path`, of its backup where it is absent or cannot be decoded, None where neither is.

    Raises ValueError, naming the file, when something is there and nothing can be decoded.
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
            # The backup stays the better of the two until a new file is there.
            with contextlib.suppress(OSError):
                path.replace(path.with_name(path.name + ".damaged"))
        return decoded
    if failure is not None:
        raise ValueError(failure)
    return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _write(path: Path, data: bytes, mode: int | None) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)  # who could not read it before cannot now
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
