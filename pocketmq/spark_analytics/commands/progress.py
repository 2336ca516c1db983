"""Progress display for Spark's running jobs on a terminal."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pocketmq.runtime.command_line.printer import Printer

POLL_S: Final = 0.2


def steps(console: Printer) -> Callable[[str], None]:
    """Return a function that prints a line per step, except on a terminal, where work without Spark is soon done."""
    return lambda description: None if console.is_terminal else console.print(f"reading: {description}")


@contextmanager
def job_progress(spark: Any, console: Printer) -> Iterator[Callable[[str], None]]:
    """Show the completed tasks of running jobs; without a terminal, print a line per step.

    Yields the function that starts a step. In a session of Spark Connect the numbers of tasks are unknown.
    """
    context = getattr(spark, "sparkContext", None)
    progress = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"),
        TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    task = progress.add_task("", total=None)
    print_step = steps(console)

    def step(description: str) -> None:
        print_step(description)
        progress.reset(task, description=description, total=None)

    with progress, ExitStack() as at_end:
        if console.is_terminal and context is not None:
            stopped = threading.Event()
            polled = (context.statusTracker(), progress, task, stopped)
            thread = threading.Thread(target=_poll, args=polled, name="progress", daemon=True)
            thread.start()
            at_end.callback(thread.join, 5)
            at_end.callback(stopped.set)
        yield step


def _poll(tracker: Any, progress: Progress, task: TaskID, stopped: threading.Event) -> None:
    while not stopped.wait(POLL_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # the session has ended
            return
        running = [stage for stage in stages if stage is not None]
        if running:
            done = sum(stage.numCompletedTasks for stage in running)
            progress.update(task, completed=done, total=sum(stage.numTasks for stage in running))
