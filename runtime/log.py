"""Where log lines go: standard error, one line a record, with message time in the machine's zone."""

import logging
import sys
from typing import Final

FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s - %(message)s"


def setup(level: str = "INFO") -> None:
    """Log `level` and above of everything to standard error. For processes; tests and libraries leave logging alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
