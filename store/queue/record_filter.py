"""RecordFilter: which records a pull wants, when the tags code of their queue units cannot tell."""

from collections.abc import Callable, Sequence

from pocketmq.store.queue.consume_queue_ext import ExtUnit

Judge = Callable[[Sequence[str]], list[bool]]
"""Whether each of some records is wanted, of which these are the entries (`properties.entries_from`)."""


class RecordFilter:
    """Asked twice: of the unit beside the queue where there is one, which is cheap, then of the record.

    A plain base class: pulls by tag ask whether their filter is one, and for an abstract one that takes 0.2 us.
    """

    __slots__ = ()
    is_constant = False
    """Whether its `judge` always says the same of a record; then filters with the same function share what it says."""

    def may_match(self, unit: ExtUnit) -> bool:
        """False when what stands in consumequeue_ext says that the record is not wanted."""
        raise NotImplementedError

    def judge(self, run: Sequence[str]) -> list[bool]:
        """Whether each of some records is wanted, of which these are the entries (`properties.entries_from`)."""
        raise NotImplementedError
