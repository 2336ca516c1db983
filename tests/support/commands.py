"""Commands called in the process of the test, which takes a small part of the time that a process of their own takes."""

import contextlib
import io
import logging
import signal
import subprocess
from collections.abc import Callable
from unittest.mock import patch

CHANGED_BY_COMMANDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def call(main: Callable[[list[str]], object], *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """Call a program's `main` as a process with pipes would, with `text` as its standard input."""
    words = [str(one) for one in arguments]
    out, errors = io.BytesIO(), io.BytesIO()
    pipes = [io.TextIOWrapper(one, "utf-8", write_through=True) for one in (out, errors)]
    handlers = [(number, signal.getsignal(number)) for number in CHANGED_BY_COMMANDS]
    levels = {logger: logger.level for logger in _loggers()}
    with (
        patch("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")),
        contextlib.redirect_stdout(pipes[0]),
        contextlib.redirect_stderr(pipes[1]),
    ):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
            for logger in _loggers():
                logger.setLevel(levels.get(logger, logging.NOTSET))
    for pipe in pipes:
        pipe.flush()
    return subprocess.CompletedProcess(words, int(str(code or 0)), out.getvalue().decode(), errors.getvalue().decode())


def _loggers() -> list[logging.Logger]:
    return [logging.root, *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
