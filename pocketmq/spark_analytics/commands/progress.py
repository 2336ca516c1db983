"""Progress display for Spark's running jobs on a terminal."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pocketmq.runtime.command_line.printer import Printer

POLL_S: Final = 0.2


def steps(console: Printer) -> Callable[[str], None]:
    """Return a function that prints a line per step, except on a terminal, where work without Spark is soon done."""
    return lambda description: None if console.is_terminal else console.print(f"reading: {description}")


class JobProgress:
    """Context manager that shows the completed tasks of running jobs; without a terminal, it prints a line per step.

    In a session of Spark Connect the numbers of tasks are unknown.
    """

    def __init__(self, spark: Any, console: Printer) -> None:
        context = getattr(spark, "sparkContext", None)
        self._tracker = None if context is None else context.statusTracker()
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"),
            TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=None)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="progress", daemon=True)

    def step(self, description: str) -> None:
        """Start a new part of the work."""
        if not self._console.is_terminal:
            self._console.print(f"reading: {description}")
        self._progress.reset(self._task, description=description, total=None)

    def __enter__(self) -> "JobProgress":
        self._progress.start()
        if self._console.is_terminal and self._tracker is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self._progress.stop()

    def _poll(self) -> None:
        while self._tracker is not None and not self._stopped.wait(POLL_S):
            try:
                stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            except Exception:  # the session has ended
                return
            running = [stage for stage in stages if stage is not None]
            if running:
                done = sum(stage.numCompletedTasks for stage in running)
                self._progress.update(self._task, completed=done, total=sum(stage.numTasks for stage in running))
