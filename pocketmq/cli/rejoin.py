"""`pocketmq store rejoin`: cuts off the log of a stopped broker at the first record that differs from its master's log.

A former master that a slave has replaced may have records at the end of its log that the new master does not have. As a
slave it would copy nothing. This command reads records of the master through its port for clients, finds the first that
differs, saves the bytes from there on in `quarantine/`, and cuts them off; the broker can then be started as a slave.

If the master itself stored what would be cut, then its store is an older copy, or lost its end in a power cut: the messages
may be acknowledged, and nothing is cut without --older-master.
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
from pocketmq.store.ha.log_comparison import (
    diverged_at,
    is_lost_by_other,
    is_same,
    offsets_in_file,
    tail_differs_at,
)
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
            offset, is_master_older = asyncio.run(_diverged_at(store, options.master))
        except (OSError, TimeoutError) as error:
            raise CommandError(f"master {options.master} does not answer: {reason(error)}", _UNREACHABLE) from error
    finally:
        store.shutdown()
    if offset is None:
        console.print(f"nothing to do: the log ends at {end}, and the master has the same record at its end")
        return 0
    if is_master_older and not options.older_master:
        console.print(
            f"the master's log is older than this one: they differ from physical offset {offset} on. The master itself "
            f"stored the {end - offset} bytes that this log has from there on, and has lost them: its store is an older "
            "copy, or lost its end in a power cut. The messages may be acknowledged. Nothing is done: stop the master and "
            "start this store as the master; with --older-master they are cut off all the same", markup=False,
        )  # fmt: skip
        return EXIT_REFUSED
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


async def _diverged_at(store: MessageStore, master: str) -> tuple[int | None, bool]:
    """Return the first physical offset at which the master's log differs, or None, and whether the master's is older."""
    client, files = PLAIN.client(), store.commit_log.mapped_files
    try:
        record_at = partial(master_record, client, master)
        if not files.files:
            return None, False
        if await is_same(files, store.last_record_offset, record_at):
            end_of_master = partial(master_log_offset, client, master, "commitLogMaxOffset")
            offset = await tail_differs_at(files, store.last_record_offset, record_at, end_of_master)
        else:
            offset = await diverged_at(files, lambda start: asyncio.to_thread(offsets_in_file, files, start), record_at)
        if offset is None:
            return None, False
        return offset, await is_lost_by_other(files, offset, record_at, await _addresses(master))
    finally:
        await client.close()


async def _addresses(master: str) -> set[str]:
    """Return `master` with each IP address of its host. Raises OSError."""
    host, _, port = master.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port))
    return {f"[{row[4][0]}]:{port}" if ":" in str(row[4][0]) else f"{row[4][0]}:{port}" for row in found}


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
