"""Check of the timer and delay-level files of a stopped store, without changing them."""

from typing import Final

from isal.isal_zlib import crc32

from pocketmq.store.disk import mark_file
from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, TIMER_LOG_BLANK_SIZE, TIMER_LOG_BLANK_STRUCT, TIMER_LOG_UNIT_SIZE
from pocketmq.store.timer.timer_checkpoint import (
    TimerState,
    checkpoint_problems,
    is_foreign,
    mark_path,
    read_state,
    state_age,
)
from pocketmq.store.timer.timer_log import FILE_SUM

CHECKPOINT, LEVEL_MARK, WHEEL, LOG = "config/timercheck", "config/levelmark", "timerwheel", "timerlog"
_AT_ONCE: Final = TIMER_LOG_UNIT_SIZE << 16


def problems(disk: Disk, root: str) -> list[str]:
    """Return one line per problem, beginning with the file's path below `root`. Raises OSError.

    Files last written by another broker or by a version without timermark have no checksums and cannot be checked.
    """
    found = []
    is_ours = True
    if disk.exists(f"{root}/{CHECKPOINT}"):
        data = disk.read_file(f"{root}/{CHECKPOINT}")
        found += [f"{CHECKPOINT}: {problem}" for problem in checkpoint_problems(data)]
        is_ours = len(data) < 56 or not is_foreign(data)
    timer_mark = mark_path(CHECKPOINT)
    for name in (timer_mark, LEVEL_MARK):
        if disk.exists(f"{root}/{name}"):
            data = disk.read_file(f"{root}/{name}")
            found += [f"{name}: {problem}" for problem in mark_file.problems(data)]
            if name == timer_mark and is_ours and len(data) == mark_file.FILE_SIZE:
                found += _sum_problems(disk, root, *mark_file.payloads(data, disk.boot_mark(f"{root}/{name}")))
    return found


def _sum_problems(disk: Disk, root: str, payloads: list[bytes], is_clean: bool) -> list[str]:
    """Compare wheel and timer log with their checksums. The wheel has one only after a clean stop."""
    if not payloads:
        return []
    state, wheel_sum = max((read_state(payload) for payload in payloads), key=lambda one: state_age(one[0]))
    found = []
    if wheel_sum != -1 and is_clean:
        if not disk.exists(f"{root}/{WHEEL}"):
            found.append(f"{WHEEL}: it is missing")
        elif crc32(disk.read_file(f"{root}/{WHEEL}")) != wheel_sum:
            found.append(f"{WHEEL}: its checksum is wrong")
    # Without a checksum no timer was ever stored, or none is left.
    if state.log_sum != -1 and state.log_end > max(state.log_begin, 0):
        found += _log_problems(disk, root, state)
    return found


def _log_problems(disk: Disk, root: str, state: TimerState) -> list[str]:
    folder = f"{root}/{LOG}"
    names = [name for name in disk.listdir(folder) if name.isdecimal()] if disk.is_dir(folder) else []
    sizes = {int(name): disk.size(f"{folder}/{name}") for name in sorted(names)}
    last_start = max((start for start in sizes if start <= state.log_end), default=-1)
    if last_start < 0 or state.log_end > last_start + sizes[last_start] or min(sizes) > max(state.log_begin, 0):
        return [f"{LOG}: files are missing or short: it ended at {state.log_end}"]
    known = dict(FILE_SUM.iter_unpack(state.file_sums))
    if state.log_end < last_start + max(sizes.values()):
        known[last_start] = state.log_sum
    found = []
    for start, known_sum in known.items():
        if start in sizes:
            problems = _file_problems(disk, f"{folder}/{start:020d}", sizes[start], state.log_end - start, known_sum)
        else:
            problems = ["it is missing"] if start >= state.log_begin else []
        found += [f"{LOG}/{start:020d}: {problem}" for problem in problems]
    return found


def _file_problems(disk: Disk, path: str, size: int, written: int, known_sum: int) -> list[str]:
    """Check a file of the timer log whose first `written` bytes are in use; a full one ends with a blank unit."""
    found = []
    units_size = (size - TIMER_LOG_BLANK_SIZE) // TIMER_LOG_UNIT_SIZE * TIMER_LOG_UNIT_SIZE
    blank = TIMER_LOG_BLANK_STRUCT.pack(size - units_size, 0, BLANK_MAGIC_CODE)
    if written >= size and disk.read_range(path, units_size, TIMER_LOG_BLANK_SIZE) != blank:
        found.append("the blank unit at its end is invalid")
    if known_sum not in (-1, _sum_of(disk, path, min(units_size, written))):
        found.append("its checksum is wrong")
    return found


def _sum_of(disk: Disk, path: str, end: int) -> int:
    found = 0
    for start in range(0, end, _AT_ONCE):
        found = crc32(disk.read_range(path, start, min(_AT_ONCE, end - start)), found)
    return found
