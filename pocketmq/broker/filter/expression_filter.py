"""Record filters of SQL92 subscriptions. Those of requests are kept, since consumers repeat them in every pull."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.filter.subscription import SQL92
from pocketmq.runtime.peer_text import QUOTE_SIZE_MAX, clipped
from pocketmq.store.format.properties import mark_of, text_of, value_of
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.record_filter import Judge, NotCompiled, RecordFilter

RETRY_TOPIC = "RETRY_TOPIC"
"""The property of a message in a retry topic that names the topic it was consumed from."""

_RETRY_TOPIC_MARK = mark_of(RETRY_TOPIC)
_KEPT_SIZE_MAX: Final = 5 << 20
"""Bytes of all kept functions together (`function_size`)."""


class ExpressionError(ValueError):
    """Raised for an invalid expression; the message has the position and the reason."""


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


_kept: OrderedDict[str, ExpressionFilter | str] = OrderedDict()
"""By text: the filter, or the reason why the expression is invalid; the least recently used one is the first."""
_kept_size = 0


def expression_filter(expression_type: str | None, expression: str | None, size_max: int) -> ExpressionFilter:
    """Return the filter of a subscription by expression, of at most `size_max` characters.

    Raises ValueError for an invalid expression or an unknown type, and NotCompiled.
    """
    if expression_type != SQL92:
        raise ValueError(f"unknown expression type {clipped(expression_type)}")
    if not expression:
        raise ValueError(f"a subscription by {expression_type} needs an expression")
    check_size(expression, size_max)
    found = _kept.get(expression)
    if found is None:
        raise NotCompiled(expression)
    _kept.move_to_end(expression)
    if isinstance(found, str):
        raise ExpressionError(found)
    return found


def check_size(text: str, size_max: int) -> None:
    """Raises ExpressionError for an expression with more than `size_max` characters."""
    if len(text) > size_max:
        has = f"the expression has {len(text)} characters"
        raise ExpressionError(f"{has}, the limit is {size_max} (maxFilterExpressionLength)")


def is_kept(text: str) -> bool:
    """Return whether the expression has been compiled, or found invalid."""
    return text in _kept


def keep_filter(text: str, found: Judge | str) -> None:
    """Keep the function of an expression, or the reason why it is invalid."""
    global _kept_size
    if isinstance(found, str):
        _kept[text] = found
    else:
        kind = ExpressionFilter if len(text) <= QUOTE_SIZE_MAX else UnsharedExpressionFilter
        _kept[text] = kind(found, size=function_size(text))
    _kept_size += function_size(text)
    while _kept_size > _KEPT_SIZE_MAX:
        _kept_size -= function_size(_kept.popitem(last=False)[0])


def function_size(text: str) -> int:
    """Return about the bytes of memory of an expression's function."""
    return 30 * len(text) + 3_000


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
