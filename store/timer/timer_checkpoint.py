"""How far the timers are: `config/timercheck`, 5.5.0's file, and `config/timermark` beside it.

timercheck tells how far timer log and timer queue are on disk, and up to when messages are delivered. The numbers of a
`TimerState` belong together. They stand in one sector, so a power cut leaves all old or all new.

Apache takes them at different moments, and its recovery reads messages again to find out what is true. Ours need not: behind
the 56 bytes that Apache knows stands a *seal*, a sum over them, which is wrong as soon as somebody else has written them.

A killed process leaves the page cache behind. For it there is the *mark*, the state of the moment, which is written without
a sync into a sector of its own, and counts only as long as the kernel and mount of its writer are still there
(`Disk.boot_mark`): after a power cut it may promise what never reached the disk.

timermark (`mark_file`) has the same two states once more, with checksums of the timer log and the wheel. So damage to
either file is told from what another broker wrote: Apache's tells its master's queue offset, which we leave out.
"""

import zlib
from typing import Final, NamedTuple

from pocketmq.store.disk.disk import Disk
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
_MASTER_MAX: Final = 1 << 50  # no queue is longer: with one flipped bit _NO_MASTER is still more than that, or negative
_SEAL_BASE: Final = 0x504D5154 << 32  # "PMQT": a file of zeros has no seal
_SEALED_SIZE: Final = TIMER_CHECKPOINT_SIZE + TIMER_CHECKPOINT_SEAL_STRUCT.size


class TimerState(NamedTuple):
    """Times in epoch ms.

    Everything of the timer queue before `queue_offset` is entered or delivered; what was entered lies in the log before
    `log_end`; the slots before `read_time_ms` are done. Of what was entered, all is delivered whose due time and physical
    offset are less than the pair of the next two.

    Of the timer log no file from position `log_begin` on may be missing. `log_sum` is the checksum of its last file up to
    `log_end`, `file_sums` those of the full files before, as `TimerLog.file_sums` has them. Each is -1 or empty where it is
    not known.
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
        """The pair."""
        return self.delivered_before_ms, self.delivered_before_offset


def _payload(state: TimerState, wheel_sum: int = -1) -> bytes:
    file_sums = state.file_sums[-(PAYLOAD_MAX - TIMER_STATE_STRUCT.size) // 16 * 16 :]
    return TIMER_STATE_STRUCT.pack(*state[:7], wheel_sum) + file_sums


def read_state(payload: bytes) -> tuple[TimerState, int]:
    """What a slot of timermark says, and the checksum of the wheel, -1 but from a clean stop."""
    *numbers, wheel_sum = TIMER_STATE_STRUCT.unpack_from(payload)
    return TimerState(*numbers)._replace(file_sums=payload[TIMER_STATE_STRUCT.size :]), wheel_sum


class TimerCheckpoint:
    """`state` is where to go on, `durable_state` what is on disk; `sealed`: both are ours, and exact.

    `written_ms` is when another broker wrote the file, if one did. `wheel_sum` is the checksum of the wheel after a clean
    stop, else -1. `problems` says what is damaged in the two files.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint; one that is missing or has not 4096 bytes begins with zeros. Raises OSError."""
        self.problems: list[str] = []
        exists = disk.exists(path)
        if exists and disk.size(path) != TIMER_CHECKPOINT_FILE_SIZE:
            self.problems.append(f"{path} has {disk.size(path)} bytes, not {TIMER_CHECKPOINT_FILE_SIZE}")
            disk.delete(path)
            exists = False
        self._disk = disk
        self._path = path
        self._region = disk.map(path, TIMER_CHECKPOINT_FILE_SIZE, create=not exists)
        self._region.reserve(0, TIMER_CHECKPOINT_FILE_SIZE)
        self._name_synced = False
        self._boot = zlib.crc32(disk.boot_mark(path).encode())  # 0: cannot be told
        self._marks = MarkFile(disk, mark_path(path))
        view = self._region.view
        found = TIMER_CHECKPOINT_STRUCT.unpack_from(view)
        read_time_ms, log_end, queue_offset, _, self._state_version, self._timestamp_ms, self._counter = found
        self.sealed = _is_sealed(view[:_SEALED_SIZE])
        self.written_ms: int | None = None
        self.wheel_sum = -1
        # Of the slots before the read time the last messages are due at just that time.
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
        """Of what timercheck and timermark say the newest counts: one of them may be damaged, or an older version's."""
        marks = self._marks
        durable = [] if marks.durable is None else [read_state(marks.durable)[0]]
        live = [] if marks.live is None else [read_state(marks.live)[0]]
        view = self._region.view
        if self.sealed:
            before = TIMER_CHECKPOINT_SEAL_STRUCT.unpack_from(view, TIMER_CHECKPOINT_SIZE)[:2]
            durable.append(TimerState(*self.state[:3], *before))
        if _is_sealed(view[TIMER_MARK_POSITION:][: TIMER_MARK_STRUCT.size]):
            boot, *numbers, _ = TIMER_MARK_STRUCT.unpack_from(view, TIMER_MARK_POSITION)
            if boot and boot == self._boot:
                live.append(TimerState(*numbers))
        if not durable and not live:
            self.durable_state = self.state = TimerState(0, 0, 0, 1)
            return
        self.sealed = True
        # What is equal but for its checksums counts with them.
        self.durable_state = max(durable, key=state_age) if durable else TimerState(0, 0, 0, 0)
        self.state = max((*durable, *live), key=state_age)
        if marks.durable is not None and marks.durable == marks.live:
            self.wheel_sum = read_state(marks.durable)[1]

    def mark(self, state: TimerState) -> None:
        """Note the state of the moment: what a killed process has come to. Costs microseconds, syncs nothing."""
        data = bytearray(TIMER_MARK_STRUCT.pack(self._boot, *state[:5], 0))
        _set_seal(data)
        self._region.view[TIMER_MARK_POSITION:][: len(data)] = data
        self._marks.write(_payload(state))

    def flush(self, state: TimerState, now_ms: int) -> None:
        """Vouch for `state`, whose log is on disk. Any thread may, one at a time. Raises OSError."""
        if state != self.durable_state or not self.sealed:
            self._counter, self._timestamp_ms = self._counter + 1, now_ms
        # Apache's broker goes on behind the message of the log's last unit, but not behind masterTimerQueueOffset: after a
        # kill the log has more than is vouched for here.
        numbers = (*state[:3], _NO_MASTER, self._state_version, self._timestamp_ms, self._counter)
        data = bytearray(TIMER_CHECKPOINT_STRUCT.pack(*numbers))
        data += TIMER_CHECKPOINT_SEAL_STRUCT.pack(*state.delivered_before, 0)
        _set_seal(data)
        self._region.view[: len(data)] = data
        self._region.sync(0, TIMER_CHECKPOINT_FILE_SIZE)
        if not self._name_synced:
            self._disk.sync_dir(self._path.rpartition("/")[0])
            self._name_synced = True
        self._marks.sync(_payload(state))
        self.durable_state, self.sealed = state, True

    def begin_log_at(self, position: int) -> None:
        """Timer log files before `position` are about to be deleted: they will not be missed. Raises OSError."""
        self.durable_state = self.durable_state._replace(log_begin=position)
        self._marks.sync(_payload(self.durable_state))

    def seal(self, state: TimerState, wheel_sum: int) -> None:
        """The last word before a clean stop, behind a `flush` of the same state. Raises OSError."""
        self._marks.seal(_payload(state, wheel_sum))

    def close(self) -> None:
        """Unmap the files."""
        self._region.close()
        self._marks.close()


