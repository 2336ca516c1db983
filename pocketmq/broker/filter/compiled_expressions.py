"""Functions of SQL92 expressions, kept by their text, because consumers repeat their expression in every pull.

Compiling a long expression takes as long as hundreds of requests. Therefore it is done in small steps, which run in slices
(`runtime.work_slices`); a request whose expression is not compiled yet waits for them.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterator
from typing import Final

from pocketmq.broker.filter.expression import SIZE_MAX, ExpressionError, check_size, parsing, result_of
from pocketmq.broker.filter.expression_code import function_steps
from pocketmq.broker.filter.expression_filter import function_size
from pocketmq.store.queue.record_filter import Judge, NotCompiled

_KEPT_SIZE_MAX: Final = 5 << 20
"""Bytes of all kept functions together (`function_size`)."""

_kept: OrderedDict[str, Judge | str] = OrderedDict()
"""By text: the function, or the reason why the expression is invalid; the least recently used one is the first."""
_kept_size = 0


def compiled(text: str, size_max: int) -> Judge:
    """Return the function of an expression. Raises ExpressionError, and NotCompiled if `compilation` must be run first."""
    check_size(text, size_max)
    found = _kept.get(text)
    if found is None:
        raise NotCompiled(text)
    _kept.move_to_end(text)
    if isinstance(found, str):
        raise ExpressionError(found)
    return found


def compilation(text: str) -> Iterator[None]:
    """Compile an expression in small steps; after the last one `compiled` returns its function or raises its error."""
    steps = _steps(text)
    while text not in _kept:  # another request may have the same expression
        try:
            next(steps)
        except StopIteration as end:
            _keep(text, end.value)
            return
        except ExpressionError as error:
            _keep(text, str(error))
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


def _keep(text: str, found: Judge | str) -> None:
    global _kept_size
    _kept[text] = found
    _kept_size += function_size(text)
    while _kept_size > _KEPT_SIZE_MAX:
        _kept_size -= function_size(_kept.popitem(last=False)[0])
