"""Deadlines in buckets of a tenth of a second: adding, removing and finding what is due cost the same for any number."""

import heapq
from typing import Final, Generic, Protocol, TypeVar

BUCKET_S: Final = 0.1


class Dated(Protocol):
    """What has a deadline; `bucket` belongs to the wheel (None: in none)."""

    deadline_s: float
    bucket: int | None


D = TypeVar("D", bound=Dated)


class DeadlineWheel(Generic[D]):
    """Items by their deadline, which must not change while they are in the wheel."""

    def __init__(self) -> None:
        # An empty bucket stays as None until its time: it stands in the heap once.
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
        """Take an item out; harmless when it is in no bucket."""
        index, item.bucket = item.bucket, None
        if index is None:
            return
        bucket = self._buckets[index]
        assert bucket is not None
        del bucket[item]
        if not bucket:
            self._buckets[index] = None

    def pop_due(self, now: float) -> list[D]:
        """Take out what is due, in the order of its buckets."""
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
                break  # the bucket of this moment: some are still to come
            heapq.heappop(self._heap)
            del self._buckets[index]
        return due

    def next_due_s(self) -> float | None:
        """The earliest deadline; None when there is none."""
        while self._heap:
            bucket = self._buckets[self._heap[0]]
            if bucket is not None:
                return min(item.deadline_s for item in bucket)
            del self._buckets[heapq.heappop(self._heap)]
        return None
