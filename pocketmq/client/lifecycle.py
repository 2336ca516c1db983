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
        self.is_closing = False
        """Whether the end has begun."""

    def start(self) -> None:
        """Change from new to started."""
        self.check_new("start() can be called once")
        self._state = _STARTED

    def begin_close(self) -> bool:
        """Begin to close, once; return False if that has begun before. Checks still pass until `close`."""
        was_closing, self.is_closing = self.is_closing, True
        return not was_closing

    def close(self) -> bool:
        """Change to closed; return False if it was closed before."""
        was_open = self._state != _CLOSED
        self._state, self.is_closing = _CLOSED, True
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
