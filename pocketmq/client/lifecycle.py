"""Lifecycle of a client: new, started, closed for good."""

from typing import Final

_NEW, _STARTED, _CLOSED = "new", "started", "closed"
_HOW_TO_START: Final = "call its start() first, or use `async with`"


class Lifecycle:
    """The state of one client. Checks raise RuntimeError that says how to proceed."""

    def __init__(self, name: str) -> None:
        """`name` is the client's name in errors."""
        self._name = name
        self._state = _NEW
        self._is_closing = False

    def start(self) -> None:
        """Change from new to started."""
        self.check_new("start() can be called once")
        self._state = _STARTED

    def begin_close(self) -> bool:
        """Begin to close, once; return False if that has begun before. Checks still pass until `close`."""
        is_first, self._is_closing = not self._is_closing and self._state != _CLOSED, True
        return is_first

    @property
    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._is_closing or self._state == _CLOSED

    def close(self) -> bool:
        """Change to closed; return False if it was closed before."""
        was_open = self._state != _CLOSED
        self._state = _CLOSED
        return was_open

    def check_new(self, advice: str) -> None:
        """Check for operations that are allowed before `start` only."""
        self.check_not_closed()
        if self._state == _STARTED:
            raise RuntimeError(f"{self._name} is started already: {advice}")

    def check_started(self) -> None:
        """Check for operations that are allowed between `start` and `close` only."""
        self.check_not_closed()
        if self._state == _NEW:
            raise RuntimeError(f"{self._name} is not started: {_HOW_TO_START}")

    def check_not_closed(self) -> None:
        """Check for operations that do not require `start`."""
        if self._state == _CLOSED:
            raise RuntimeError(f"{self._name} is closed: create a new one")
