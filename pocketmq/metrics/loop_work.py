"""Work that another thread asks the event loop of the process to do, in short slices and within a deadline.

Tables of a server belong to its event loop, so the thread of the HTTP server never reads them. It has the loop copy what it
needs: the work is a generator that yields after each small piece, and the loop serves requests between slices.
"""

import asyncio
import contextlib
import time
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Generic, TypeVar

SLICE_S: Final = 0.001
"""Time that the loop works before it serves requests again."""
PAUSE_S: Final = 0.003

T = TypeVar("T")
Work = Generator[None, None, T]


class LoopStuck(Exception):
    """The event loop did not do the work in time."""


class _Task(Generic[T]):
    """Work that the loop is doing in slices."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> None:
        self.result: Future[tuple[T, float]] = Future()
        self._loop = loop
        self._work = work
        self._spent_s = 0.0

    def run(self) -> None:
        """Do one slice."""
        if self.result.cancelled():
            self._work.close()
            return
        began_s, end_s = time.thread_time(), time.perf_counter() + SLICE_S
        try:
            while time.perf_counter() < end_s:
                next(self._work)
        except StopIteration as end:
            with contextlib.suppress(InvalidStateError):  # the caller has given up meanwhile
                self.result.set_result((end.value, self._spent_s + time.thread_time() - began_s))
        except Exception as error:
            with contextlib.suppress(InvalidStateError):
                self.result.set_exception(error)
        else:
            self._spent_s += time.thread_time() - began_s
            self._loop.call_later(PAUSE_S, self.run)


async def on_loop(loop: asyncio.AbstractEventLoop, work: Work[Any], deadline_s: float) -> tuple[Any, float]:
    """Have `loop` do `work`; return its result and the CPU seconds that the loop spent on it.

    To be awaited on the event loop of another thread. Raises LoopStuck after `deadline_s`, or if `loop` has ended, and what
    the work raises.
    """
    task = _Task(loop, work)
    try:
        loop.call_soon_threadsafe(task.run)
    except RuntimeError:
        raise LoopStuck("the event loop has ended") from None
    try:
        async with asyncio.timeout(deadline_s):
            return await asyncio.wrap_future(task.result)
    except TimeoutError:
        task.result.cancel()
        raise LoopStuck(f"the event loop gave no answer within {deadline_s:g} s") from None
