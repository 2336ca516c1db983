"""MarkFile: a small file with the progress of work on the store, safe against kills, power cuts and flipped bits.

The file has four slots. Two are *live*: they are written alternately without a sync after each batch of work, and are valid
only under the kernel and mount of their writer (`Disk.boot_mark`), as long as no page cache was lost. Two are *durable*:
they are also written alternately, but synced, and only after everything that they refer to is on the disk. Each slot has a
seal, a checksum of its contents, so that a torn or damaged slot is detected and the other one is used.

Slots are in separate pages, so that the kernel, which may write a live slot to the disk at any time, does not write a
durable slot with it.
"""

import zlib
from typing import Final

from pocketmq.store.disk.disk import Disk, map_sized
from pocketmq.store.format.layout import MARK_HEADER_STRUCT, MARK_MAGIC, MARK_SLOT_SIZE

SLOTS: Final = ("live", "live", "durable", "durable")
FILE_SIZE: Final = MARK_SLOT_SIZE * len(SLOTS)
PAYLOAD_MAX: Final = MARK_SLOT_SIZE - MARK_HEADER_STRUCT.size
_SEALED_FROM: Final = 8  # the seal itself comes first
_LIVE, _DURABLE = (0, 1), (2, 3)


class _Slot:
    """One decoded slot; `payload` is None if it was never written or is damaged."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.payload: bytes | None = None
        seal, magic, size, self.sequence, self.boot = MARK_HEADER_STRUCT.unpack_from(data)
        self.is_damaged = any(data)
        end = MARK_HEADER_STRUCT.size + size
        if magic == MARK_MAGIC and 0 <= size <= PAYLOAD_MAX and seal == zlib.crc32(data[_SEALED_FROM:end]):
            self.payload = bytes(data[MARK_HEADER_STRUCT.size : end])
            self.is_damaged = any(data[end:])


def _slots_of(data: bytes | memoryview) -> list[_Slot]:
    return [_Slot(data[at * MARK_SLOT_SIZE :][:MARK_SLOT_SIZE]) for at in range(len(SLOTS))]


def problems(data: bytes) -> list[str]:
    """Return what is damaged in a mark file with these bytes. Zeros alone are no damage: nothing has been marked yet."""
    if len(data) != FILE_SIZE:
        return [f"it has {len(data)} bytes, not {FILE_SIZE}"]
    if not any(data):
        return []
    slots = _slots_of(data)
    found = [f"slot {at} ({SLOTS[at]}) is damaged" for at, slot in enumerate(slots) if slot.is_damaged]
    return found if any(slot.payload is not None for slot in slots) else [*found, "it has no valid slot"]


def payloads(data: bytes, boot_mark: str) -> tuple[list[bytes], bool]:
    """Return (payloads of the slots that are valid under `boot_mark`, whether all four slots have the same payload)."""
    slots = _slots_of(data)
    boot = zlib.crc32(boot_mark.encode())
    counts = [at in _DURABLE or bool(boot and slot.boot == boot) for at, slot in enumerate(slots)]
    counted = [slot.payload for slot, is_counted in zip(slots, counts, strict=True) if is_counted]
    return [payload for payload in counted if payload is not None], len({slot.payload for slot in slots}) == 1


class MarkFile:
    """Mark file of one writer.

    `live` and `durable` are the last process's payloads, None if invalid. `problems` has the errors found in the file.
    `write` may only be called by the loop; `sync` by any thread, but not concurrently.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Open or create the file. Raises OSError."""
        self.path = path
        self._disk = disk
        self._region, size = map_sized(disk, path, FILE_SIZE)
        self._region.reserve(0, FILE_SIZE)
        self.problems: list[str] = []
        if size is not None:
            self.problems = problems(bytes(self._region.view) if size == FILE_SIZE else bytes(size))
        self._name_synced = False
        self._boot = zlib.crc32(disk.boot_mark(path).encode())  # 0: unknown
        slots = _slots_of(self._region.view)
        live = [slots[at] for at in _LIVE if self._boot and slots[at].boot == self._boot]
        self.live = _newest(live)
        self.durable = _newest([slots[at] for at in _DURABLE])
        written = [slot.sequence for slot in slots if slot.payload is not None]
        self._next = {0: max(written, default=0) + 1, 2: max(written, default=0) + 1}

    def write(self, payload: bytes) -> None:
        """Write progress that must survive a process kill. Does not sync."""
        self._put(_LIVE[0], payload)

    def sync(self, payload: bytes) -> None:
        """Write progress that must survive a power cut; what `payload` refers to must be on disk. Raises OSError."""
        start = self._put(_DURABLE[0], payload)
        self._region.sync(start, start + MARK_SLOT_SIZE)
        if not self._name_synced:
            self._disk.sync_dir(self.path.rpartition("/")[0])
            self._name_synced = True

    def seal(self, payload: bytes) -> None:
        """Rewrite all slots, as the last step of a clean stop. Raises OSError."""
        for _ in range(2):
            self._put(_LIVE[0], payload)
            self._put(_DURABLE[0], payload)
        self._region.sync(0, FILE_SIZE)
        self._disk.sync_dir(self.path.rpartition("/")[0])

    def clear(self) -> None:
        """Clear all slots, because another broker has changed the store since."""
        self.live = self.durable = None
        for at in range(len(SLOTS)):
            start = at * MARK_SLOT_SIZE
            self._region.view[start : start + MARK_SLOT_SIZE] = bytes(MARK_SLOT_SIZE)

    def _put(self, first: int, payload: bytes) -> int:
        if len(payload) > PAYLOAD_MAX:
            raise ValueError(f"mark has {len(payload)} bytes, at most {PAYLOAD_MAX} are allowed")
        sequence = self._next[first]
        self._next[first] = sequence + 1
        header = bytearray(MARK_HEADER_STRUCT.pack(0, MARK_MAGIC, len(payload), sequence, self._boot))
        data = header + payload
        data[:_SEALED_FROM] = zlib.crc32(data[_SEALED_FROM:]).to_bytes(_SEALED_FROM, "big")
        start = (first + sequence % 2) * MARK_SLOT_SIZE
        self._region.view[start : start + len(data)] = data
        # The remains of a longer payload would look like damage.
        end = start + MARK_SLOT_SIZE
        if any(self._region.view[start + len(data) : start + len(data) + 8]):
            self._region.view[start + len(data) : end] = bytes(end - start - len(data))
        return start

    def close(self) -> None:
        self._region.close()


def _newest(slots: list[_Slot]) -> bytes | None:
    written = [slot for slot in slots if slot.payload is not None]
    return max(written, key=lambda slot: slot.sequence).payload if written else None
