"""Values of SQL92 expressions, and how Java compares them.

A value is None, a bool, a str, a float (Java: Double), an int (Integer) or a `Long`. The last two differ in what a property
that they are compared with must be: the text of a number of their size. Other text makes the comparison an error, not a
false: the whole expression then has no verdict.
"""

import math
import re
from typing import Final

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_FLOATING: Final = re.compile(
    r"[\x00-\x20]*([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


class Long(int):
    """An integer of 64 bits."""


Value = bool | int | float | str | None


def integer(text: str) -> int:
    """Integer.valueOf. Raises ValueError for what is no integer of 32 bits."""
    return _whole(text, INTEGER_MAX)


def long_integer(text: str) -> int:
    """Long.valueOf. Raises ValueError for what is no integer of 64 bits."""
    return _whole(text, LONG_MAX)


def _whole(text: str, largest: int) -> int:
    digits = text[1:] if text.startswith(("+", "-")) else text
    # Digits of any script will do, but Java looks at UTF-16 units, and sees no digit in a surrogate.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError(f"{text!r} is no integer")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text!r} is not within {-largest - 1}..{largest}")
    return value


def double(text: str) -> float:
    """Double.valueOf. Raises ValueError for what is no number."""
    found = _FLOATING.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number")
    sign, nan, infinity, decimal, hexadecimal = found.groups()
    if nan:
        return math.nan
    try:
        value = math.inf if infinity else float(decimal) if decimal else float.fromhex(hexadecimal)
    except OverflowError:  # only float.fromhex raises it
        value = math.inf
    return -value if sign == "-" else value


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: -1, 0 or 1. Negative zero is below zero, NaN above everything and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    return 1 if math.isnan(number) else -1 if number == 0 and math.copysign(1, number) < 0 else 0


def equal(left: Value, right: Value) -> bool | None:
    """`left = right`, and `left IS NULL` with None for `right`; None when only `left` is missing. Raises ValueError."""
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return _compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Whether `left` is less than `right` (-1), equal (0) or greater (1); None without both. Raises ValueError."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(double(left), double(right))
    return _compare(left, right)


def negate(value: Value) -> Value:
    """`-value`; None for what is no number."""
    if value is None or isinstance(value, (bool, str)):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def _compare(left: Value, right: Value) -> int:
    """What is not of one kind becomes the kind of the constant, or of the wider number; else the left one is less."""
    if isinstance(left, bool) and isinstance(right, str):
        raise ValueError(f"{left} cannot stand before text")  # in Java a failed cast
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
