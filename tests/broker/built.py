"""The parts of a broker as `broker.wiring` builds them, without sockets and threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pocketmq.broker import wiring
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.services import Services
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.table_writer import Table, TableWriter, Written
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk

PORT = 10911


class InlineExecutor(Executor):
    """Runs each submitted call at once, in the caller's thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class InlineTableWriter(TableWriter):
    """Writes each change of a table before `write` returns."""

    def __init__(self) -> None:
        super().__init__(InlineExecutor())

    def write(self, table: Table) -> Written:
        done = _Done()
        try:
            table.snapshot()()
        except OSError as error:
            done.error = error
        table.written(done.error)
        return done  # type: ignore[return-value]

    def run(self, work: Callable[[], object]) -> Written:
        work()
        return _Done()  # type: ignore[return-value]


class _Done:
    """A completed write: callbacks run when they are added."""

    error: Exception | None = None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        callback(self)

    def result(self) -> Exception | None:
        return self.error


def build(
    disk: Disk, clock: Clock, store: dict[str, Any], broker: dict[str, Any] | None = None, *, loop: Any = None, **how: Any
) -> Services:
    """Build the parts without recovery and start. `loop` defaults to the running loop; `how` is passed to `wiring.build`."""
    config = BrokerConfig(**{"namesrv_addr": None, "broker_name": "b", "broker_ip1": "127.0.0.1", **(broker or {})})
    store_config = MessageStoreConfig(**{"store_path_root_dir": "/store", **store})
    loop = loop or asyncio.get_running_loop()
    return wiring.build(config, store_config, disk, clock, loop, port=PORT, tables=InlineTableWriter(), **how)
