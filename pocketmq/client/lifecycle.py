"""Whether a client may be used: it is started, used, and closed for good."""

from typing import Final

_NEW, _STARTED, _CLOSED = "new", "started", "closed"
_HOW_TO_START: Final = "call its start() first, or use `async with`"


class Lifecycle:
    """The state of one client. Checks raise RuntimeError saying what to do."""

    def __init__(self, name: str) -> None:
        """`name`: of the client in errors."""
        self._name = name
        self._state = _NEW

    def start(self) -> None:
        """From new to started."""
        self.check_new("start it once")
        self._state = _STARTED

    def close(self) -> bool:
        """To closed; False when it was closed before."""
        was_open = self._state != _CLOSED
        self._state = _CLOSED
        return was_open

    def check_new(self, advice: str) -> None:
        """For what comes before `start`."""
        self.check_not_closed()
        if self._state == _STARTED:
            raise RuntimeError(f"{self._name} is started already: {advice}")

    def check_started(self) -> None:
        """For what comes between `start` and `close`."""
        self.check_not_closed()
        if self._state == _NEW:
            raise RuntimeError(f"{self._name} is not started: {_HOW_TO_START}")

    def check_not_closed(self) -> None:
        """For what needs no start."""
        if self._state == _CLOSED:
            raise RuntimeError(f"{self._name} is closed: make a new one")
