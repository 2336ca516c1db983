"""TimerCheckpoint: progress of the timers in `config/timercheck`, the file of 5.5.0, and in `config/timermark`.

timercheck has the positions up to which timer log and timer queue are on disk, and the time up to which messages are
delivered. The numbers of a `TimerState` belong together; they are in one sector, so a power cut keeps either all old or all
new ones.

Apache takes them at different moments, and its recovery reads messages again to find the true state. PocketMQ avoids that:
after Apache's 56 bytes it writes a *seal*, a checksum over them, which becomes wrong as soon as another broker writes them.

After a process kill the page cache is intact. For this case timermark (`mark_file`) has the present state, written without a
sync, besides the one on disk, both with checksums of timer log and wheel. It shows whether timercheck is damaged or was
written by another broker: Apache's timercheck has its master's queue offset, which PocketMQ leaves out. (Earlier versions
kept the present state in a sector of timercheck; one left by them is read.)
"""

import zlib
from typing import Final, NamedTuple

from pocketmq.store.disk.disk import Disk, map_sized
from pocketmq.store.disk.mark_file import PAYLOAD_MAX, MarkFile
from pocketmq.store.format.layout import (
    TIMER_CHECKPOINT_FILE_SIZE,
    TIMER_CHECKPOINT_SEAL_STRUCT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_CHECKPOINT_STRUCT,
    TIMER_MARK_POSITION,
    TIMER_MARK_STRUCT,
    TIMER_STATE_STRUCT,
)

_NO_MASTER: Final = (1 << 63) - 1
_MASTER_MAX: Final = 1 << 50  # longer than any queue; _NO_MASTER with a flipped bit is still more than that, or negative
_SEAL_BASE: Final = 0x504D5154 << 32  # "PMQT": a file of zeros has no seal
_SEALED_SIZE: Final = TIMER_CHECKPOINT_SIZE + TIMER_CHECKPOINT_SEAL_STRUCT.size
_MARK_END: Final = TIMER_MARK_POSITION + TIMER_MARK_STRUCT.size


class TimerState(NamedTuple):
    """Progress of the timers. Times are epoch ms.

    All messages of the timer queue before `queue_offset` are entered or delivered; entered units are in the log before
    `log_end`; the slots before `read_time_ms` are done. Of the entered messages those are delivered whose (due time,
    physical offset) is less than the pair of the next two fields.

    No file of the timer log from position `log_begin` on may be missing. `log_sum` is the checksum of its last file up to
    `log_end`, or -1 if unknown; `file_sums` those of the full files before, as in `TimerLog.file_sums`, or empty.
    """

    read_time_ms: int
    log_end: int
    queue_offset: int
    delivered_before_ms: int
    delivered_before_offset: int = 0
    log_begin: int = -1
    log_sum: int = -1
    file_sums: bytes = b""

    @property
    def delivered_before(self) -> tuple[int, int]:
        """The pair (due time, physical offset) before which messages are delivered."""
        return self.delivered_before_ms, self.delivered_before_offset


