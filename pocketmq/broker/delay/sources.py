"""Interface between the delivery engine and the two places where delayed messages wait: the queues of the delay levels and
the timer wheel. Times are epoch ms."""

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol, TypeVar

from pocketmq.runtime.event import Event
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


D = TypeVar("D", bound=Due)


class Outlook(NamedTuple):
    """The next work of a source."""

    due_ms: int = FAR_MS
    """When the first message of those loaded is due; FAR_MS without one."""
    loaded_to_ms: int = FAR_MS
    """All messages due by then are loaded."""
    load_ms: int = FAR_MS
    """When more must be loaded."""
    is_held_up: bool = False
    """Whether loading must be tried again, as there was no room."""


class Source(Protocol[D]):
    """A place where messages wait until they are due."""

    delivered: Event[[float]]
    """Called with the seconds from a message's due time until its delivery."""
    delivered_total: int
    """Number of messages delivered by this process."""

    @property
    def topic(self) -> str:
        """The topic of the messages' records."""
        ...

    # --- from the engine's turns ------------------------------------------------------------------------------------

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def calendar_set(self) -> None:
        """Compute all due times again."""
        ...

    def enter(self, arrivals: Iterable[Arrival]) -> float | None:
        """Take in what was added to queues of the topic, and what was left before. Return None if nothing is left, else the
        seconds after which that should be taken in."""
        ...

    def outlook(self) -> Outlook:
        """Return what is to be done next."""
        ...

    def load_some(self, now_ms: int) -> bool:
        """Load a part of the messages that are due soon; return False if all are loaded."""
        ...

    def take(self, until_ms: int, count_max: int) -> list[D]:
        """Remove and return the first messages that are loaded and due by `until_ms`."""
        ...

    def copy(self, due: D, now_ms: int) -> Message | None:
        """Return the copy to be delivered; None if the message is cancelled. Raises ValueError if its record is lost."""
        ...

    def wait(self, due: D) -> None:
        """Note that a removed message is still to be delivered."""
        ...

    def done(self, due: D) -> None:
        """Note that a message that waited need not be delivered any more."""
        ...

    def mark(self, copies_end: int, now_ms: int) -> None:
        """Record the progress of deliveries. The newest copy ends at physical offset `copies_end`, and all are written."""
        ...

    def mark_in(self, executor: Executor) -> None:
        """Write the progress to disk in `executor`, once everything that it refers to is synced."""
        ...

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no message's record lies before physical offset `end_offset`."""
        ...

    def close(self) -> None:
        """Write the final progress, and close the files. Raises OSError."""
        ...
