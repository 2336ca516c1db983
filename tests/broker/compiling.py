"""SQL92 expressions compiled at once, without the cache that requests use."""

from collections.abc import Generator
from typing import TypeVar

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.filter.compiled_expressions import expression_steps
from pocketmq.broker.filter.expression_filter import check_size
from pocketmq.store.queue.record_filter import Judge

T = TypeVar("T")

SIZE_MAX = BrokerConfig.max_filter_expression_length
"""Default maximum of characters of an expression (maxFilterExpressionLength)."""


def compile_expression(text: str, size_max: int = SIZE_MAX) -> Judge:
    """Compile an expression. Raises ExpressionError."""
    check_size(text, size_max)
    return result_of(expression_steps(text))


def result_of(steps: Generator[None, None, T]) -> T:
    """Return the result of all `steps`."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
