"""Check of the timer files against each other, the timer topic's queue and the CommitLog."""

import os
from typing import Final

import numpy as np

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format import layout
from pocketmq.store.format.config_document import decode_document
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.record_chain import complete_units
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store.timer import timer_check
from pocketmq.store_tools.check.finding import Findings
from pocketmq.store_tools.files.store_files import StoreFiles

_FROM_LOG: Final = "the next start of a broker rebuilds the timers from the log"
_UNITS_AT_ONCE: Final = 1 << 16
_SLOTS_AT_ONCE: Final = 1 << 16
_DAY_MS: Final = 86_400_000
_UNIT_SIZE: Final = layout.TIMER_LOG_UNIT_SIZE
_SLOT_SIZE: Final = layout.TIMER_WHEEL_SLOT_SIZE
_KINDS: Final = {"timerlog": "timer log", "timerwheel": "timer wheel"}
_TIMER_TOPIC: Final = "rmq_sys_wheel_timer"


class TimerCheck:
    """One check of the timer files. Those of a running broker change all the time, so their checksums are not checked."""

    def __init__(self, files: StoreFiles, findings: Findings, newest_ms: int, *, running: bool) -> None:
        """`newest_ms` is the store time of the log's last record."""
        self._files = files
        self._findings = findings
        self._newest_ms = newest_ms
        self._running = running
        self._log = files.row("timerlog")

    def run(self) -> None:
        # A store without timers, or a copy without derived files, has neither.
        if self._log.files or os.path.exists(self._files.path("timerwheel")):
            self._check_places()
        if not self._running:
            self._check_sums()

    def _check_places(self) -> None:
        path = self._files.path("config/timercheck")
        for odd_path, what in self._log.odd:
            is_last = not self._log.files or odd_path > self._log.files[-1].path
            if not (is_last and what.endswith("no bytes")):
                self._add("timer log", odd_path, -1, what)
        read_time_ms = self._check_checkpoint(path) if os.path.exists(path) else 0
        if read_time_ms is not None:
            self._check_log()
            self._check_wheel(read_time_ms)

    def _check_sums(self) -> None:
        """Check the checksums of the files without another finding."""
        known = {finding.path for finding in self._findings.kept}
        for problem in timer_check.problems(FileDisk(), self._files.root):
            name, _, what = problem.partition(": ")
            if self._files.path(name) not in known:
                self._add(_KINDS.get(name.partition("/")[0], "timercheck"), self._files.path(name), -1, what)

    def _add(self, kind: str, path: str, position: int, what: str) -> None:
        self._findings.differs(kind, path, position, what, _FROM_LOG)

    # --- timercheck -------------------------------------------------------------------------------------------------

    def _check_checkpoint(self, path: str) -> int | None:
        """Return the time up to which slots are delivered; None if it cannot be read."""
        data = self._files.bytes_of("config", "timercheck") or b""
        if len(data) != layout.TIMER_CHECKPOINT_FILE_SIZE:
            return None  # reported by `_check_sums`
        read_time_ms, log_end, queue_offset = layout.TIMER_CHECKPOINT_STRUCT.unpack_from(data)[:3]
        if not self._log.min_offset <= log_end <= self._log.end_offset and log_end:
            what = f"log_end is {log_end}, but the timer log has bytes {self._log.min_offset} to {self._log.end_offset}"
            self._add("timercheck", path, 8, what)
        end = QueueFiles(self._files, (_TIMER_TOPIC, 0)).end
        if not 0 <= queue_offset <= end:
            self._add("timercheck", path, 16, f"queue_offset is {queue_offset}, but the timer topic's queue ends at {end}")
        # The store's clock may be ahead of the file system's.
        newest_ms = max(int(os.stat(path).st_mtime * 1000), self._newest_ms) + _DAY_MS
        if not 0 <= read_time_ms <= newest_ms:
            what = f"read_time_ms is {read_time_ms}: negative, or more than a day after the file was written"
            self._add("timercheck", path, 0, what)
        return int(read_time_ms)

    # --- timerlog ---------------------------------------------------------------------------------------------------

    def _check_log(self) -> None:
        """Check that units have known bits and a size, and point before the CommitLog's end and to an earlier unit."""
        log_end = self._files.log.end_offset
        for file in self._log.files:
            units_max = max(file.size - layout.TIMER_LOG_BLANK_SIZE, 0) // _UNIT_SIZE
            for first in range(0, units_max, _UNITS_AT_ONCE):
                data = file.read(first * _UNIT_SIZE, min(_UNITS_AT_ONCE, units_max - first) * _UNIT_SIZE)
                units = complete_units(data, layout.TIMER_LOG_UNIT_DTYPE)
                written = units["size"] != 0
                positions = file.start_offset + (first + np.arange(len(units))) * _UNIT_SIZE
                wrong = (units["size"] != _UNIT_SIZE) & (units["magic"] != layout.BLANK_MAGIC_CODE)
                wrong |= units["magic"].astype(np.int64) & ~layout.TIMER_MAGIC_BITS != 0
                wrong |= (units["physical_offset"] < 0) | (units["physical_offset"] >= log_end) | (units["record_size"] <= 0)
                wrong |= (units["previous_position"] < -1) | (units["previous_position"] >= positions)
                for number in np.flatnonzero(wrong & written).tolist():
                    self._add("timer log", file.path, (first + number) * _UNIT_SIZE, "this is not a valid timer-log unit")
                if not written.all():
                    break

    # --- timerwheel -------------------------------------------------------------------------------------------------

    def _check_wheel(self, read_time_ms: int) -> None:
        """Check that each future slot is at the position of its time and points into the timer log."""
        path = self._files.path("timerwheel")
        if not os.path.exists(path):
            return
        size = os.path.getsize(path)
        slot_count = size // _SLOT_SIZE
        if not slot_count or size % _SLOT_SIZE:
            what = f"the file has {size} bytes, which is not a multiple of {_SLOT_SIZE}"
            self._add("timer wheel", path, -1, what)
            return
        what = "this slot points outside the timer log, or its time belongs to another slot"
        step = _SLOTS_AT_ONCE * _SLOT_SIZE
        with self._files.file(path).open() as file:
            for start in range(0, size, step):
                if file.next_data(start) >= start + step:
                    continue
                slots = complete_units(file.read(start, step), layout.TIMER_WHEEL_SLOT_DTYPE)
                times = slots["time"].astype(np.int64)
                numbers = start // _SLOT_SIZE + np.arange(len(slots))
                wrong = (times < 0) | (times > 0) & (times % slot_count != numbers)
                to_come = (times > 0) & (times * 1000 >= read_time_ms)
                for name in ("first_position", "last_position"):
                    places = slots[name].astype(np.int64)
                    wrong |= to_come & ((places < -1) | (places >= max(self._log.end_offset, 1)))
                wrong |= to_come & (slots["first_position"] > slots["last_position"])
                for number in np.flatnonzero(wrong).tolist():
                    self._add("timer wheel", path, start + number * _SLOT_SIZE, what)


def check_level_offsets(files: StoreFiles, findings: Findings) -> None:
    """Find delay levels whose delivery offset is after the end of their queue."""
    path = files.path("config/delayOffset.json")
    try:
        table = decode_document(files.bytes_of("config", "delayOffset.json") or b"{}").get("offsetTable")
    except (ValueError, RecursionError):
        return  # reported by `check_small_files`
    for level, offset in table.items() if isinstance(table, dict) else ():
        if not isinstance(offset, int) or not level.isdecimal():
            what = f"level {level} has {offset!r}, which is not a queue offset"
        else:
            end = QueueFiles(files, (SCHEDULE_TOPIC, int(level) - 1)).end
            what = f"level {level} is delivered up to {offset}, but its queue ends at {end}"
            if 0 <= offset <= end:
                continue
        advice = "delete it and its .bak: the messages of the levels are then delivered again"
        findings.differs("delay offsets", path, -1, what, advice)
