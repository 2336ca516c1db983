"""Record filters of SQL92 subscriptions."""

from collections.abc import Callable, Sequence

from pocketmq.store.format.properties import mark_of, text_of, value_of
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.record_filter import Judge, RecordFilter

RETRY_TOPIC = "RETRY_TOPIC"
"""The property of a message in a retry topic that names the topic it was consumed from."""

_RETRY_TOPIC_MARK = mark_of(RETRY_TOPIC)


class ExpressionFilter(RecordFilter):
    """Wants what an expression is true of; not what has something else where it should have a number."""

    __slots__ = ("_bitmap_size", "_born_ms", "_mask", "judge")
    is_constant = True

    def __init__(self, judge: Judge, born_ms: int = 0, mask: int = 0, bitmap_size: int = 0) -> None:
        """`mask` has the bits of the subscription, in bitmaps of `bitmap_size` bytes that were written after `born_ms`."""
        self.judge = judge  # type: ignore[method-assign,assignment]
        self._born_ms = born_ms
        self._mask = mask
        self._bitmap_size = bitmap_size

    def may_match(self, unit: ExtUnit) -> bool:
        if len(unit.bitmap) != self._bitmap_size or unit.store_timestamp_ms <= self._born_ms:
            return True
        return int.from_bytes(unit.bitmap, "little") & self._mask == self._mask


class UnsharedExpressionFilter(ExpressionFilter):
    """One whose verdicts are not kept, since its function would be with them: that of a long expression is large."""

    __slots__ = ()
    is_constant = False


class RetryFilter(RecordFilter):
    """Of a group's retry topic wants what the group wants of the topic that a message came from (filterSupportRetry)."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[str], ExpressionFilter | None]) -> None:
        """`find` gives the group's filter of a topic, if it has one."""
        self._find = find

    def may_match(self, unit: ExtUnit) -> bool:
        return True

    def judge(self, run: Sequence[str]) -> list[bool]:
        return [self._is_wanted(entries) for entries in run]

    def _is_wanted(self, entries: str) -> bool:
        record_filter = self._find(text_of(value_of(entries, _RETRY_TOPIC_MARK) or ""))
        return record_filter is None or record_filter.judge((entries,))[0]
