"""Functions of SQL92 expressions, compiled from their text.

Compiling a long expression takes as long as hundreds of requests. Therefore it is done in small steps, which run in slices
(`runtime.work_slices`); a request whose expression is not compiled yet waits for them.
"""

from collections.abc import Generator, Iterator

from pocketmq.broker.filter.expression import SIZE_MAX, parsing, result_of
from pocketmq.broker.filter.expression_code import function_steps
from pocketmq.broker.filter.expression_filter import ExpressionError, check_size, is_kept, keep_filter
from pocketmq.store.queue.record_filter import Judge


def compilation(text: str) -> Iterator[None]:
    """Compile an expression in small steps; then `expression_filter` returns its filter or raises its error."""
    steps = _steps(text)
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


def compile_expression(text: str, size_max: int = SIZE_MAX) -> Judge:
    """Compile an expression at once. Raises ExpressionError."""
    check_size(text, size_max)
    return result_of(_steps(text))


def _steps(text: str) -> Generator[None, None, Judge]:
    tree = yield from parsing(text)
    try:
        return (yield from function_steps(tree))
    except RecursionError:
        raise ExpressionError("too many nested parts") from None
