"""Progress of the store's recovery: a bar on a terminal, else a log line every few seconds."""

import logging
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

log = logging.getLogger("broker")

# A shorter recovery shows no progress, so that most starts never import rich.
_FIRST_S: Final = 1.0
_LOG_EVERY_S: Final = 5.0


class RecoveryProgress(ExitStack):
    """Progress callback of `MessageStore.load`: takes (step, bytes done, maximum of bytes to do)."""

    def __init__(self) -> None:
        super().__init__()
        self._began = self._logged = time.monotonic()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began < _FIRST_S:
            return
        if sys.stderr.isatty():
            self._draw(what, done, total)
        elif now - self._logged >= _LOG_EVERY_S:
            self._logged = now
            log.info("%s: %.0f of at most %.0f MiB", what, done / 2**20, total / 2**20)

    def _draw(self, what: str, done: int, total: int) -> None:
        bar = self._bar or self._make_bar()
        if what not in self._tasks:
            self._tasks[what] = bar.add_task(what, total=total)
        bar.update(self._tasks[what], completed=done)

    def _make_bar(self) -> "Progress":
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        from pocketmq.runtime.command_line.printer import Printer

        columns: Any = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = self.enter_context(Progress(*columns, console=Printer(stderr=True), transient=True))
        return self._bar
