"""The timer wheel: a file of slots, one per second of two weeks, each the head of a list of units in the timer log.

Slot n belongs to the times t (in units of the precision) with t mod slots = n. A slot contains its time: a slot with
another time counts as empty, and a delivered slot is overwritten by a later time. A slot has the positions of its
oldest and newest unit. The wheel can be rebuilt from the timer log, and is checked against it at each start (TimerStore).

The file is sparse: a page takes disk space only when the first of its slots is used.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk, map_sized
from pocketmq.store.format.layout import TIMER_WHEEL_SLOT_DTYPE, TIMER_WHEEL_SLOT_SIZE, TIMER_WHEEL_SLOT_STRUCT
from pocketmq.store.timer.timer_log import Numbers

log = logging.getLogger("store")

# An array of TIMER_WHEEL_SLOT_DTYPE.
Slots = npt.NDArray[np.void]

_PAGE_SIZE: Final = 4096
_SLOTS_PER_PAGE: Final = _PAGE_SIZE // TIMER_WHEEL_SLOT_SIZE
_FAR: Final = 1 << 62
_ZEROS: Final = memoryview(bytes(1 << 16))
_PAGES_SOUGHT: Final = 64
"""Pages outside holes that are looked for one by one; to read the rest of a file with more is cheaper."""


class TimerSlot(NamedTuple):
    """A slot: timer-log positions of its oldest and newest unit; the count is messages minus cancelling units."""

    first_position: int
    last_position: int
    message_count: int
    magic: int


_EMPTY: Final = TimerSlot(-1, -1, 0, 0)
_EMPTY_SLOT: Final = np.array((-1, *_EMPTY), TIMER_WHEEL_SLOT_DTYPE)


class TimerWheel:
    """Timer wheel. Times are epoch ms and are rounded to the precision of the slots."""

    def __init__(self, disk: Disk, path: str, slot_count: int, precision_ms: int) -> None:
        """Open or create the file with `slot_count` slots. A file of another size is recreated. Raises OSError."""
        size = slot_count * TIMER_WHEEL_SLOT_SIZE
        self.slot_count = slot_count
        self.precision_ms = precision_ms
        self.span_ms = slot_count * precision_ms
        """Total time span of the slots in ms."""
        self.path = path
        self._region, found = map_sized(disk, path, size, random_access=True)
        if found not in (None, size):
            log.warning("%s has %d bytes, not %d: rebuilt from the timer log", path, found, size)
        self._view = self._region.view
        self._slots: Slots = self._region.array.view(TIMER_WHEEL_SLOT_DTYPE)
        self._reserved = np.zeros(-(-size // _PAGE_SIZE), np.bool_)
        # Pages that had contents when the file was opened. All others are zero until space is reserved for them.
        self._found = np.zeros(len(self._reserved), np.bool_)
        if found == size:
            self._find_pages()
        # Upper bound of the slot times in each page, to skip pages without units.
        self._newest = np.where(self._found, _FAR, 0)
        self._disk = disk
        self._directory = path.rpartition("/")[0]
        self._name_synced = False
        self._dirty = False

    def _find_pages(self) -> None:
        """Note which pages of a file that was there may have contents: those outside its holes."""
        page, end = 0, len(self._found)
        for _ in range(_PAGES_SOUGHT):
            page = self._region.next_data(page * _PAGE_SIZE, end * _PAGE_SIZE) // _PAGE_SIZE
            if page >= end:
                return
            self._found[page] = True
            page += 1
        self._found[page:] = True

    # --- slots ------------------------------------------------------------------------------------------------------

    def slot_at(self, time_ms: int) -> TimerSlot:
        """Return the slot of a time; an empty one if the slot is used by another time."""
        time = time_ms // self.precision_ms
        slot_time, *found = TIMER_WHEEL_SLOT_STRUCT.unpack_from(self._view, time % self.slot_count * TIMER_WHEEL_SLOT_SIZE)
        return TimerSlot(*found) if slot_time == time else _EMPTY

    def next_time_ms(self, begin_ms: int, end_ms: int) -> int | None:
        """Return the first time in [begin_ms, end_ms) whose slot has units. The range is at most the wheel's span."""
        begin, end = begin_ms // self.precision_ms, -(-end_ms // self.precision_ms)
        first = begin % self.slot_count
        # Usually the slot is in the same page.
        times = self._slots["time"][first : first // _SLOTS_PER_PAGE * _SLOTS_PER_PAGE + _SLOTS_PER_PAGE]
        found = times[(times >= begin) & (times < end)]
        if len(found):
            return int(found.min()) * self.precision_ms
        # The page of `begin` comes first. If the range wraps around the wheel, it also comes last, for its earlier slots.
        turns = min((end - begin) // _SLOTS_PER_PAGE + 3, len(self._newest) + 1)
        pages = (first // _SLOTS_PER_PAGE + np.arange(turns)) % len(self._newest)
        for turn in np.flatnonzero(self._newest[pages] >= begin).tolist():
            number = int(pages[turn]) * _SLOTS_PER_PAGE
            if turn and begin + (number - first) % self.slot_count >= end:
                return None
            times = self._slots["time"][number : number + _SLOTS_PER_PAGE]
            times = times[first - number :] if turn == 0 else times[: first - number] if turn == len(self._newest) else times
            found = times[(times >= begin) & (times < end)]
            if len(found):
                return int(found.min()) * self.precision_ms
        return None

    def count_from(self, begin_ms: int) -> int:
        """Return the number of messages, minus cancelling units, in the slots of all times from `begin_ms` on."""
        begin, count = begin_ms // self.precision_ms, 0
        for _, slots in self._runs_from(begin):
            count += int(slots["message_count"][slots["time"] >= begin].sum())
        return count

    def _runs_from(self, begin: int) -> Iterator[tuple[int, Slots]]:
        """Yield the slots of successive pages that may have times from `begin` on, after the number of their first page."""
        for first, end in _runs(np.flatnonzero(self._newest >= begin)):
            yield first, self._slots[first * _SLOTS_PER_PAGE : end * _SLOTS_PER_PAGE]

    def linked_slots(self, times_ms: Numbers, positions: Numbers, counts: Numbers) -> tuple[Numbers, Numbers, Slots]:
        """Return the slots with units added to them at `times_ms`, without changing the wheel; `set_slots` does that.

        The units' `positions` must ascend; `counts` has what each adds to its slot's message count. Returns for each unit
        the position of the previous unit of its slot (-1: none), the numbers of the slots, and the slots. Reserves disk
        space for them. Raises OSError.
        """
        self.reserve(times_ms)
        times = times_ms // self.precision_ms
        order = np.argsort(times, kind="stable")
        times, positions = times[order], positions[order]
        begins = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
        ends = np.append(begins[1:], len(times)) - 1
        numbers = times[begins] % self.slot_count
        slots = self._slots[numbers]
        slots[slots["time"] != times[begins]] = _EMPTY_SLOT
        previous = np.empty_like(positions)
        previous[1:] = positions[:-1]
        previous[begins] = slots["last_position"]
        slots["first_position"] = np.where(slots["first_position"] < 0, positions[begins], slots["first_position"])
        slots["last_position"] = positions[ends]
        slots["message_count"] += np.add.reduceat(counts[order], begins)
        slots["time"] = times[begins]
        in_order_of_units = np.empty_like(previous)
        in_order_of_units[order] = previous
        return in_order_of_units, numbers, slots

    def linked_slot(self, time_ms: int, position: int, count: int) -> tuple[int, TimerSlot]:
        """Return what `linked_slots` does for one unit, without arrays: the position of the previous unit, and the slot."""
        page = time_ms // self.precision_ms % self.slot_count // _SLOTS_PER_PAGE
        if not self._reserved[page]:
            self._reserve(page, page + 1)
        first_position, previous, before, magic = self.slot_at(time_ms)
        return previous, TimerSlot(position if first_position < 0 else first_position, position, before + count, magic)

    def set_slot(self, time_ms: int, slot: TimerSlot) -> None:
        """Set the slot of a time as `linked_slot` returned it."""
        time = time_ms // self.precision_ms
        number = time % self.slot_count
        TIMER_WHEEL_SLOT_STRUCT.pack_into(self._view, number * TIMER_WHEEL_SLOT_SIZE, time, *slot)
        page = number // _SLOTS_PER_PAGE
        self._newest[page] = max(self._newest[page], time)
        self._dirty = True

    def set_slots(self, numbers: Numbers, slots: Slots) -> None:
        """Set slots as `linked_slots` returned them."""
        self._slots[numbers] = slots
        np.maximum.at(self._newest, numbers // _SLOTS_PER_PAGE, slots["time"].astype(np.int64))
        self._dirty = True

    def sum(self) -> int:
        """Return the checksum of the whole file. Pages that are known to be zero are not read, which would allocate them."""
        done, found = 0, 0
        for first, end in _runs(np.flatnonzero(self._found | self._reserved)):
            found = _sum_of_zeros((first - done) * _PAGE_SIZE, found)
            found = crc32(self._view[first * _PAGE_SIZE : end * _PAGE_SIZE], found)
            done = end
        return _sum_of_zeros(max(len(self._view) - done * _PAGE_SIZE, 0), found)

    def sum_from(self, begin_ms: int) -> int:
        """Return the checksum of the slots of all times from `begin_ms` on."""
        begin, found = max(begin_ms // self.precision_ms, 1), 0
        for _, slots in self._runs_from(begin):
            found = crc32(slots[slots["time"] >= begin].tobytes(), found)
        return found

    def clear_from(self, begin_ms: int) -> None:
        """Empty the slots of all times from `begin_ms` on."""
        begin = max(begin_ms // self.precision_ms, 1)
        for first, slots in self._runs_from(begin):
            times = slots["time"].astype(np.int64)
            filled = np.flatnonzero(times >= begin)
            slots[filled] = np.zeros((), TIMER_WHEEL_SLOT_DTYPE)
            times[filled] = 0
            newest = np.maximum.reduceat(times, np.arange(0, len(times), _SLOTS_PER_PAGE))
            self._newest[first : first + len(newest)] = newest
        self._dirty = True

    def reserve(self, times_ms: Numbers) -> None:
        """Reserve disk space for the slots of these times. Raises OSError."""
        pages = np.unique(times_ms // self.precision_ms % self.slot_count // _SLOTS_PER_PAGE)
        for first, end in _runs(pages[~self._reserved[pages]]):
            self._reserve(first, end)

    def _reserve(self, first_page: int, end_page: int) -> None:
        self._region.reserve(first_page * _PAGE_SIZE, min(end_page * _PAGE_SIZE, self.slot_count * TIMER_WHEEL_SLOT_SIZE))
        self._reserved[first_page:end_page] = True

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make the slots durable. Thread-safe. Raises OSError."""
        if self._dirty:
            self._dirty = False
            try:
                self._region.sync(0, self.slot_count * TIMER_WHEEL_SLOT_SIZE)
                if not self._name_synced:
                    self._disk.sync_dir(self._directory)
                    self._name_synced = True
            except OSError:
                self._dirty = True
                raise

    def release_memory(self) -> None:
        """Remove the pages from the resident set."""
        self._region.release_memory(0, self.slot_count * TIMER_WHEEL_SLOT_SIZE)

    def close(self) -> None:
        del self._slots, self._view
        self._region.close()


def _runs(pages: Numbers) -> Iterator[tuple[int, int]]:
    """Yield first and end of each run of successive pages."""
    for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1) if len(pages) else ():
        yield int(run[0]), int(run[-1]) + 1


def _sum_of_zeros(count: int, before: int) -> int:
    """Return the checksum of `count` bytes of zero that follow bytes with the checksum `before`."""
    for _ in range(count // len(_ZEROS)):
        before = crc32(_ZEROS, before)
    return crc32(_ZEROS[: count % len(_ZEROS)], before)