def mark_path(path: str) -> str:
    """Where timermark lies beside the timercheck of `path`."""
    return f"{path.rpartition('/')[0]}/timermark"


def is_foreign(data: memoryview | bytes) -> bool:
    """Whether another broker than ours wrote a timercheck with these bytes, as far as they tell."""
    numbers = TIMER_CHECKPOINT_STRUCT.unpack_from(data)
    return any(numbers) and 0 <= numbers[3] < _MASTER_MAX


def checkpoint_problems(data: bytes) -> list[str]:
    """What is damaged in a timercheck with these bytes; what another broker wrote cannot be told to be damaged."""
    if len(data) != TIMER_CHECKPOINT_FILE_SIZE:
        return [f"timercheck has {len(data)} bytes, not {TIMER_CHECKPOINT_FILE_SIZE}"]
    found = []
    mark_end = TIMER_MARK_POSITION + TIMER_MARK_STRUCT.size
    if any(data[:_SEALED_SIZE]) and not _is_sealed(data[:_SEALED_SIZE]) and not is_foreign(data):
        found.append("the seal of timercheck is wrong")
    mark = data[TIMER_MARK_POSITION:mark_end]
    if any(mark) and not _is_sealed(mark):
        found.append("the seal of the mark in timercheck is wrong")
    if any(data[_SEALED_SIZE:TIMER_MARK_POSITION]) or any(data[mark_end:]):
        found.append("timercheck has bytes that are not 0 where nothing is written")
    return found


def state_age(state: TimerState) -> tuple[int, ...]:
    """Grows from one state to the next."""
    return state.queue_offset, state.log_end, state.read_time_ms, *state.delivered_before, state.log_sum


def _sum(data: memoryview | bytearray | bytes) -> bytes:
    return (_SEAL_BASE | zlib.crc32(data)).to_bytes(8, "big")


def _is_sealed(data: memoryview | bytes) -> bool:
    return bytes(data[-8:]) == _sum(data[:-8])


def _set_seal(data: bytearray) -> None:
    data[-8:] = _sum(data[:-8])
