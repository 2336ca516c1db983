"""Damage to every file of a stopped and of a killed store: messages that are not damaged themselves can still be read.

A bit is flipped, or the file is cut to half its size, emptied or deleted. In small files every bit is flipped. Damaged files
that are decoded alike lead to the same start, so a store is started only once for each different result of decoding. In
large files the flipped bits are chosen by a seed, and include each bit of one record's header with POCKETMQ_LONG=true, a
bit of each of its bytes without.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.disk.store_checkpoint import believed
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.layout import CHECKPOINT_SEAL_POSITION, CHECKPOINT_SEAL_STRUCT, CHECKPOINT_SIZE, RECORD_SIZE_MIN
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery import abort_mark, clean_stop
from tests.store.stores import ROOT, SteppedClock, message, small_config
from tests.support.amount import cases

Files = dict[str, bytes]
# (topic, queue id, queue offset) -> (physical offset, size, body)
Sent = dict[tuple[str, int, int], tuple[int, int, bytes]]

_SAMPLE = cases(14, 70)
_LOG_FILE_SIZE = 16 << 10


def lived(*, clean: bool) -> tuple[Files, Sent]:
    """Return the files of a store after its end, and the messages that it has acknowledged."""
    disk, clock, sent = MemoryDisk(), SteppedClock(), Sent()
    store = MessageStore(small_config(), disk, clock)
    store.load()

    def put(first: int, end: int) -> None:
        for number in range(first, end):
            topic, queue_id = ("A", number % 2) if number % 3 else ("B", 0)
            body = b"body %03d " % number + bytes((65 + number % 26,)) * 200
            result = store.commit_log.put(message(topic, queue_id, body, KEYS=f"k{number}", TAGS=f"t{number % 4}"))
            sent[topic, queue_id, result.queue_offset] = result.physical_offset, result.size, body
            store.dispatch()
            clock.step(1)

    put(0, 70)
    store.flush_service.run_once()
    clock.step(70)
    store.checkpoint_service.run_once()
    put(70, 100)
    if clean:
        store.shutdown()
    return {path: disk.read_file(path) for path in disk.paths()}, sent


LIVES = {"stopped": lived(clean=True), "killed": lived(clean=False)}
ALL_FILES = [(life, path.removeprefix(f"{ROOT}/")) for life, (files, _) in LIVES.items() for path in sorted(files)]


def started(files: Files) -> tuple[MessageStore, list[str]]:
    """Return a store started on the files, and the repairs that its start has reported."""
    disk = MemoryDisk()
    for path, data in files.items():
        disk.write_file(path, data)
    store = MessageStore(small_config(), disk, VirtualClock())
    return store, store.load().repairs


def unread(store: MessageStore, sent: Sent, damaged: range) -> list[tuple[str, int, int]]:
    """Return the messages outside the `damaged` part of the log that cannot be read or have another tags code."""
    missing = []
    for (topic, queue_id, queue_offset), (physical_offset, size, body) in sent.items():
        if physical_offset < damaged.stop and damaged.start < physical_offset + size:
            continue
        queue = store.queue(topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue is not None else None
        result = store.reader.get_message(topic, queue_id, queue_offset, 1)
        found = decode_record(result.views[0], 0) if result.views else None
        code = tags_code(f"t{int(body[5:8]) % 4}")
        if found is None or found.body != body or unit is None or unit[2] != code:
            missing.append((topic, queue_id, queue_offset))
    return missing


def in_log(path: str, start: int, end: int) -> range:
    """Return the physical offsets of bytes of a log file, or an empty range for another file."""
    first = int(path[-20:]) if "commitlog/" in path else 0
    return range(first + start, first + end) if "commitlog/" in path else range(0)


def named(path: str, lines: list[str]) -> bool:
    """Return whether a line names the file, or the queue or the index that it is part of."""
    parts = path.split("/")
    if parts[0] == "consumequeue":
        return any(path in line or f"{parts[1]}/{parts[2]}" in line for line in lines)
    if parts[0] == "index":
        return any("index file" in line for line in lines)
    return any(parts[-1] in line for line in lines)


@pytest.mark.parametrize("how", ["deleted", "emptied", "halved"])
@pytest.mark.parametrize("life, path", ALL_FILES)
def test_missing_or_truncated_file_loses_no_other_message(life: str, path: str, how: str) -> None:
    files, sent = dict(LIVES[life][0]), LIVES[life][1]
    data = files.pop(f"{ROOT}/{path}")
    kept = 0
    if how != "deleted":
        kept = len(data) // 2 if how == "halved" else 0
        files[f"{ROOT}/{path}"] = data[:kept]
    store, lines = started(files)
    assert unread(store, sent, in_log(path, kept, len(data))) == []
    is_like_another_brokers = path == "abort" and how == "emptied"
    # Nothing was recorded about the newest index file before the kill, so it is rebuilt like a new one, without a report.
    is_unknown = path.startswith("index/") and how == "deleted" and life == "killed"
    if not (is_like_another_brokers or is_unknown or path.endswith(".bak")):
        assert named(path, lines), lines


def flips(data: bytes, bits: list[int]) -> Iterator[bytes]:
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def _understood_checkpoint(data: bytes) -> object:
    return believed(data)


def _understood_clean_stop(data: bytes) -> object:
    try:
        return repr(clean_stop.decode(data))
    except ValueError as error:
        return str(error)


def _understood_abort(data: bytes) -> object:
    return abort_mark.decode(data, "memory")


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize(
    "path, understood",
    [
        ("checkpoint", _understood_checkpoint),
        ("cleanStop.json", _understood_clean_stop),
        ("abort", _understood_abort),
    ],
)
def test_each_flipped_bit_of_a_small_file_is_reported_and_loses_nothing(
    life: str, path: str, understood: Callable[[bytes], object]
) -> None:
    files, sent = LIVES[life]
    data = files.get(f"{ROOT}/{path}")
    if data is None:
        pytest.skip("there is none after a clean stop")
    valid, starts = understood(data), dict[object, bytes]()
    for number, flipped in enumerate(flips(data, list(range(len(data) * 8)))):
        meaning = understood(flipped)
        is_unused = path == "checkpoint" and not (
            number // 8 < CHECKPOINT_SIZE
            or CHECKPOINT_SEAL_POSITION <= number // 8 < CHECKPOINT_SEAL_POSITION + CHECKPOINT_SEAL_STRUCT.size
        )
        assert (meaning == valid) == is_unused, f"bit {number}: {meaning}"
        if meaning != valid:
            starts.setdefault(meaning, flipped)
    assert len(starts) < 20
    for flipped in starts.values():
        store, lines = started(files | {f"{ROOT}/{path}": flipped})
        assert unread(store, sent, range(0)) == []
        assert named(path, lines), lines


@pytest.mark.parametrize(
    "life, path", [one for one in ALL_FILES if one[1].startswith(("commitlog", "consumequeue", "index"))]
)
def test_flipped_bits_of_a_large_file_lose_no_other_message(life: str, path: str) -> None:
    files, sent = LIVES[life]
    data = files[f"{ROOT}/{path}"]
    written = [at for at, byte in enumerate(data) if byte]
    rng = random.Random(path)
    bits = rng.sample(range(len(data) * 8), min(_SAMPLE, len(data)))
    bits += [at * 8 + rng.randrange(8) for at in rng.sample(written, min(_SAMPLE, len(written)))]
    if life == "killed" and path == f"commitlog/{_LOG_FILE_SIZE:020}":
        bits += range(0, RECORD_SIZE_MIN * 8, cases(7, 1))
    for bit, flipped in zip(bits, flips(data, bits), strict=True):
        store, lines = started(files | {f"{ROOT}/{path}": flipped})
        missing = unread(store, sent, in_log(path, bit // 8, bit // 8 + 1))
        assert missing == [], f"byte {bit // 8}, bit {bit % 8}: {lines}"
        if path.startswith("consumequeue") and bit // 8 in written and life == "stopped":
            assert named(path, lines), f"byte {bit // 8}, bit {bit % 8}"
