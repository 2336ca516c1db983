"""DeadlineWheel: deadlines in buckets of a tenth of a second; the cost per item is independent of their number."""

import heapq
from typing import Final, Generic, Protocol, TypeVar

BUCKET_S: Final = 0.1


class Dated(Protocol):
    """An item with a deadline; `bucket` is managed by the wheel (None: in no bucket)."""

    deadline_s: float
    bucket: int | None


D = TypeVar("D", bound=Dated)


class DeadlineWheel(Generic[D]):
    """Items by deadline. The deadline of an item must not change while it is in the wheel."""

    def __init__(self) -> None:
        # An emptied bucket stays as None until its time, so that its index is in the heap only once.
        self._buckets: dict[int, dict[D, None] | None] = {}
        self._heap: list[int] = []

    def add(self, item: D) -> None:
        index = item.bucket = int(item.deadline_s / BUCKET_S)
        bucket = self._buckets.get(index)
        if bucket is None:
            if index not in self._buckets:
                heapq.heappush(self._heap, index)
            bucket = self._buckets[index] = {}
        bucket[item] = None

    def discard(self, item: D) -> None:
        """Remove an item; do nothing when it is in no bucket."""
        index, item.bucket = item.bucket, None
        if index is None:
            return
        bucket = self._buckets[index]
        assert bucket is not None
        del bucket[item]
        if not bucket:
            self._buckets[index] = None

    def pop_due(self, now: float) -> list[D]:
        """Remove and return the due items, ordered by bucket."""
        due: list[D] = []
        last = int(now / BUCKET_S)
        while self._heap and self._heap[0] <= last:
            index = self._heap[0]
            bucket = self._buckets[index]
            if bucket is not None:
                found = [item for item in bucket if item.deadline_s <= now]
                due += found
                for item in found:
                    self.discard(item)
            if self._buckets[index] is not None:
                break  # the bucket of the present moment has items that are not due yet
            heapq.heappop(self._heap)
            del self._buckets[index]
        return due

    def next_due_s(self) -> float | None:
        """Return the earliest deadline, or None when the wheel is empty."""
        while self._heap:
            bucket = self._buckets[self._heap[0]]
            if bucket is not None:
                return min(item.deadline_s for item in bucket)
            del self._buckets[heapq.heappop(self._heap)]
        return None
