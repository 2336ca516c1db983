"""Logging, by default to standard error: one line per record, with local time.

Log lines quote text sent by peers. Long texts are therefore clipped, control characters are escaped (a line break in a name
cannot forge a log line), and repetitions are counted instead of written: the traceback of a failure is written once a
minute, and no place in the code writes more than LINES_MAX lines a minute.
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pocketmq.runtime.config import setting
from pocketmq.runtime.peer_text import REMARK_SIZE_MAX, clipped, escaped

FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s - %(message)s"
MESSAGE_SIZE_MAX: Final = 4000
"""Maximum length of a message in characters."""
TRACEBACK_LINES_MAX: Final = 60
LINES_MAX: Final = 1000
"""Maximum number of lines per minute from one place in the code."""
PLACES_MAX: Final = 1000
"""Maximum number of places whose lines are counted."""
_MINUTE_S: Final = 60.0


class LogFormat(Enum):
    """Form of a log record."""

    TEXT = "text"
    JSON = "json"


@dataclass
class LogConfig:
    """PocketMQ's own config keys; Apache configures its log by files of logback."""

    log_directory: str = ""
    """Folder of the log file; `~/logs/rocketmqlogs` is Apache's. Empty: everything goes to standard error, else only
    warnings and errors do."""
    log_format: LogFormat = LogFormat.TEXT
    """text or json."""
    log_file_size: int = setting(100 << 20, low=64 << 10)
    """Size in bytes at which a new log file is begun; the old one is renamed to `broker.log.1`."""
    log_file_count: int = setting(10, low=1, high=1000)
    """Number of old log files that are kept."""


class LineFormatter(logging.Formatter):
    """Formatter that writes one line per record, whatever its arguments contain; traceback lines are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = self.message(record)
        return super().formatMessage(record)

    def message(self, record: logging.LogRecord) -> str:
        """Return the message of a record, clipped and without control characters."""
        return clipped(escaped(_message(record)), MESSAGE_SIZE_MAX)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        left_out = len(lines) - TRACEBACK_LINES_MAX
        if left_out > 0:
            half = TRACEBACK_LINES_MAX // 2
            lines[half:-half] = [f"... {left_out} lines left out"]
        return "\n".join("    " + clipped(escaped(line), REMARK_SIZE_MAX) for line in lines)


def _message(record: logging.LogRecord) -> str:
    """Return the message with clipped arguments."""
    args = record.args
    if not args:
        return str(record.msg)
    try:
        if isinstance(args, Mapping):
            return str(record.msg) % {key: _argument(value) for key, value in args.items()}
        return str(record.msg) % tuple(map(_argument, args))
    except (TypeError, ValueError):  # e.g. %d with an argument that is not a number
        return record.getMessage()


def _argument(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    return clipped(value) if isinstance(value, str) else _Shown(value)


class _Shown:
    """Wrapper of an argument that is neither text nor number; formats as its clipped text."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return clipped(self._value, REMARK_SIZE_MAX)

    def __repr__(self) -> str:
        return clipped(repr(self._value), REMARK_SIZE_MAX)


class RepeatFilter(logging.Filter):
    """Filter that drops repetitions and adds their number to the next record of the same place."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._places: dict[tuple[object, ...], list[float]] = {}  # start of the minute, lines in it, lines dropped

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
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
    """Return the key of the code that logged the record; for an exception it includes the place that raised it."""
    place = (record.pathname, record.lineno)
    if not record.exc_info or record.exc_info[2] is None:
        return place
    trace = record.exc_info[2]
    while trace.tb_next is not None:
        trace = trace.tb_next
    return (*place, record.exc_info[0], trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def setup_as(config: LogConfig, file_name: str, level: str = "INFO") -> None:
    """Begin to log as configured; `file_name` is that of the log file, if there is one. Raises OSError."""
    if not config.log_directory and config.log_format is LogFormat.TEXT:
        setup(level)
        return
    from pocketmq.runtime import log_files

    setup("INFO" if config.log_directory else level, log_files.handlers(config, file_name))


def setup(level: str = "INFO", handlers: Sequence[logging.Handler] = ()) -> None:
    """Log everything of `level` and above to `handlers`, by default to standard error; those without a formatter write lines
    of text. Called by programs only, not by tests or library users."""
    handlers = handlers or [logging.StreamHandler(sys.stderr)]
    for handler in handlers:
        if handler.formatter is None:
            handler.setFormatter(LineFormatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
        handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
