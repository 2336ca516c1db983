"""Writer of small files in a background thread. Changes are combined, and each caller learns when its change is on disk.

A table calls `write` after each change. At the end of the loop turn a snapshot of the table is taken and written by the
thread; all changes during that write go into the next one. So the number of writes does not grow with the number of changes,
and the event loop never waits for the disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

log = logging.getLogger("runtime")

Written = asyncio.Future[Exception | None]
"""Resolved once a state is on disk: None, or the error that prevented it."""


class Table(Protocol):
    """Table that a `TableWriter` can write. Both methods are called in the event loop."""

    def snapshot(self) -> Callable[[], object]:
        """Copy the current state; return the function that writes the copy, to be called in another thread."""

    def written(self, error: Exception | None) -> None:
        """Called when the last snapshot is on disk, or with the error that prevented it: its changes must then be undone."""


class _Writes:
    """Pending and running write of one table."""

    def __init__(self) -> None:
        self.next: Written | None = None
        self.running: Written | None = None
        self.is_running = False


class TableWriter:
    """Writes tables one after the other in `executor`, which must have exactly one thread."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._writes = defaultdict[Table, _Writes](_Writes)

    def write(self, table: Table) -> Written:
        """Schedule a write of the table's state at the end of this turn, or at the end of its running write."""
        writes = self._writes[table]
        if writes.next is None:
            loop = asyncio.get_running_loop()
            writes.next = loop.create_future()
            if not writes.is_running:
                writes.is_running = True
                loop.call_soon(self._begin, table, writes)
        return writes.next

    def run(self, work: Callable[[], object]) -> Written:
        """Run `work` in the writer's thread, after the writes scheduled so far."""
        done: Written = asyncio.get_running_loop().create_future()
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        running.add_done_callback(lambda over: done.set_result(_error_of(over)))
        return done

    def next(self, table: Table) -> Written | None:
        """Return the future of the scheduled write, None if the running one includes all changes."""
        return self._writes[table].next

    def running(self, table: Table) -> Written | None:
        """Return the future of the running write, if any."""
        return self._writes[table].running

    async def drain(self) -> None:
        """Wait until all changes are written or have failed."""
        while any(writes.is_running for writes in self._writes.values()):
            for table, writes in tuple(self._writes.items()):
                if writes.is_running:
                    await self.write(table)

    def _begin(self, table: Table, writes: _Writes) -> None:
        done, writes.next = writes.next, None
        assert done is not None
        writes.running = done
        try:
            running = asyncio.get_running_loop().run_in_executor(self._executor, table.snapshot())
        except Exception as error:
            log.exception("a table cannot be written")
            self._end(table, writes, done, error)
            return
        running.add_done_callback(lambda over: self._end(table, writes, done, _error_of(over)))

    def _end(self, table: Table, writes: _Writes, done: Written, error: Exception | None) -> None:
        writes.running = None
        table.written(error)
        if writes.next is None:
            writes.is_running = False
        else:
            asyncio.get_running_loop().call_soon(self._begin, table, writes)
        if not done.done():
            done.set_result(error)


def _error_of(over: "asyncio.Future[object]") -> Exception | None:
    error = RuntimeError("the writer is stopped") if over.cancelled() else over.exception()
    return error if error is None or isinstance(error, Exception) else RuntimeError(str(error))
