"""Values of SQL92 expressions, compared as Java compares them.

A value is None, a bool, a str, a float (Java: Double), an int (Integer) or a `Long`. A property compared with an int or a
Long must be the text of an integer of that size. Other text is an error, and not merely false: the whole expression then
has no result.
"""

import math
import re
from functools import lru_cache
from typing import Final

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_FLOATING: Final = re.compile(
    # Possessive quantifiers (`++`): without them the time for a long text would grow with the square of its length.
    r"[\x00-\x20]*+([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]*+\.[0-9a-fA-F]++|[0-9a-fA-F]++\.?)[pP][+-]?[0-9]++)[fFdD]?)[\x00-\x20]*+"
)

_MEMO: Final = 8
"""Results kept of each conversion: an expression may compare one long text many times. Few, because texts may be long."""


class Long(int):
    """An integer of 64 bits."""


Value = bool | int | float | str | None


@lru_cache(maxsize=_MEMO)
def integer(text: str) -> int:
    """Java's Integer.valueOf. Raises ValueError for text that is not a 32-bit integer."""
    return _whole(text, INTEGER_MAX)


@lru_cache(maxsize=_MEMO)
def long_integer(text: str) -> int:
    """Java's Long.valueOf. Raises ValueError for text that is not a 64-bit integer."""
    return _whole(text, LONG_MAX)


def _whole(text: str, largest: int) -> int:
    digits = text[1:] if text.startswith(("+", "-")) else text
    # Digits of any script are valid. Java looks at UTF-16 units, and a surrogate is not a digit.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError(f"{text!r} is not an integer")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text!r} is not within {-largest - 1}..{largest}")
    return value


@lru_cache(maxsize=_MEMO)
def double(text: str) -> float:
    """Java's Double.valueOf. Raises ValueError for text that is not a number."""
    found = _FLOATING.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number")
    sign, nan, infinity, decimal, hexadecimal = found.groups()
    if nan:
        return math.nan
    try:
        value = math.inf if infinity else float(decimal) if decimal else float.fromhex(hexadecimal)
    except OverflowError:  # only float.fromhex raises it
        value = math.inf
    return -value if sign == "-" else value


def compare_doubles(left: float, right: float) -> int:
    """Java's Double.compareTo: -1, 0 or 1. Negative zero is below zero; NaN is above all others and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    return 1 if math.isnan(number) else -1 if number == 0 and math.copysign(1, number) < 0 else 0


def equal(left: Value, right: Value) -> bool | None:
    """Evaluate `left = right`, or `left IS NULL` if `right` is None. Raises ValueError.

    Return None when only `left` is None.
    """
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return _compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Return -1, 0 or 1 for `left` less than, equal to or greater than `right`; None if one is None. Raises ValueError."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(double(left), double(right))
    return _compare(left, right)


def negate(value: Value) -> Value:
    """Return `-value`, or None for a value that is not a number."""
    if value is None or isinstance(value, (bool, str)):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def _compare(left: Value, right: Value) -> int:
    """Compare after conversion: text to the kind of the other value, numbers to the wider kind.

    Kinds that cannot be converted compare as -1.
    """
    if isinstance(left, bool) and isinstance(right, str):
        raise ValueError(f"{left} cannot be compared with text on its right")  # in Java a failed cast
    if isinstance(left, str) and not isinstance(right, str):
        left = _like(right, left)
    elif isinstance(right, str) and not isinstance(left, str):
        right = _like(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))  # type: ignore[arg-type]
    return (left > right) - (left < right)  # type: ignore[operator]


def _like(kind: Value, text: str) -> Value:
    if isinstance(kind, bool):
        return text.lower() == "true"
    if isinstance(kind, float):
        return double(text)
    return long_integer(text) if isinstance(kind, Long) else integer(text)
