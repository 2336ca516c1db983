"""Limited cardinality: the first `count_max` keys have rows of their own, all further keys are summed up as one.

Prometheus keeps a time series for each combination of labels, so their number must not grow with that of topics and groups.
The choice is made once for each key: a key that moved between the two kinds would look like a counter that was reset.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Limited(Generic[K]):
    """The keys that have rows of their own."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._own: set[K] = set()
        self._others: set[K] = set()

    def is_own(self, key: K) -> bool:
        """Return whether `key` has a row of its own, which is decided at the first call for it."""
        if key in self._own:
            return True
        if key in self._others or len(self._own) >= self._count_max:
            self._others.add(key)
            return False
        self._own.add(key)
        return True

    def keep(self, keys: Iterable[K]) -> None:
        """Forget all keys but these."""
        kept = set(keys)
        self._own &= kept
        self._others &= kept


class OtherTotals(Generic[K]):
    """Totals of counters that are summed up as one, which never decrease: what was counted for a deleted key stays."""

    def __init__(self, width: int) -> None:
        """`width`: number of counters of each key."""
        self.totals = [0] * width
        self._seen: dict[K, tuple[int, ...]] = {}

    def add(self, key: K, values: tuple[int, ...]) -> None:
        """Add the growth of a key's counters since the last call; `values` are their present values."""
        before = self._seen.get(key)
        if before is None or any(new < old for new, old in zip(values, before, strict=True)):
            before = (0,) * len(values)  # new, or deleted and created again
        self._seen[key] = values
        for index, (new, old) in enumerate(zip(values, before, strict=True)):
            self.totals[index] += new - old

    def keep(self, keys: Iterable[K]) -> None:
        """Forget the values of all keys but these."""
        keys = set(keys)
        self._seen = {key: values for key, values in self._seen.items() if key in keys}
