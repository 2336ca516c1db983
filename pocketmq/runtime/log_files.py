"""Log files that are rotated, and lines in JSON. Imported only if they are configured, because the import is slow."""

import json
import logging
import logging.handlers
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pocketmq.runtime.log import LineFormatter, LogConfig, LogFormat
from pocketmq.runtime.peer_text import escaped_json

_COMPLAIN_S: Final = 60.0
"""Minimum time between two complaints about a log file that cannot be written."""


class JsonFormatter(LineFormatter):
    """Formatter that writes one JSON object per line, with the same limits as the lines of text."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self.message(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return escaped_json(json.dumps(document, ensure_ascii=False))


class LogFile(logging.handlers.RotatingFileHandler):
    """Log file that is rotated. If it cannot be written, standard error says so once a minute."""

    def __init__(self, path: Path, size_max: int, old_count: int) -> None:
        """Open the file for appending. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=size_max, backupCount=old_count, encoding="utf-8")
        self._complained_s = float("-inf")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        now_s = time.monotonic()
        if now_s - self._complained_s >= _COMPLAIN_S:
            self._complained_s = now_s
            sys.stderr.write(f"the log file {self.baseFilename} cannot be written: {sys.exc_info()[1]}\n")


def handlers(config: LogConfig, file_name: str) -> list[logging.Handler]:
    """Return the handlers that `config` asks for. Raises OSError if the log file cannot be opened."""
    made: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if config.log_directory:
        made[0].setLevel(logging.WARNING)
        path = Path(config.log_directory).expanduser() / file_name
        made.append(LogFile(path, config.log_file_size, config.log_file_count))
    if config.log_format is LogFormat.JSON:
        for handler in made:
            handler.setFormatter(JsonFormatter())
    return made
