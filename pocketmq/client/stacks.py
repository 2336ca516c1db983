"""The stacks of this process as text: what its tasks wait for and where its threads are."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Final

TASKS_MAX: Final = 500
FRAMES_MAX: Final = 50


def stacks() -> str:
    """Return the stacks of the running loop's tasks and of all threads, one line per frame, like jstack."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    lines: list[str] = []
    for task in tasks[:TASKS_MAX]:
        lines += _stack(
            f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}", task.get_stack(limit=FRAMES_MAX)
        )
    if len(tasks) > TASKS_MAX:
        lines.append(f"{len(tasks) - TASKS_MAX} more tasks")
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines += _stack(names.get(ident, str(ident)), [found for found, _ in traceback.walk_stack(frame)][:FRAMES_MAX])
    return "\n".join(lines) + "\n"


def _stack(name: str, frames: list[FrameType]) -> Iterator[str]:
    yield f"{name:<40}STACK:"
    for frame in frames:
        code = frame.f_code
        yield f"{name:<40}{code.co_qualname}({code.co_filename}:{frame.f_lineno})"
    yield ""
