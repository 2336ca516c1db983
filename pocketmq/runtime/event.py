"""Events by which components notify each other."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """A list of listeners. Calling the event calls each of them, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def subscribe(self, listener: Callable[P, object]) -> None:
        """Call `listener` each time the event happens."""
        self._listeners.append(listener)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)
