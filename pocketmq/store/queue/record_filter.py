"""RecordFilter: a pull's filter that needs more than the tags code of a queue unit, such as an SQL92 expression."""

from collections.abc import Callable, Sequence

from pocketmq.store.queue.consume_queue_ext import ExtUnit

Judge = Callable[[Sequence[str]], list[bool]]
"""Evaluates a filter on the property entries of several records (`properties.entries_from`), one verdict each."""


class RecordFilter:
    """Filter in two steps: on the consumequeue_ext unit if there is one, which is cheap, then on the record.

    Not an abstract base class, because `isinstance` is slower for those and every filtered pull calls it.
    """

    __slots__ = ()
    is_constant = False
    """Whether `judge` always returns the same verdict for a record; its verdicts are then cached by function."""

    def may_match(self, unit: ExtUnit) -> bool:
        """Return False if the consumequeue_ext unit already rules the record out."""
        raise NotImplementedError

    def judge(self, run: Sequence[str]) -> list[bool]:
        """Return one verdict for each record, given the records' property entries (`properties.entries_from`)."""
        raise NotImplementedError
