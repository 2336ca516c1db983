"""Clipping of text from peers that is quoted in remarks, errors and log lines."""

from typing import Final

QUOTE_SIZE_MAX: Final = 200
"""Maximum number of characters of a peer's text that are quoted."""
REMARK_SIZE_MAX: Final = 1000
"""Maximum length of a whole remark in characters."""


def clipped(text: object, size_max: int = QUOTE_SIZE_MAX) -> str:
    """Return `text` if it is short enough, else its first `size_max` characters and its length."""
    shown = str(text)
    return shown if len(shown) <= size_max else f"{shown[:size_max]}... ({len(shown)} characters)"


def remark_of(text: str) -> str:
    """Return a remark within REMARK_SIZE_MAX. A longer one is cut in the middle: the ends are not from the peer."""
    if len(text) <= REMARK_SIZE_MAX:
        return text
    left_out = len(text) - 2 * QUOTE_SIZE_MAX
    return f"{text[:QUOTE_SIZE_MAX]}... ({left_out} characters left out) ...{text[-QUOTE_SIZE_MAX:]}"
