"""Descriptors kept in reserve for the store's files.

A process that has used up its descriptors, with connections for the most part, could not sync, read or make a file any more.
The store needs each descriptor only for a moment, so a few kept spare are enough: when there is no other, they are given up
for that moment and taken back after it.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

Result = TypeVar("Result")

NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
# A tree is deleted with a descriptor a level.
_SPARE_COUNT: Final = 4

_spare: list[int] = []
# Held while the spare ones are given up: what is done then is done one after the other.
_lock: Final = threading.RLock()


def keep_spare() -> None:
    """Take the spare descriptors, as far as there are any; what was given up is taken back."""
    with _lock, suppress(OSError):
        while len(_spare) < _SPARE_COUNT:
            _spare.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))


def _give_up() -> None:
    while _spare:
        os.close(_spare.pop())


def sparing(call: Callable[[], Result]) -> Result:
    """The result of `call`, which opens files and closes them again. Raises OSError, for want of a descriptor seldom."""
    try:
        return call()
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    with _lock:
        _give_up()
        try:
            return call()
        finally:
            keep_spare()


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """A descriptor of the file at `path`, closed at the end. Raises OSError, for want of a descriptor seldom."""
    flags |= os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    else:
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return
    with _lock:
        _give_up()
        try:
            descriptor = os.open(path, flags, 0o666)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        finally:
            keep_spare()
