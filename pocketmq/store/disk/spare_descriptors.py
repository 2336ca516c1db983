"""File descriptors kept in reserve for the store's files.

A process that has used up its descriptors, mostly for connections, could not sync, read or create files. The store needs
each descriptor only for a moment, so a small reserve is enough: without a free descriptor the reserve is closed for that
moment and reopened afterwards.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Final, TypeVar

Result = TypeVar("Result")

NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
# Deleting a directory tree needs one descriptor per level.
_SPARE_COUNT: Final = 4

_spare: list[int] = []
# Held while the reserve is closed, so that only one thread uses it.
_lock: Final = threading.RLock()


def keep_spare() -> None:
    """Open or reopen the reserve, as far as descriptors are available."""
    with _lock, suppress(OSError):
        while len(_spare) < _SPARE_COUNT:
            _spare.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))


@contextmanager
def _reserve_closed() -> Iterator[None]:
    with _lock:
        while _spare:
            os.close(_spare.pop())
        try:
            yield
        finally:
            keep_spare()


def sparing(call: Callable[[], Result]) -> Result:
    """Return the result of `call`, which opens and closes files, using the reserve if necessary. Raises OSError."""
    try:
        return call()
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    with _reserve_closed():
        return call()


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open `path` for the duration of the context, using the reserve if necessary. Raises OSError."""
    reserve: AbstractContextManager[None] = nullcontext()
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        descriptor, reserve = -1, _reserve_closed()
    with reserve:
        if descriptor < 0:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
