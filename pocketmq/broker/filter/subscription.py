"""Subscriptions by tags, and their filters.

A tag expression is `*` (or empty) for all messages, else tags joined by `||`. The broker compares hash codes only, because
the ConsumeQueue holds nothing else; two tags may share a code, therefore clients compare the text again.
"""

from functools import lru_cache
from typing import Final

from pocketmq.runtime.peer_text import QUOTE_SIZE_MAX, clipped
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.queue.queue_reader import Matches
from pocketmq.store.queue.record_filter import RecordFilter

TAG: Final = "TAG"
SUB_ALL: Final = "*"
SQL92: Final = "SQL92"
SUBSCRIPTION_SIZE_MAX: Final = 64 * 1024
"""Maximum characters of a tag expression."""

Wanted = Matches | RecordFilter | None
"""Filter of the wanted messages of a queue; None for all messages."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression type is TAG, which is also the default."""
    return not expression_type or expression_type == TAG


def wants_all(expression_type: str | None, expression: str | None) -> bool:
    """Return whether a subscription is to all messages, as clients usually write it."""
    return (expression is None or expression == SUB_ALL) and (expression_type is None or expression_type == TAG)


def refusal(expression_type: str | None) -> str:
    """Return the remark (Apache's) for a consumer with another filter type while enablePropertyFilter is off."""
    return (
        f"The broker does not support consumer to filter message by {clipped(expression_type)} (enablePropertyFilter=false)"
    )


def split_tags(expression: str | None) -> list[str]:
    """Return the tags of an expression in order, an empty list for all messages. Raises ValueError for `||` alone."""
    if not expression or expression == SUB_ALL:
        return []
    pieces = expression.split("||")
    tags = [tag for piece in pieces if (tag := piece.strip())]
    if not any(pieces):
        raise ValueError(f"subscription {clipped(expression)!r} has no tag")
    return tags


def tag_filter(expression: str | None) -> Matches | None:
    """Return the filter of a tag expression, None for all messages. Raises ValueError.

    Short ones are cached, because a consumer repeats its expression in every pull. A set's own `__contains__` is the
    fastest callable for this.
    """
    if not expression or expression == SUB_ALL:
        return None
    if len(expression) <= QUOTE_SIZE_MAX:
        return _short_filter(expression)
    if len(expression) > SUBSCRIPTION_SIZE_MAX:
        size_max = SUBSCRIPTION_SIZE_MAX
        raise ValueError(f"the subscription by tags has {len(expression)} characters, the limit is {size_max}")
    return _filter(expression)


def _filter(expression: str) -> Matches:
    return frozenset(map(java_hash, split_tags(expression))).__contains__


_short_filter = lru_cache(maxsize=4096)(_filter)
