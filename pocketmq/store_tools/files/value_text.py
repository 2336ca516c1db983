"""Stored values as text: times and the names of compression algorithms."""

from datetime import datetime
from typing import Final

TIME_FORMS: Final = "a time such as 2026-11-21, 2026-11-21T12:30:05.250, 2026-11-21T12:30:05+00:00 or epoch ms"
COMPRESSION_MASK: Final = 0x700
COMPRESSIONS: Final = {0: "ZLIB", 0x100: "LZ4", 0x200: "ZSTD", 0x300: "ZLIB"}


def time_text(time_ms: int) -> str:
    """Return local time with milliseconds, a form that `--from` accepts; the number itself if it is not a valid date."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def parse_time_ms(text: str) -> int:
    """Parse a time to epoch ms: ISO 8601 (local without a zone), or epoch ms.

    Raises ValueError with the accepted forms.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r}: expected {TIME_FORMS}") from None
