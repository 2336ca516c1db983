"""Text from peers and of messages, made fit to be shown: clipped, and without characters that control a terminal."""

import re
from datetime import datetime
from typing import Final

QUOTE_SIZE_MAX: Final = 200
"""Maximum number of characters of a peer's text that are quoted."""
REMARK_SIZE_MAX: Final = 1000
"""Maximum length of a whole remark in characters."""
_NEVER_SHOWN: Final = r"\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL: Final = re.compile(rf"[\0-\x1f{_NEVER_SHOWN}]")
"""Control characters, breaks of lines and paragraphs, changes of direction, and surrogates, which no output can encode."""
_NOT_PRINTABLE: Final = re.compile(rf"[\0-\x08\x0b\x0c\x0e-\x1f{_NEVER_SHOWN}]|\r(?!\n)")
_NOT_IN_JSON: Final = re.compile(f"[{_NEVER_SHOWN}]")


def printable(text: str) -> str:
    """Return a text for people, with `?` for each character that a terminal would obey; line breaks and tabs are kept."""
    return _NOT_PRINTABLE.sub("?", text)


def escaped(text: str) -> str:
    """Return a text as one line, with control characters as escapes such as `\\x1b`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped_json(text: str) -> str:
    """Return a JSON document with the same value, in which control characters of strings are escapes."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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


def time_text(time_ms: int, form: str) -> str:
    """Return local time in a form of `strftime`, with `%f` for milliseconds; the number itself if it is not a valid date.

    Clients choose the birth time of a message, so it may be any number.
    """
    try:
        moment = datetime.fromtimestamp(time_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return moment.strftime(form.replace("%f", f"{time_ms % 1000:03d}"))
