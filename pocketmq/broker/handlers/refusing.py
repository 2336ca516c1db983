"""Refusals that handlers have in common: of a request about something that does not exist, and because of an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pocketmq.remoting.dispatch import RemotingError

T = TypeVar("T")


def existing(found: T | None, code: int, remark: str) -> T:
    """Return what a look-up found. Raises RemotingError for None."""
    if found is None:
        raise RemotingError(code, remark)
    return found


@contextmanager
def refused_as(
    code: int, before: str = "", behind: str = "", kind: type[Exception] | tuple[type[Exception], ...] = ValueError
) -> Iterator[None]:
    """Turn an exception of a `kind` into a RemotingError, whose remark is its text `before` and `behind` others."""
    try:
        yield
    except kind as error:
        text = error.remark if isinstance(error, RemotingError) else str(error)
        raise RemotingError(code, f"{before}{text}{behind}") from None
