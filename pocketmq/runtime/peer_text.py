"""Text of peers in remarks, errors and log lines: clipped, so that what we say of it never has its length."""

from typing import Final

QUOTE_SIZE_MAX: Final = 200
"""Characters of a peer's text that are repeated to it or logged."""
REMARK_SIZE_MAX: Final = 1000
"""Characters of a whole remark."""


def clipped(text: object, size_max: int = QUOTE_SIZE_MAX) -> str:
    """`text` if it is short enough; else its first `size_max` characters, and how many it has."""
    shown = str(text)
    return shown if len(shown) <= size_max else f"{shown[:size_max]}... ({len(shown)} characters)"


def remark_of(text: str) -> str:
    """A remark within REMARK_SIZE_MAX: of a longer one the ends stay, where our own words stand."""
    if len(text) <= REMARK_SIZE_MAX:
        return text
    left_out = len(text) - 2 * QUOTE_SIZE_MAX
    return f"{text[:QUOTE_SIZE_MAX]}... ({left_out} characters left out) ...{text[-QUOTE_SIZE_MAX:]}"
