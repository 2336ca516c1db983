"""Target: a small store with one damaged file must open, or refuse and name the file."""

import asyncio
import random
import struct
from typing import Any

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.message_store import MessageStore
from tests.broker.damage import Content, Files, _disk_of, _files
from tests.broker.small_store import SIZES, make_store
from tests.broker.timed import Timed
from tests.fuzz.fuzz_oracle import One, Target, Wrong

HEAD = struct.Struct(">BBH")
"""File number, kind of damage and size of the truncated file.

Kinds: 1 content replaced by the rest of the input, 2 truncated, 3 missing, otherwise edited bytes. 8 is added for a store
whose process was killed.
"""
EDIT = struct.Struct(">HHB")
TIMERS = {"slots_total": 2_000, "roll_window_slots": 900, "log_file_size": 1 << 12, "commit_log_file_size": 1 << 15}
_TIMER_FILES = ("timer", "config/timercheck")


def damaged(content: Content, how: int, number: int, data: bytes) -> Content:
    if how == 1:
        return Content.of(data)
    found = bytearray(content.whole())
    if how == 2:
        del found[number % (len(found) + 1) :]
        return Content.of(bytes(found))
    used = content.used or 1
    for at in range(0, len(data) - EDIT.size + 1, EDIT.size):
        high, low, byte = EDIT.unpack_from(data, at)
        if found:
            found[(high << 16 | low) % min(used + 64, len(found))] = byte
    return Content.of(bytes(found))


def _store() -> One:
    files = {name: content for name, content in _made().items() if not name.startswith(("timer", "config/"))}
    names, now_ms = sorted(files), _NOW_MS
    config = MessageStoreConfig(store_path_root_dir="/store", **SIZES)

    def one(data: bytes) -> None:
        if len(data) < HEAD.size:
            return
        which, how, number = HEAD.unpack_from(data)
        name = names[which % len(names)]
        state = dict(files)
        if how % 8 == 3:
            del state[name]
        else:
            state[name] = damaged(files[name], how % 8, number, data[HEAD.size :])
        if not how & 8:
            state.pop("abort", None)  # stopped cleanly
        store = MessageStore(config, _disk_of(state, None), VirtualClock(now_ms))
        try:
            store.load()
        except StoreError as error:
            if "/store" not in str(error):
                raise Wrong(f"the refusal names no file: {error}") from error
            raise
        _read(store)
        store.shutdown()

    return one


def _read(store: MessageStore) -> None:
    """Read all messages that queues and index refer to."""
    for queue in list(store.queues):
        offset = queue.min_offset
        for _ in range(40):
            try:
                result = store.reader.get_message(queue.topic, queue.queue_id, offset, 32)
            except StoreError:
                break  # the error says where the queue is damaged
            if result.next_begin_offset <= offset:
                break
            offset = result.next_begin_offset
        store.offset_by_time(queue.topic, queue.queue_id, _NOW_MS)
    store.query_message("T0", "k-plain-0", 32, 0, 1 << 62)


_NOW_MS = 1_700_000_020_000


def _made() -> Files:
    """Return the files of a store after a process kill."""
    disk, found = MemoryDisk(), dict[str, Content]()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(make_store(disk, "/store", VirtualClock(), lambda: found.update(_files(disk, "/store"))))
    loop.close()
    return found


def _timers() -> One:
    files, now_ms = asyncio.run(_timers_made())
    names = sorted(name for name in files if name.startswith(_TIMER_FILES))

    async def lived(state: Files) -> None:
        clock = VirtualClock(now_ms)
        timed = Timed(_disk_of(state, None), clock, **TIMERS)
        await timed.advance(1_000_000)
        found = timed.bodies()
        timed.stop()
        missing = [body for body in _BODIES if body not in found]
        if missing:
            raise Wrong(f"not delivered: {', '.join(missing)}")

    def one(data: bytes) -> None:
        if len(data) < HEAD.size:
            return
        which, how, number = HEAD.unpack_from(data)
        name = names[which % len(names)]
        state = dict(files)
        if how % 8 == 3:
            del state[name]
        else:
            state[name] = damaged(files[name], how % 8, number, data[HEAD.size :])
        asyncio.run(asyncio.wait_for(lived(state), 60))  # a new loop: timers left on a shared one keep the store

    return one


_BODIES = [f"timer-{number}" for number in range(12)]


async def _timers_made() -> tuple[Files, int]:
    disk, clock = MemoryDisk(), VirtualClock()
    timed = Timed(disk, clock, **TIMERS)
    for number, body in enumerate(_BODIES):
        timed.put(body, TIMER_DELAY_SEC=str(2 + number * 60))
    await timed.advance(130_000)
    timed.persist()
    files = _files(disk, "/store")
    timed.stop()
    return files, clock.message_time_ms()


def _seeds() -> list[bytes]:
    seeds = []
    for which in range(40):
        seeds += [HEAD.pack(which, how, number) for how, number in ((2, 0), (2, 100), (3, 0), (8, 0))]
        seeds += [HEAD.pack(which, 0, 0) + EDIT.pack(0, at, 255) for at in (0, 7, 40)]
        seeds += [HEAD.pack(which, 8, 0) + EDIT.pack(0, at, 1) for at in (3, 21, 300)]
    return seeds


def _mutate(rng: random.Random, data: bytes) -> bytes:
    if len(data) < HEAD.size or rng.random() < 0.1:
        return HEAD.pack(rng.randrange(64), rng.choice((0, 1, 2, 3, 8, 9, 10)), rng.randrange(1 << 16))
    how = rng.randrange(4)
    if how == 0:
        return HEAD.pack(rng.randrange(64), *HEAD.unpack_from(data)[1:]) + data[HEAD.size :]
    edit = EDIT.pack(
        0, rng.choice((rng.randrange(64), rng.randrange(1 << 13))), rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    )
    if how == 1:
        return data[: HEAD.size] + edit
    return data + edit


def _no_growth(data: bytes, size: int, rng: Any) -> bytes:
    return data


TARGETS = (
    Target(
        "store_files", _store, _seeds, (StoreError,), _mutate, _no_growth, (), base_ms=500, size_max=600, weight=0.15,
    ),
    Target(
        "timer_files", _timers, lambda: [one for one in _seeds() if one[0] < 3], (), _mutate, _no_growth, (), base_ms=1_000,
        size_max=600, weight=0.08,
    ),
)  # fmt: skip
