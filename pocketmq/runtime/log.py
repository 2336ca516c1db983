"""Where log lines go: standard error, one line a record, with message time in the machine's zone.

Lines quote what peers sent. So a long text is clipped, control characters are escaped (a line break in a name makes no line
of its own), and what is said again and again is left out and counted: each failure's traceback is written once a minute,
and no place in the code writes more than LINES_MAX lines a minute.
"""

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pocketmq.runtime.peer_text import REMARK_SIZE_MAX, clipped

FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s - %(message)s"
MESSAGE_SIZE_MAX: Final = 4000
"""Characters of a record's message."""
TRACEBACK_LINES_MAX: Final = 60
LINES_MAX: Final = 1000
"""Lines that one place in the code writes in a minute."""
PLACES_MAX: Final = 1000
"""Places that are remembered for this."""
_MINUTE_S: Final = 60.0
_CONTROL: Final = re.compile("[\\0-\\x1f\\x7f-\\x9f\\u2028\\u2029]")


def escaped(text: str) -> str:
    """`text` with its control characters written as escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class LineFormatter(logging.Formatter):
    """One line a record, whatever its arguments are; the lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = clipped(escaped(_message(record)), MESSAGE_SIZE_MAX)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        left_out = len(lines) - TRACEBACK_LINES_MAX
        if left_out > 0:
            half = TRACEBACK_LINES_MAX // 2
            lines[half:-half] = [f"... {left_out} lines left out"]
        return "\n".join("    " + clipped(escaped(line), REMARK_SIZE_MAX) for line in lines)


def _message(record: logging.LogRecord) -> str:
    """The message with clipped arguments."""
    if not record.args:
        return str(record.msg)
    try:
        return _formatted(record)
    except (TypeError, ValueError):  # an argument that is no number where the message wants one
        return record.getMessage()


def _formatted(record: logging.LogRecord) -> str:
    args = record.args
    if isinstance(args, Mapping):
        return str(record.msg) % {key: _argument(value) for key, value in args.items()}
    return str(record.msg) % tuple(map(_argument, args or ()))


def _argument(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    return clipped(value) if isinstance(value, str) else _Shown(value)


class _Shown:
    """An argument that is neither text nor number, by its clipped text."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return clipped(self._value, REMARK_SIZE_MAX)

    def __repr__(self) -> str:
        return clipped(repr(self._value), REMARK_SIZE_MAX)


class RepeatFilter(logging.Filter):
    """Leaves out what is written too often, and says how often with the next record of that place."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._places: dict[tuple[object, ...], list[float]] = {}  # begin of its minute, lines in it, lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        now, place = self._now(), _place_of(record)
        row = self._places.get(place)
        if row is None:
            if len(self._places) >= PLACES_MAX:
                del self._places[next(iter(self._places))]
            row = self._places[place] = [now, 0, 0]
        elif now - row[0] >= _MINUTE_S:
            row[0], row[1] = now, 0
        row[1] += 1
        if row[1] > (1 if record.exc_info else LINES_MAX):
            row[2] += 1
            return False
        if row[2]:
            record.msg, record.args = f"{_message(record)} ({int(row[2])} more like this were left out)", ()
            row[2] = 0
        return True


def _place_of(record: logging.LogRecord) -> tuple[object, ...]:
    """Where a record comes from; of a failure, where it was raised."""
    place = (record.pathname, record.lineno)
    if not record.exc_info or record.exc_info[2] is None:
        return place
    trace = record.exc_info[2]
    while trace.tb_next is not None:
        trace = trace.tb_next
    return (*place, record.exc_info[0], trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def setup(level: str = "INFO") -> None:
    """Log `level` and above of everything to standard error. For processes; tests and libraries leave logging alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
