"""`verify`: checks every record, every queue unit, every index entry, and the small files.

A running broker may append during the check without causing findings: the ends of index and queues are read before the log,
so the log contains the records of all their entries and units; and records without a unit are looked up again at the end.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.layout import QUEUE_OFFSET_POSITION
from pocketmq.store.format.message import QueueKey
from pocketmq.store.offline.index_files import index_file, index_files
from pocketmq.store.offline.log_walk import why_invalid
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store_tools.check.finding import Finding, Findings, Severity
from pocketmq.store_tools.check.index_check import REPAIR_INDEX, IndexFileCheck, check_chains
from pocketmq.store_tools.check.log_check import CUT, PATIENCE_S, POLL_S, RANGE_SIZE, LogCheck, OnProgress
from pocketmq.store_tools.check.queue_check import Misnumbered, UnitCheck, extents
from pocketmq.store_tools.check.range_check import REPAIR_QUEUES, CheckPlan, RangeResult
from pocketmq.store_tools.check.small_files import (
    check_checkpoint_times,
    check_small_files,
    checkpoint_times,
    dropped_topics,
    known_topics,
)
from pocketmq.store_tools.check.timer_check import TimerCheck, check_level_offsets
from pocketmq.store_tools.files.store_files import StoreFiles

# How long a record may lack its unit if no broker seems to be writing.
_PATIENCE_AT_REST_S: Final = 0.2


@dataclass
class Verification(RangeResult):
    """Result of `verify`: of the whole log, numbers of the other items checked, and all findings."""

    root: str = ""
    running: bool = False
    log_begin: int = 0
    log_files: int = 0
    queues: int = 0
    holes: int = 0
    index_files: int = 0
    index_entries: int = 0
    seconds: float = 0.0
    misnumbered: list[Misnumbered] = field(default_factory=list)

    @property
    def units(self) -> int:
        return self.matched.total()

    @property
    def exit_code(self) -> int:
        return {Severity.NOTE: 0, Severity.DERIVED: 2, Severity.LOG: 1}[self.findings.worst]


@dataclass
class Verify:
    """One check of one store. Raises OSError if a file cannot be read."""

    files: StoreFiles
    workers: int = 0  # 0: one per core
    check_crc: bool = True
    with_index: bool = True
    delay_levels: DelayLevels | None = None  # None: every delay of whole seconds is right
    range_size: int = RANGE_SIZE

    def __post_init__(self) -> None:
        self.result = Verification(root=self.files.root)

    def run(self, on_progress: OnProgress = lambda done, total: None) -> Verification:
        started = time.monotonic()
        files, result = self.files, self.result
        findings = result.findings
        result.running = files.is_running()
        times = checkpoint_times(files)
        index = self._check_index()
        queues = extents(files, findings)
        check_small_files(files, findings)
        topics = known_topics(files)
        self._check_log_files()
        ends = [queue.max_physical_offset for queue in queues.values()]
        ends += [check.facts.header.end_physical_offset + 1 for check in index or []]
        plan = CheckPlan(
            files.root, files.commit_log_folder, self.check_crc, queues, index, self.delay_levels,
            topics, max(ends, default=0), dropped_topics(files),
        )  # fmt: skip
        result.log_begin = files.log.min_offset
        LogCheck(files, plan, result, running=result.running, workers=self.workers).run(on_progress, self.range_size)
        self._look_again(plan)
        self._check_units(plan)
        check_checkpoint_times(files, times, result.last_store_timestamp_ms, findings)
        TimerCheck(files, findings, result.last_store_timestamp_ms, running=result.running).run()
        check_level_offsets(files, findings)
        result.log_files, result.queues = len(files.log.files), len(queues)
        result.index_files = len(index or [])
        result.index_entries = sum(check.facts.header.index_count - 1 for check in index or [])
        result.seconds = time.monotonic() - started
        return result

    def _check_index(self) -> list[IndexFileCheck] | None:
        if not self.with_index:
            return None
        checks: list[IndexFileCheck] = []
        slot_count = 0
        for path in self.files.index_paths():
            try:
                check = check_chains(index_file(self.files.file(path), slot_count))
            except FileNotFoundError:
                continue  # deleted by retention
            except ValueError as error:
                what = str(error).removeprefix(f"{path}: ")
                self.result.findings.differs("index file", path, 0, what, REPAIR_INDEX)
                continue
            slot_count = check.facts.slot_count
            self.result.findings.merge(check.findings)
            check.findings = Findings()
            checks.append(check)
        return checks

    def _check_log_files(self) -> None:
        log = self.files.refresh_log()
        for path, what in log.odd:
            # A crash just after the last file was created leaves it empty.
            is_new = bool(log.files) and path > log.files[-1].path and what.endswith("no bytes")
            severity, advice = (Severity.DERIVED, CUT) if is_new else (Severity.LOG, "restore the file from a copy")
            self.result.findings.add(Finding(severity, "log file", path, -1, what, advice))

    # --- missing units and entries ---------------------------------------------------------------------------------

    def _look_again(self, plan: CheckPlan) -> None:
        """Look up records without unit or index entry again: a running broker may have written it since."""
        began, result = time.monotonic(), self.result
        units, keys = result.missing_units.kept, result.missing_keys.kept
        while True:
            units = [one for one in units if not self._has_unit(*one)]
            keys = [one for one in keys if not self._has_key(*one)]
            # The lock of a broker on another machine or in another container is not visible, but the log then grows.
            is_alive = result.running or not why_invalid(self.files.log, result.end)
            patience_s = PATIENCE_S if is_alive else _PATIENCE_AT_REST_S
            if not (units or keys) or time.monotonic() - began > patience_s:
                break
            time.sleep(POLL_S)
        findings = result.findings
        for key, queue_offset, physical_offset in units:
            what = f"the record at physical offset {physical_offset} has no unit {queue_offset} in queue {key[0]}/{key[1]}"
            folder = self.files.path(f"consumequeue/{key[0]}/{key[1]}")
            findings.differs("queue lacks", folder, -1, what, REPAIR_QUEUES, physical_offset)
        if units:
            findings.counts["queue lacks"] += result.missing_units.count - len(result.missing_units.kept)
        folder = self.files.path("index")
        if plan.index == [] and keys:
            what = f"there is no index, so {result.missing_keys.count} keys of records cannot be found"
            advice = f"{REPAIR_INDEX}; if the broker has messageIndexEnable=false, verify with --no-index"
            findings.differs("index missing", folder, -1, what, advice)
            return
        for key_hash, physical_offset in keys:
            what = f"a key of the record at physical offset {physical_offset} is not in the index (hash {key_hash})"
            findings.differs("index lacks", folder, -1, what, REPAIR_INDEX, physical_offset)
        if keys:
            findings.counts["index lacks"] += result.missing_keys.count - len(result.missing_keys.kept)

    def _has_unit(self, key: QueueKey, queue_offset: int, physical_offset: int) -> bool:
        if physical_offset < self.files.log.min_offset or queue_offset < 0:
            return physical_offset < self.files.log.min_offset
        self.files.forget_queue_row(key)
        units = QueueFiles(self.files, key).units(queue_offset, 1)
        return len(units) == 1 and int(units["physical_offset"][0]) == physical_offset and int(units["size"][0]) > 0

    def _has_key(self, key_hash: int, physical_offset: int) -> bool:
        if physical_offset < self.files.log.min_offset:
            return True
        newest_first = index_files(self.files, reversed(self.files.index_paths()))
        return any(offset == physical_offset for index in newest_first for _, offset in index.find({key_hash}))

    def _check_units(self, plan: CheckPlan) -> None:
        """Check the units of the queues that have more units than matching records."""
        result, folder = self.result, self.files.log.folder
        findings = result.findings
        check = UnitCheck(self.files, result.gaps, result.end)
        for key, extent in plan.queues.items():
            if result.matched[key] != extent.end - extent.first:
                check.run(key, extent, findings)
        result.holes, result.misnumbered = check.holes, check.misnumbered
        for one in check.misnumbered:
            findings.drop(one.physical_offset, {"queue lacks", "queue unit"})
            file = self.files.log.file_at(one.physical_offset)
            path, position = (file.path, one.physical_offset - file.start_offset) if file else (folder, 0)
            what = (
                f"the record at physical offset {one.physical_offset} has queue offset {one.claimed} of "
                f"{one.key[0]}/{one.key[1]}, but {one.right} is right (no checksum covers this field)"
            )
            advice = "`pocketmq store repair` corrects it"
            finding = Finding(
                Severity.LOG, "queue offset", path, position + QUEUE_OFFSET_POSITION, what, advice, one.physical_offset
            )
            findings.add(finding)
        if check.lost:
            what = f"{check.lost} queue units point into damaged parts of the log: these messages are lost"
            findings.add(Finding(Severity.NOTE, "lost", folder, -1, what))
        if check.ahead:
            # A unit that points exactly at the end was written for a record there, which is lost.
            severity = Severity.LOG if check.ahead_from == result.end else Severity.DERIVED
            what = f"the log ends at physical offset {result.end}, but {check.ahead} queue units point after it"
            advice = f"restore the lost part from a copy; without one, {REPAIR_QUEUES}"
            findings.add(Finding(severity, "log end", folder, -1, what, advice))
