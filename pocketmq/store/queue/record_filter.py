"""RecordFilter: a pull's filter that needs more than the tags code of a queue unit, such as an SQL92 expression.

The cost of a filter depends on the expression and the records, both of which peers choose. Each request therefore has a
`FilterBudget`: when it is used up, the request is answered with what was found, and with the offset at which to go on.
"""

from collections.abc import Callable, Sequence
from time import monotonic, thread_time
from typing import Final

from pocketmq.store.queue.consume_queue_ext import ExtUnit

BUDGET_S: Final = 0.005
"""CPU time that one request may spend on record filters after its first run, or its first record with long properties,
which is always judged."""

Judge = Callable[[Sequence[str]], list[bool]]
"""Evaluates a filter on the property entries of several records (`properties.entries_from`), one verdict each."""


class FilterBudget:
    """CPU time that remains to a request for record filters, counted from the end of the first run, since most requests need
    no other. The load of other processes is not charged to it."""

    __slots__ = ("_cpu_end_s", "_end_s")

    def __init__(self) -> None:
        self._end_s = self._cpu_end_s = 0.0

    @property
    def is_used_up(self) -> bool:
        """Whether no further run may be judged. To be asked after each run."""
        if not self._end_s:
            self._end_s, self._cpu_end_s = monotonic() + BUDGET_S, thread_time() + BUDGET_S
        return monotonic() >= self._end_s and thread_time() >= self._cpu_end_s


class NotCompiled(Exception):
    """The function of an expression is needed that is not compiled yet."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class RecordFilter:
    """Filter in two steps: on the consumequeue_ext unit if there is one, which is cheap, then on the record.

    Not an abstract base class, because `isinstance` is slower for those and every filtered pull calls it.
    """

    __slots__ = ()
    is_constant = False
    """Whether `judge` always returns the same verdict for a record; its verdicts are then cached by function."""
    size = 0
    """Bytes of memory of a filter that came with a request, which a held request keeps."""

    def may_match(self, unit: ExtUnit) -> bool:
        """Return False if the consumequeue_ext unit already rules the record out."""
        raise NotImplementedError

    def judge(self, run: Sequence[str]) -> list[bool]:
        """Return one verdict for each record, given the records' property entries (`properties.entries_from`).

        Raises NotCompiled.
        """
        raise NotImplementedError
