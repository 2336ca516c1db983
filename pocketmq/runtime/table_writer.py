"""Small files that are written off the loop: many changes in one write, and each change told when it is on the disk.

A table says that it changed by `write`, as often as it likes. At the end of the turn its state is taken and written in the
writer's thread; whatever changes meanwhile goes into the next write, together. So the number of writes does not grow with
the number of changes, and the loop waits for no disk.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

log = logging.getLogger("runtime")

Written = asyncio.Future[Exception | None]
"""Done when a state is on the disk: None, or why it is not."""


class Table(Protocol):
    """What a `TableWriter` writes."""

    def snapshot(self) -> Callable[[], object]:
        """In the loop: take the state as it is; the function that is returned writes it, in another thread."""

    def written(self, error: Exception | None) -> None:
        """In the loop: the state that was taken last is on the disk; with an error it is not, and what changed is void."""


class _Writes:
    """The writes of one table."""

    def __init__(self) -> None:
        self.next: Written | None = None
        self.running: Written | None = None
        self.is_running = False


class TableWriter:
    """Writes tables one after the other by `executor`, which must have one thread."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._writes: dict[Table, _Writes] = {}

    def write(self, table: Table) -> Written:
        """Write the table as it is at the end of this turn, or when the write under way is over."""
        writes = self._writes.get(table)
        if writes is None:
            writes = self._writes[table] = _Writes()
        if writes.next is None:
            loop = asyncio.get_running_loop()
            writes.next = loop.create_future()
            if not writes.is_running:
                writes.is_running = True
                loop.call_soon(self._begin, table, writes)
        return writes.next

    def run(self, work: Callable[[], object]) -> Written:
        """Have `work` done in the writer's thread, behind what it was told to write."""
        done: Written = asyncio.get_running_loop().create_future()
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        running.add_done_callback(lambda over: done.set_result(_error_of(over)))
        return done

    def next(self, table: Table) -> Written | None:
        """Of the write that is still to begin, if something changed that the one under way does not hold."""
        writes = self._writes.get(table)
        return None if writes is None else writes.next

    def running(self, table: Table) -> Written | None:
        """Of the write that is under way."""
        writes = self._writes.get(table)
        return None if writes is None else writes.running

    async def drain(self) -> None:
        """Wait until all that changed is written, or has failed."""
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
