"""`repair`: rebuilds queues, index and checkpoint from the log of a store that is not in use.

The store's own recovery rebuilds them, without relying on any existing file. This module adds the user interface: the
plan after a first `verify`, a progress bar, and a second `verify` at the end.
"""

import sys
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.layout import QUEUE_OFFSET_POSITION
from pocketmq.store.log.quarantine import apply
from pocketmq.store.offline.log_walk import Gap, LogWalk, read_record
from pocketmq.store.queue.bulk_dispatch import BulkDispatcher
from pocketmq.store_tools.check import report
from pocketmq.store_tools.check.queue_check import Misnumbered
from pocketmq.store_tools.check.verify import Verification, Verify
from pocketmq.store_tools.files.stopped_store import stopped_store
from pocketmq.store_tools.files.store_files import StoreFiles

EXIT_REFUSED: Final = 4


def agreed(console: Printer) -> bool:
    """Ask for confirmation; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        console.print("standard input is not a terminal, so you are not asked to confirm: use --yes to confirm")
        return False
    return input("go on? [y/N] ").strip().lower() in ("y", "yes")


class Repair:
    """One repair of one store. Raises StoreError if it is in use, OSError."""

    def __init__(self, files: StoreFiles, console: Printer, delay_levels: str | None = None) -> None:
        """`delay_levels` is the broker's messageDelayLevel, which gives delayed messages their delivery times."""
        self._files = files
        self._console = console
        self._store = stopped_store(files.root, files, SystemClock(), delay_levels)

    def run(self, *, queues: bool, index: bool, quarantine: bool, is_agreed: bool) -> int:
        """Repair the store; return the exit code of the second `verify`, or EXIT_REFUSED if nothing was done."""
        before = self._look("before", self._files)
        gaps = before.gaps
        if gaps and not quarantine:
            self._say(
                f"nothing is done: the log is damaged in {len(gaps)} places. With --quarantine the damaged bytes are "
                f"saved in {self._files.root}/quarantine and replaced by fillers, so that the messages after them are served"
            )
            return EXIT_REFUSED
        self._say_plan(before, queues=queues, index=index)
        if not is_agreed and not agreed(self._console):
            self._say("nothing is done")
            return EXIT_REFUSED
        with report.progress_bar(self._console, "repair") as progress:

            def on_progress(what: str, done: int, total: int) -> None:
                progress(done, total)

            if gaps or before.misnumbered:
                self._mend_log(gaps, before.misnumbered)
            found = self._store.load(on_progress, rebuild=queues)
            found.loss_window = ""  # applies only to a store that a broker writes
            try:
                if index and not queues:
                    self._index_again(on_progress)
            finally:
                self._store.shutdown()
        for line in found.lines():
            self._say(line)
        return self._look("after", StoreFiles(self._files.root, self._files.commit_log_folder)).exit_code

    def _look(self, when: str, files: StoreFiles) -> Verification:
        with report.progress_bar(self._console, f"verify {when}") as progress:
            result = Verify(files).run(progress)
        report.show(result, self._console)
        return result

    def _say(self, text: str) -> None:
        self._console.print(text)

    def _say_plan(self, before: Verification, *, queues: bool, index: bool) -> None:
        end, size = before.end, before.end - before.log_begin
        self._say(f"repair of {self._files.root}:")
        for gap in before.gaps:
            size_bad = gap.end - gap.begin
            self._say(f"- {size_bad} bytes at physical offset {gap.begin} are moved to quarantine/ and replaced by fillers")
        if before.misnumbered:
            self._say(f"- the wrong queue offset in {len(before.misnumbered)} records is corrected")
        if queues:
            self._say(f"- all queues and the index are deleted and rebuilt from {size:,} bytes of log, which are read once")
        elif index:
            self._say(f"- the index is deleted and rebuilt from {size:,} bytes of log")
        self._say(
            f"- the log ends at physical offset {end}; later bytes are cut off, and saved first if they could be records"
        )

    def _mend_log(self, gaps: list[Gap], misnumbered: list[Misnumbered]) -> None:
        """Move damaged bytes to quarantine and correct queue offsets, before the store is opened and its recovery runs."""
        disk, clock = FileDisk(), SystemClock()
        lock = disk.lock(f"{self._files.root}/lock")
        rows = stopped_store(self._files.root, self._files, clock).commit_log.mapped_files
        try:
            rows.load()
            for gap in gaps:
                # Store times in a log never decrease: the filler gets the time of the record after it.
                behind = read_record(self._files.log, gap.end)
                assert behind is not None, f"a valid record was at {gap.end}"
                now_ms, folder = clock.message_time_ms(), f"{self._files.root}/quarantine"
                apply(rows, folder, gap.begin, gap.end, gap.reason, now_ms, behind.store_timestamp_ms)
            for one in misnumbered:
                file = rows.file_at(one.physical_offset)
                assert file is not None, f"a record was at {one.physical_offset}"
                at = one.physical_offset - file.start_offset + QUEUE_OFFSET_POSITION
                file.view[at : at + 8] = one.right.to_bytes(8, "big")
                file.region.sync(at, at + 8)
        finally:
            rows.close()
            lock.close()

    def _index_again(self, on_progress: Callable[[str, int, int], None]) -> None:
        store = self._store
        if store.index is None:
            return
        store.index.destroy()
        bulk = BulkDispatcher(store.queues, store.index, store.delay_levels)
        begin = store.min_physical_offset
        scan = LogWalk(store.commit_log.mapped_files, begin)
        for window in scan:
            bulk.dispatch(window, only=frozenset())
            on_progress("indexing", scan.position - begin, store.max_physical_offset - begin)