def _payload(state: TimerState, wheel_sum: int = -1) -> bytes:
    file_sums = state.file_sums[-(PAYLOAD_MAX - TIMER_STATE_STRUCT.size) // 16 * 16 :]
    return TIMER_STATE_STRUCT.pack(*state[:7], wheel_sum) + file_sums


def read_state(payload: bytes) -> tuple[TimerState, int]:
    """Return (decoded state of a slot of timermark, checksum of the wheel or -1 if it was not a clean stop)."""
    *numbers, wheel_sum = TIMER_STATE_STRUCT.unpack_from(payload)
    return TimerState(*numbers)._replace(file_sums=payload[TIMER_STATE_STRUCT.size :]), wheel_sum


class TimerCheckpoint:
    """Timer checkpoint. `state` is where to continue, `durable_state` what is on disk.

    `sealed`: PocketMQ wrote both, so they are exact. `written_ms` is when another broker wrote the file, if one did.
    `wheel_sum` is the checksum of the wheel after a clean stop, else -1. `problems` lists the damage found in the two files.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint. If it is missing or does not have 4096 bytes, it starts with zeros. Raises OSError."""
        self._disk = disk
        self._path = path
        self._region, size = map_sized(disk, path, TIMER_CHECKPOINT_FILE_SIZE)
        exists = size == TIMER_CHECKPOINT_FILE_SIZE
        self.problems: list[str] = []
        if size is not None and not exists:
            self.problems.append(f"{path} has {size} bytes, not {TIMER_CHECKPOINT_FILE_SIZE}")
        self._region.reserve(0, TIMER_CHECKPOINT_FILE_SIZE)
        self._name_synced = False
        self._marks = MarkFile(disk, mark_path(path))
        view = self._region.view
        found = TIMER_CHECKPOINT_STRUCT.unpack_from(view)
        read_time_ms, log_end, queue_offset, _, self._state_version, self._timestamp_ms, self._counter = found
        self.sealed = _is_sealed(view[:_SEALED_SIZE])
        self.written_ms: int | None = None
        self.wheel_sum = -1
        self.adopted = ""  # why the timer log must not be used, if so
        # The last messages of the slots before the read time are due at exactly that time.
        self.durable_state = self.state = TimerState(read_time_ms, log_end, queue_offset, read_time_ms + 1, 0)
        if not self.sealed and is_foreign(view):
            self.written_ms = self._timestamp_ms
            self._marks.clear()
            return
        self._find_states()
        self.problems += checkpoint_problems(bytes(view)) if exists else []
        self.problems += [f"{self._marks.path}: {problem}" for problem in self._marks.problems]
        if not self.sealed:
            self._state_version = self._counter = 0

    def _find_states(self) -> None:
        """Use the newer state of timercheck and timermark; one may be damaged or from an older version."""
        marks = self._marks
        durable = [] if marks.durable is None else [read_state(marks.durable)[0]]
        live = [] if marks.live is None else [read_state(marks.live)[0]]
        view = self._region.view
        if self.sealed:
            before = TIMER_CHECKPOINT_SEAL_STRUCT.unpack_from(view, TIMER_CHECKPOINT_SIZE)[:2]
            durable.append(TimerState(*self.state[:3], *before))
        if _is_sealed(view[TIMER_MARK_POSITION:][: TIMER_MARK_STRUCT.size]):
            boot, *numbers, _ = TIMER_MARK_STRUCT.unpack_from(view, TIMER_MARK_POSITION)
            # Only under the kernel and mount of its writer: after a power cut it may cover data that never reached the disk.
            if boot and boot == zlib.crc32(self._disk.boot_mark(self._path).encode()):
                live.append(TimerState(*numbers))
        if not durable and not live:
            self.durable_state = self.state = TimerState(0, 0, 0, 1)
            return
        self.sealed = True
        # Of states that differ only in checksums the one with checksums is used.
        self.durable_state = max(durable, key=state_age) if durable else TimerState(0, 0, 0, 0)
        self.state = max((*durable, *live), key=state_age)
        if marks.durable is not None and marks.durable == marks.live:
            self.wheel_sum = read_state(marks.durable)[1]

    def adopt(self, read_time_ms: int, queue_offset: int) -> bool:
        """Adopt the progress of another broker with the same log, unless its read time is earlier. Return whether it was.

        Must be called before recovery, which then enters all messages again. Those of the timer queue from `queue_offset` on
        count as not delivered, whenever they were due: the other broker may not have had them.
        """
        if read_time_ms < self.state.read_time_ms:
            return False
        self.state = TimerState(read_time_ms, self.state.log_end, queue_offset, read_time_ms + 1, 0)
        self.sealed, self.written_ms, self.wheel_sum = False, None, -1
        self.adopted = "the progress was taken over from another broker"
        return True

    def mark(self, state: TimerState) -> None:
        """Write the present state, which must survive a process kill. Does not sync."""
        self._marks.write(_payload(state))

    def flush(self, state: TimerState, now_ms: int) -> None:
        """Write `state`, whose timer log is on disk, durably. Any thread, but not concurrently. Raises OSError."""
        if state != self.durable_state or not self.sealed:
            self._counter, self._timestamp_ms = self._counter + 1, now_ms
        # Apache's broker continues after the message of the log's last unit, but not after masterTimerQueueOffset. That must
        # not limit it, because after a kill the log has more units than this state covers.
        numbers = (*state[:3], _NO_MASTER, self._state_version, self._timestamp_ms, self._counter)
        data = TIMER_CHECKPOINT_STRUCT.pack(*numbers) + TIMER_CHECKPOINT_SEAL_STRUCT.pack(*state.delivered_before, 0)[:-8]
        # What an earlier version left behind it is older from now on.
        self._region.view[:_MARK_END] = (data + _sum(data)).ljust(_MARK_END, b"\0")
        self._region.sync(0, TIMER_CHECKPOINT_FILE_SIZE)
        if not self._name_synced:
            self._disk.sync_dir(self._path.rpartition("/")[0])
            self._name_synced = True
        self._marks.sync(_payload(state))
        self.durable_state, self.sealed = state, True

    def begin_log_at(self, position: int) -> None:
        """Record that timer log files before `position` will be deleted and are not missing then. Raises OSError."""
        self.durable_state = self.durable_state._replace(log_begin=position)
        self._marks.sync(_payload(self.durable_state))

    def seal(self, state: TimerState, wheel_sum: int) -> None:
        """Write the final state at a clean stop, after a `flush` of the same state. Raises OSError."""
        self._marks.seal(_payload(state, wheel_sum))

    def close(self) -> None:
        """Unmap the files."""
        self._region.close()
        self._marks.close()


def mark_path(path: str) -> str:
    """Return the path of timermark for the timercheck at `path`."""
    return f"{path.rpartition('/')[0]}/timermark"


def is_foreign(data: memoryview | bytes) -> bool:
    """Return whether a timercheck with these bytes was apparently written by another broker."""
    numbers = TIMER_CHECKPOINT_STRUCT.unpack_from(data)
    return any(numbers) and 0 <= numbers[3] < _MASTER_MAX


def checkpoint_problems(data: bytes) -> list[str]:
    """Return what is damaged in a timercheck with these bytes; damage in another broker's is not detectable."""
    if len(data) != TIMER_CHECKPOINT_FILE_SIZE:
        return [f"timercheck has {len(data)} bytes, not {TIMER_CHECKPOINT_FILE_SIZE}"]
    found = []
    if any(data[:_SEALED_SIZE]) and not _is_sealed(data[:_SEALED_SIZE]) and not is_foreign(data):
        found.append("the seal of timercheck is wrong")
    mark = data[TIMER_MARK_POSITION:_MARK_END]
    if any(mark) and not _is_sealed(mark):
        found.append("the seal of the mark in timercheck is wrong")
    if any(data[_SEALED_SIZE:TIMER_MARK_POSITION]) or any(data[_MARK_END:]):
        found.append("timercheck has bytes that are not 0 where nothing is written")
    return found


def state_age(state: TimerState) -> tuple[int, ...]:
    """Return a sort key that ascends from each state to the next."""
    return state.queue_offset, state.log_end, state.read_time_ms, *state.delivered_before, state.log_sum


def _sum(data: memoryview | bytes) -> bytes:
    return (_SEAL_BASE | zlib.crc32(data)).to_bytes(8, "big")


def _is_sealed(data: memoryview | bytes) -> bool:
    return bytes(data[-8:]) == _sum(data[:-8])
