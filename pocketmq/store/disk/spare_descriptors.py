"""File descriptors kept in reserve for the store's files.

A process that has used up its descriptors, mostly for connections, could not sync, read or create files. The store needs
each descriptor only for a moment, so a small reserve is enough: without a free descriptor the reserve is closed for that
moment and reopened afterwards.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
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


class opened(AbstractContextManager[int]):  # noqa: N801  # is used like `contextlib.suppress`
    """Opens `path` for the duration of the context, using the reserve if necessary. Raises OSError."""

    # Written out, as a generator would take longer than the calls of the kernel, and a sync opens thousands of files.
    __slots__ = ("_descriptor", "_flags", "_path", "_reserve")

    def __init__(self, path: str, flags: int) -> None:
        self._path, self._flags = path, flags | os.O_CLOEXEC
        self._reserve: AbstractContextManager[None] | None = None

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, self._flags, 0o666)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            with ExitStack() as stack:
                self._reserve = reserve = _reserve_closed()
                stack.enter_context(reserve)
                self._descriptor = os.open(self._path, self._flags, 0o666)
                stack.pop_all()
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if self._reserve is not None:
            self._reserve.__exit__(None, None, None)
