"""Check of the whole log, range by range, by several processes.

The check of a range starts at its first valid record, so the check of the previous range must end exactly there. If it does
not, the log is checked again from the end of the previous range: a broker may be writing, or a body may contain bytes that
look like a record. Bytes that are still not a record are a gap. If queues or index refer to records after a gap, it is
damage. Otherwise the log ends there, and records after it are left over from an earlier truncation.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Final, NamedTuple

from pocketmq.store.offline.log_walk import UNWRITTEN, Gap, first_valid, why_invalid
from pocketmq.store_tools.check.finding import Finding, Severity
from pocketmq.store_tools.check.range_check import CheckPlan, RangeCheck, RangeResult
from pocketmq.store_tools.files.store_files import StoreFiles

RANGE_SIZE: Final = 32 << 20
PATIENCE_S: Final = 3.0
POLL_S: Final = 0.05
QUARANTINE: Final = "`pocketmq store repair --quarantine` moves it aside, so that the messages after it are served"
CUT: Final = "the next start of a broker cuts it off, as does `pocketmq store repair`"
# For smaller logs a second process takes more time than it saves.
_ALONE_MAX: Final = 64 << 20
_MARK_SIZE: Final = 36

# (bytes of log done, bytes of log in all)
OnProgress = Callable[[int, int], None]


class Stretch(NamedTuple):
    """Range of the log in physical offsets; `is_record`: a record begins exactly at `begin`."""

    begin: int
    stop: int
    is_record: bool


_worker: RangeCheck


def _begin_worker(plan: CheckPlan) -> None:
    global _worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = RangeCheck(plan)


def _end_with_parent() -> None:
    """End this worker when its parent dies; the pool does not notice a killed parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_worker(stretch: Stretch) -> RangeResult:
    return _worker.run(*stretch)


class LogCheck:
    """One check of the log, whose results are added to a total: its end is the end of the log."""

    def __init__(self, files: StoreFiles, plan: CheckPlan, total: RangeResult, *, running: bool, workers: int) -> None:
        """`running`: a broker holds the lock. `workers` 0: one per core."""
        self._total = total
        total.end = files.log.min_offset
        self._files = files
        self._plan = plan
        self._running = running
        self._workers = workers
        self._own = RangeCheck(plan, files)

    def run(self, on_progress: OnProgress, range_size: int = RANGE_SIZE) -> None:
        """Raises OSError."""
        stretches = list(self._stretches(range_size))
        total = sum(stretch.stop - stretch.begin for stretch in stretches)
        done = 0
        on_progress(0, total)
        for stretch, found in self._results(stretches, total):
            done += stretch.stop - stretch.begin
            if not self._take(stretch, found):
                break
            on_progress(done, total)
        self._judge_end()
        on_progress(total, total)

    def _stretches(self, range_size: int) -> Iterator[Stretch]:
        """Yield the ranges that contain data."""
        for file in self._files.log.files:
            try:
                with file.open() as data:
                    starts = range(0, file.size, range_size)
                    filled = [start for start in starts if data.next_data(start) < min(start + range_size, file.size)]
            except FileNotFoundError:
                continue  # deleted by retention
            for begin in filled:
                stop = min(begin + range_size, file.size)
                yield Stretch(file.start_offset + begin, file.start_offset + stop, begin == 0)

    def _results(self, stretches: list[Stretch], total: int) -> Iterator[tuple[Stretch, RangeResult]]:
        """Yield the ranges in order, each with its result."""
        workers = self._workers or (1 if total <= _ALONE_MAX else os.cpu_count() or 1)
        if workers == 1:
            for stretch in stretches:
                yield stretch, self._own.run(*stretch)
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _begin_worker, (self._plan,)) as pool:
            waiting: deque[tuple[Stretch, Future[RangeResult]]] = deque()
            try:
                for stretch in stretches:
                    # Workers started here inherit the mask: Ctrl-C reaches all processes, but only the parent may react.
                    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                    waiting.append((stretch, pool.submit(_run_worker, stretch)))
                    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                    if len(waiting) > 3 * workers:
                        first, future = waiting.popleft()
                        yield first, future.result()
                while waiting:
                    first, future = waiting.popleft()
                    yield first, future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _take(self, stretch: Stretch, found: RangeResult) -> bool:
        """Append the result of a range to the total; return False if the log ends before it."""
        if found.first < 0 or self._total.end >= stretch.stop:
            return True
        if found.first > self._total.end:
            self._merge(self._own.run(self._total.end, found.first, True))
            if self._total.end < found.first and not self._is_damage(self._total.end, found.first):
                return False
            self._total.end = max(self._total.end, found.first)
        if found.first < self._total.end:
            found = self._own.run(self._total.end, stretch.stop, True)
        self._merge(found)
        return True

    def _merge(self, found: RangeResult) -> None:
        self._total.merge(found)
        for gap in found.gaps:
            self._add_gap(gap)

    # --- judging ---------------------------------------------------------------------------------------------------

    def _add_gap(self, gap: Gap) -> None:
        self._total.gaps.append(gap)
        what = f"{gap.end - gap.begin} bytes at physical offset {gap.begin} are not a valid record: {gap.reason}"
        self._total.findings.add(self._at(gap.begin, "log damage", what, QUARANTINE))

    def _at(self, physical_offset: int, kind: str, what: str, advice: str, severity: Severity = Severity.LOG) -> Finding:
        file = self._files.log.file_at(physical_offset)
        path, position = (file.path, physical_offset - file.start_offset) if file else (self._files.log.folder, -1)
        return Finding(severity, kind, path, position, what, advice, physical_offset)

    def _is_damage(self, begin: int, end: int) -> bool:
        """Return whether the invalid bytes [begin, end) are damage, and record it; otherwise the log ends at `begin`."""
        if 0 < self._plan.known_end <= begin:
            return False
        begin = max(begin, self._files.refresh_log().min_offset)
        # Retention may have deleted the file.
        if begin < end:
            self._add_gap(Gap(begin, end, why_invalid(self._files.log, begin, self._plan.check_crc) or UNWRITTEN))
        return True

    def _judge_end(self) -> None:
        """Check that the log ends at unwritten bytes or at the end of a file, not in the middle of a record."""
        deadline = time.monotonic() + PATIENCE_S
        while (reason := self._why_torn(self._total.end)) and self._running and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if reason and not self._running:
            what = f"the log's last record, at physical offset {self._total.end}, is torn: {reason}"
            self._total.findings.add(self._at(self._total.end, "log end", what, CUT))
        elif (
            not self._running  # else records are being written there
            and why_invalid(self._files.log, self._total.end)
            and first_valid(self._files.log, self._total.end + 1, self._files.log.end_offset) is not None
            and why_invalid(self._files.log, self._total.end)  # again: an undetected broker may have appended since
        ):
            what = (
                "after the log's end there are records from before an earlier truncation; no queue or index refers to them"
            )
            self._total.findings.add(self._at(self._total.end, "left-over", what, CUT, Severity.NOTE))

    def _why_torn(self, end: int) -> str:
        """Return why the record at the log's end is invalid; "" if no record begins there, by its offset field."""
        file = self._files.log.file_at(end)
        if file is None:
            return ""
        mark = file.read(end - file.start_offset, _MARK_SIZE).tobytes()
        claims = len(mark) == _MARK_SIZE and int.from_bytes(mark[-8:], "big") == end and any(mark[:8])
        return why_invalid(self._files.log, end, self._plan.check_crc) if claims else ""
