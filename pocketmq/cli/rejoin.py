"""`pocketmq store rejoin`: cuts off the log of a stopped broker at the first record that differs from its master's log.

A former master that a slave has replaced may have records at the end of its log that the new master does not have. As a
slave it would copy nothing. This command reads records of the master through its port for clients, finds the first that
differs, saves the bytes from there on in `quarantine/`, and cuts them off; the broker can then be started as a slave.
"""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Final

from pocketmq.broker.ha.master_log import master_log_offset, master_record
from pocketmq.client.access import PLAIN
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.command_line.commands import CommandError
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.error_text import reason
from pocketmq.store.ha.log_comparison import diverged_at, is_same, offsets_in_file, tail_differs_at
from pocketmq.store.log import quarantine
from pocketmq.store.message_store import MessageStore
from pocketmq.store_tools.check.repair import EXIT_REFUSED, agreed
from pocketmq.store_tools.files.stopped_store import stopped_store
from pocketmq.store_tools.files.store_files import StoreFiles

_UNREACHABLE: Final = 3


def rejoin(options: SimpleNamespace, console: Printer) -> int:
    """Run the command; return its exit code."""
    store = stopped_store(options.root, StoreFiles(options.root, options.commitlog), SystemClock())
    store.load()
    try:
        end = store.max_physical_offset
        try:
            offset = asyncio.run(_diverged_at(store, options.master))
        except (OSError, TimeoutError) as error:
            raise CommandError(f"master {options.master} does not answer: {reason(error)}", _UNREACHABLE) from error
    finally:
        store.shutdown()
    if offset is None:
        console.print(f"nothing to do: the log ends at {end}, and the master has the same record at its end")
        return 0
    saved = f"{options.root}/quarantine"
    console.print(
        f"the logs differ from physical offset {offset} on: the last {end - offset} bytes are saved in {saved} and cut off. "
        "The master's messages replace them. Messages that only this log has can be read there, or exported before you "
        "continue",
    )  # fmt: skip
    if not options.yes and not agreed(console):
        console.print("nothing is done")
        return EXIT_REFUSED
    console.print(f"saved in {_cut(options, offset, end)}")
    return 0


async def _diverged_at(store: MessageStore, master: str) -> int | None:
    """Return the first physical offset at which the master's log differs; None if it does not."""
    client, files = PLAIN.client(), store.commit_log.mapped_files
    try:
        record_at = partial(master_record, client, master)
        if not files.files:
            return None
        if await is_same(files, store.last_record_offset, record_at):
            end_of_master = partial(master_log_offset, client, master, "commitLogMaxOffset")
            return await tail_differs_at(files, store.last_record_offset, record_at, end_of_master)
        return await diverged_at(files, lambda start: asyncio.to_thread(offsets_in_file, files, start), record_at)
    finally:
        await client.close()


def _cut(options: SimpleNamespace, offset: int, end: int) -> str:
    """Save and cut off the log's bytes [offset, end); the store's recovery then truncates queues and index."""
    store = stopped_store(options.root, StoreFiles(options.root, options.commitlog), SystemClock())
    files, lock = store.commit_log.mapped_files, store.disk.lock(store.config.store_path("lock"))
    try:
        files.load()
        why = f"the log of master {options.master} has other records"
        path = quarantine.save(files, f"{options.root}/quarantine", offset, end, why, store.clock.message_time_ms())
        files.truncate(offset)
        files.sync_names()
        files.close()
    finally:
        lock.close()
    recovered = stopped_store(options.root, StoreFiles(options.root, options.commitlog), SystemClock())
    recovered.load()
    recovered.shutdown()
    return path
