"""Functions of SQL92 expressions, compiled from their text.

Compiling a long expression takes as long as hundreds of requests. Therefore it is done in small steps, which run in slices
(`runtime.work_slices`); a request whose expression is not compiled yet waits for them.
"""

from collections.abc import Generator, Iterator

from pocketmq.broker.filter.expression import parsing
from pocketmq.broker.filter.expression_code import function_steps
from pocketmq.broker.filter.expression_filter import ExpressionError, is_kept, keep_filter
from pocketmq.store.queue.record_filter import Judge


def compilation(text: str) -> Iterator[None]:
    """Compile an expression in small steps; then `expression_filter` returns its filter or raises its error."""
    steps = expression_steps(text)
    while not is_kept(text):  # another request may have the same expression
        try:
            next(steps)
        except StopIteration as end:
            keep_filter(text, end.value)
            return
        except ExpressionError as error:
            keep_filter(text, str(error))
            return
        yield


def expression_steps(text: str) -> Generator[None, None, Judge]:
    """Compile an expression in small steps; the result is its function. Raises ExpressionError."""
    tree = yield from parsing(text)
    try:
        return (yield from function_steps(tree))
    except RecursionError:
        raise ExpressionError("too many nested parts") from None
