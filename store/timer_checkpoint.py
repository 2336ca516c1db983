"""The `timercheck` file: how far timer log and timer queue are on disk, and up to when messages are delivered.

The numbers of a `TimerState` belong together. They stand in one sector, so a power cut leaves all old or all new.

Apache takes them at different moments, and its recovery reads messages again to find out what is true. Ours need not: behind
the 56 bytes that Apache knows stands a *seal*, a sum over them, which is wrong as soon as somebody else has written them.

A killed process leaves the page cache behind. For it there is the *mark*, the state of the moment, which is written without
a sync into a sector of its own, and counts only as long as the kernel and mount of its writer are still there
(`Disk.boot_mark`): after a power cut it may promise what never reached the disk.
"""

import zlib
from typing import Final, NamedTuple

from store.disk import Disk
from store.layout import (
    TIMER_CHECKPOINT_FILE_SIZE,
    TIMER_CHECKPOINT_SEAL_STRUCT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_CHECKPOINT_STRUCT,
    TIMER_MARK_POSITION,
    TIMER_MARK_STRUCT,
)

_NO_MASTER: Final = (1 << 63) - 1
_SEAL_BASE: Final = 0x504D5154 << 32  # "PMQT": a file of zeros has no seal
_SEALED_SIZE: Final = TIMER_CHECKPOINT_SIZE + TIMER_CHECKPOINT_SEAL_STRUCT.size


class TimerState(NamedTuple):
    """Times in epoch ms.

    Everything of the timer queue before `queue_offset` is entered or delivered; what was entered lies in the log before
    `log_end`; the slots before `read_time_ms` are done. Of what was entered, all is delivered whose due time and physical
    offset are less than the pair of the last two.
    """

    read_time_ms: int
    log_end: int
    queue_offset: int
    delivered_before_ms: int
    delivered_before_offset: int = 0


class TimerCheckpoint:
    """`state` is where to go on, `durable_state` what is on disk; `sealed`: both are ours, and exact."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the checkpoint; one that is missing or has not 4096 bytes begins with zeros. Raises OSError."""
        exists = disk.exists(path)
        if exists and disk.size(path) != TIMER_CHECKPOINT_FILE_SIZE:
            disk.delete(path)
            exists = False
        self._disk = disk
        self._path = path
        self._region = disk.map(path, TIMER_CHECKPOINT_FILE_SIZE, create=not exists)
        self._region.reserve(0, TIMER_CHECKPOINT_FILE_SIZE)
        self._name_synced = False
        self._boot = zlib.crc32(disk.boot_mark(path).encode())  # 0: cannot be told
        view = self._region.view
        found = TIMER_CHECKPOINT_STRUCT.unpack_from(view)
        read_time_ms, log_end, queue_offset, _, self._state_version, self._timestamp_ms, self._counter = found
        self.sealed = _is_sealed(view[:_SEALED_SIZE])
        # Of the slots before the read time the last messages are due at just that time.
        before = read_time_ms + 1, 0
        if self.sealed:
            before = TIMER_CHECKPOINT_SEAL_STRUCT.unpack_from(view, TIMER_CHECKPOINT_SIZE)[:2]
        self.durable_state = self.state = TimerState(read_time_ms, log_end, queue_offset, *before)
        if self.sealed and _is_sealed(view[TIMER_MARK_POSITION:][: TIMER_MARK_STRUCT.size]):
            boot, *numbers, _ = TIMER_MARK_STRUCT.unpack_from(view, TIMER_MARK_POSITION)
            if boot and boot == self._boot:
                self.state = TimerState(*numbers)

    def mark(self, state: TimerState) -> None:
        """Note the state of the moment: what a killed process has come to. Costs microseconds, syncs nothing."""
        data = bytearray(TIMER_MARK_STRUCT.pack(self._boot, *state, 0))
        _set_seal(data)
        self._region.view[TIMER_MARK_POSITION:][: len(data)] = data

    def flush(self, state: TimerState, now_ms: int) -> None:
        """Vouch for `state`, whose log is on disk. Any thread may, one at a time. Raises OSError."""
        if state != self.durable_state or not self.sealed:
            self._counter, self._timestamp_ms = self._counter + 1, now_ms
        # Apache's broker goes on behind the message of the log's last unit, but not behind masterTimerQueueOffset: after a
        # kill the log has more than is vouched for here.
        numbers = (*state[:3], _NO_MASTER, self._state_version, self._timestamp_ms, self._counter)
        data = bytearray(TIMER_CHECKPOINT_STRUCT.pack(*numbers))
        data += TIMER_CHECKPOINT_SEAL_STRUCT.pack(*state[3:], 0)
        _set_seal(data)
        self._region.view[: len(data)] = data
        self._region.sync(0, TIMER_CHECKPOINT_FILE_SIZE)
        if not self._name_synced:
            self._disk.sync_dir(self._path.rpartition("/")[0])
            self._name_synced = True
        self.durable_state, self.sealed = state, True

    def close(self) -> None:
        """Unmap the file."""
        self._region.close()


def _sum(data: memoryview | bytearray) -> bytes:
    return (_SEAL_BASE | zlib.crc32(data)).to_bytes(8, "big")


def _is_sealed(data: memoryview) -> bool:
    return bytes(data[-8:]) == _sum(data[:-8])


def _set_seal(data: bytearray) -> None:
    data[-8:] = _sum(data[:-8])
