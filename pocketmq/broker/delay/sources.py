"""Interface between the delivery engine and the two places where delayed messages wait: the queues of the delay levels and
the timer wheel. Times are epoch ms."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

from pocketmq.store.format.message import Arrival, Message

FAR_MS: Final = 1 << 62
"""Later than any message is due."""
LOADED_AHEAD_MS: Final = 2000
"""How long before they are due messages are loaded."""


class Due(Protocol):
    """A message that is due soon."""

    @property
    def due_ms(self) -> int: ...

    @property
    def physical_offset(self) -> int: ...


class Near(Protocol):
    """Messages that are loaded. `due_ms`: when the first of them is due; FAR_MS without one."""

    due_ms: int

    @property
    def row(self) -> Collection[object]:
        """Those of which several may be delivered together."""


D = TypeVar("D", bound=Due)


class Source(Protocol[D]):
    """A place where messages wait until they are due."""

    delivered: Callable[[float, int], object]
    """Called with the seconds from due time until delivery, and the number of messages for which they were alike."""
    delivered_total: int
    """Number of messages delivered by this process."""

    @property
    def topic(self) -> str:
        """The topic of the messages' records."""

    @property
    def near(self) -> Near:
        """The loaded messages, by due time. It stays the same object for the source's life."""

    @property
    def loaded_to_ms(self) -> int:
        """All messages due by then are loaded."""

    @property
    def load_ms(self) -> int:
        """When more must be loaded."""

    @property
    def is_held_up(self) -> bool:
        """Whether loading must be tried again, as there was no room."""

    # --- from the engine's turns ------------------------------------------------------------------------------------

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def calendar_set(self) -> None:
        """Compute all due times again."""

    def enter(self, arrivals: Sequence[Arrival], now_ms: int) -> float | None:
        """Take in what was added to queues of the topic, and what was left before. Return None if nothing is left, else the
        seconds after which that should be taken in."""

    def load_some(self, until_ms: int, now_ms: int) -> bool:
        """Load a part of the messages due by `until_ms`; return False if all are loaded."""

    def pop(self) -> D:
        """Remove and return the first message."""

    def together(self, until_ms: int, count_max: int) -> Sequence[D]:
        """Return the first messages due by `until_ms`, at most `count_max`, if `CopySink.put_together` may deliver them."""

    def remove_first(self, count: int) -> None:
        """Remove the first of the messages that `together` returned."""

    def copy(self, due: D, now_ms: int) -> Message | None:
        """Return the copy to be delivered; None if the message is cancelled. Raises ValueError if its record is lost."""

    def wait(self, due: D) -> None:
        """Note that a removed message is still to be delivered."""

    def done(self, due: D) -> None:
        """Note that a message that waited need not be delivered any more."""

    def mark(self, copies_end: int, now_ms: int) -> None:
        """Record the progress. The newest copy ends at physical offset `copies_end`, and all are written."""

    def mark_in(self, executor: Executor, now_ms: int) -> None:
        """Record the progress and write it to disk in `executor`, once everything that it refers to is synced."""

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no message's record lies before physical offset `end_offset`."""

    def close(self) -> None:
        """Write the final progress, and close the files. Raises OSError."""
