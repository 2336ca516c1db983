"""Record filters of SQL92 subscriptions."""

from collections.abc import Callable, Sequence

from pocketmq.store.format.properties import mark_of, text_of, value_of
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.record_filter import Judge, RecordFilter

RETRY_TOPIC = "RETRY_TOPIC"
"""The property of a message in a retry topic that names the topic it was consumed from."""

_RETRY_TOPIC_MARK = mark_of(RETRY_TOPIC)


def function_size(text: str) -> int:
    """Return about the bytes of memory of an expression's function."""
    return 30 * len(text) + 3_000


class ExpressionFilter(RecordFilter):
    """Filter of the messages for which an SQL92 expression is true; an error of the expression counts as false."""

    __slots__ = ("_bitmap_size", "_born_ms", "_mask", "judge", "size")
    is_constant = True

    def __init__(self, judge: Judge, born_ms: int = 0, mask: int = 0, bitmap_size: int = 0, size: int = 0) -> None:
        """`mask` holds the subscription's bits, valid for bitmaps of `bitmap_size` bytes of messages after `born_ms`."""
        self.judge = judge  # type: ignore[method-assign,assignment]
        self._born_ms = born_ms
        self._mask = mask
        self._bitmap_size = bitmap_size
        self.size = size

    def may_match(self, unit: ExtUnit) -> bool:
        if len(unit.bitmap) != self._bitmap_size or unit.store_timestamp_ms <= self._born_ms:
            return True
        return int.from_bytes(unit.bitmap, "little") & self._mask == self._mask


class UnsharedExpressionFilter(ExpressionFilter):
    """Filter of a long expression. Its results are not cached, because that would keep its large function in memory."""

    __slots__ = ()
    is_constant = False


class RetryFilter(RecordFilter):
    """Filter of a group's retry topic: applies the group's filter of each message's original topic (filterSupportRetry)."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[str], ExpressionFilter | None]) -> None:
        """`find` returns the group's filter of a topic, or None."""
        self._find = find

    def may_match(self, unit: ExtUnit) -> bool:
        return True

    def judge(self, run: Sequence[str]) -> list[bool]:
        return [self._is_wanted(entries) for entries in run]

    def _is_wanted(self, entries: str) -> bool:
        record_filter = self._find(text_of(value_of(entries, _RETRY_TOPIC_MARK) or ""))
        return record_filter is None or record_filter.judge((entries,))[0]
