"""Recovery of a store from files that a crash has left or that were changed by hand.

Disks in memory never lose a page, so a store that was not stopped counts as killed; `crash` makes it look like a crash of
the machine.
"""

import json
import os
import random
from collections.abc import Callable

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import CHECKPOINT_STRUCT, CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.clean_stop import FILE_NAME
from pocketmq.store.recovery.recovery import Recovery
from pocketmq.store.recovery.recovery_report import RecoveryReport, StartKind
from tests.store.stores import ROOT, SteppedClock, bodies, message, open_store, records, small_config
from tests.support.amount import cases

FILE_SIZE = 16 << 10
COUNT = 60
FAR_MS = 1 << 60


def crashed_disk() -> tuple[MemoryDisk, list[bytes], list[int]]:
    """Return the disk of a store that was never stopped, and the bodies and physical offsets of its queue T/0."""
    disk = MemoryDisk()
    store = open_store(disk)
    expected, starts = [], []
    for number in range(COUNT):
        body = b"%d:" % number + bytes([number]) * (number * 17 % 700)
        expected.append(body)
        starts.append(store.commit_log.put(message("T", 0, body, KEYS=f"k{number}")).physical_offset)
        if number % 3 == 0:
            store.commit_log.put(message("Other", number % 4, b"other"))
        store.dispatch()
    return disk, expected, starts


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for path in disk._files:
        copy.write_file(path, disk.read_file(path))
    return copy


def reopen(disk: MemoryDisk) -> tuple[MessageStore, RecoveryReport]:
    disk._locked.clear()  # the process that held the lock has ended
    store = MessageStore(small_config(), disk, VirtualClock())
    return store, store.load()


def crash(disk: MemoryDisk, synced_ms: int = 0, queues_ms: int = 0) -> None:
    """Make the files look like those of a crash of the machine; the checkpoint covers log and queues up to these times."""
    disk.write_file(f"{ROOT}/abort", b"")
    disk.write_file(f"{ROOT}/checkpoint", CHECKPOINT_STRUCT.pack(synced_ms, queues_ms, queues_ms, 0, 0).ljust(4096, b"\0"))


def state(store: MessageStore) -> dict[str, object]:
    """Return all units of all queues, and the results of queries by all keys."""
    found: dict[str, object] = {}
    for queue in store.queues:
        units: list[tuple[int, ...]] = []
        while run := queue.units(queue.min_offset + len(units), 100):
            units += CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(run)
        if units:
            found[f"{queue.topic}/{queue.queue_id}"] = (queue.min_offset, units)
    for number in range(COUNT):
        views = store.query_message("T", f"k{number}", 64, 0, FAR_MS).views
        found[f"k{number}"] = sorted({bytes(view) for view in views})
    return found


def overwrite(disk: MemoryDisk, physical_offset: int, data: bytes) -> None:
    start = physical_offset - physical_offset % FILE_SIZE
    file = disk._file(f"{ROOT}/commitlog/{start:020}")
    position = physical_offset - start
    file.pages[position : position + len(data)] = data


@pytest.mark.parametrize("dispatched_between", [True, False])
def test_topic_deleted_and_created_again_has_only_its_new_messages(dispatched_between: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(8):
        store.commit_log.put(message("T", 0, b"first life %d" % number))
        store.commit_log.put(message("Other", 0, b"other %d" % number))
        if dispatched_between or number < 7:
            store.dispatch()
    assert store.drop_topics({"Other"}) == ["T"]
    expected = [b"second life %d" % number for number in range(5)]
    for number, body in enumerate(expected):
        assert store.commit_log.put(message("T", 0, body)).queue_offset == number
    store.dispatch()
    assert bodies(store) == expected

    for _ in range(2):
        store, _ = reopen(disk)
        assert bodies(store) == expected
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 5)
        assert bodies(store, "Other") == [b"other %d" % number for number in range(8)]
    assert store.commit_log.put(message()).queue_offset == 5


def test_deleted_topics_do_not_come_back() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(40):
        store.commit_log.put(message("T", number % 2, bytes(500)))
        store.commit_log.put(message("Other", 0, b"%d" % number))
    store.dispatch()
    store.drop_topics({"Other"})
    store.commit_log.put(message("T", 1, b"anew"))
    store.dispatch()
    for _ in range(2):
        crash(disk)
        store, report = reopen(disk)
        assert (store.max_offset("T", 0), bodies(store, "T", 1), store.max_offset("Other", 0)) == (0, [b"anew"], 40)


def test_queue_offset_of_a_deleted_topic_is_not_restored() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(6):
        store.commit_log.put(message("T", 0, bytes(500)))
        if number == 3:
            store.dispatch()
            store.flush_queues()
    store.dispatch()
    # The process is killed after it has marked the deletion. Then `begin_at` leaves an empty queue, as a start does that is
    # killed while it rebuilds the queue from its last records.
    store._known.drop_topics({"T"}, store.max_physical_offset, disk, ROOT)
    disk.delete_tree(f"{ROOT}/consumequeue/T")
    store, _ = reopen(disk)
    assert store.queue("T", 0) is None
    store.queues.find_or_create("T", 0).begin_at(4)
    for _ in range(2):
        store, _ = reopen(disk)
        assert (store.max_offset("T", 0), store.min_offset("T", 0)) == (0, -1)


def test_new_records_after_a_file_end_do_not_belong_to_a_deleted_topic() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    while store.commit_log.put(message("T", 0, bytes(3000))).end_offset < FILE_SIZE:
        pass
    store.dispatch()
    cut_log(disk, FILE_SIZE)
    crash(disk)
    store, report = reopen(disk)
    assert report.end_offset == FILE_SIZE, "a BLANK is the last of it"
    store.drop_topics(set())
    store.shutdown()
    store, _ = reopen(disk)
    assert store.commit_log.put(message("T", 0, b"anew")).physical_offset == FILE_SIZE
    store.commit_log.tail.write()
    crash(disk)
    store, _ = reopen(disk)
    assert bodies(store) == [b"anew"]


# --- the end of the log ---------------------------------------------------------------------------------------------


def test_nothing_is_lost_by_a_killed_process() -> None:
    disk, expected, _ = crashed_disk()
    store, report = reopen(disk)
    assert report.kind is StartKind.KILLED and report.repairs == []
    assert bodies(store) == expected
    assert [len(store.query_message("T", f"k{n}", 64, 0, FAR_MS).views) for n in range(COUNT)] == [1] * COUNT
    assert store.commit_log.put(message()).queue_offset == COUNT


def test_boot_mark_distinguishes_kill_from_machine_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _, _ = crashed_disk()
    pid, mark, _ = disk.read_file(f"{ROOT}/abort").splitlines()
    assert pid.isdigit() and mark.decode() == disk.boot_mark(ROOT)
    for abort, kind in ((pid, StartKind.CRASHED), (b"", StartKind.CRASHED), (pid + b"\nother", StartKind.CRASHED)):
        disk.write_file(f"{ROOT}/abort", abort)
        assert reopen(copy_of(disk))[1].kind is kind
    store, report = reopen(disk)
    assert report.kind is StartKind.CRASHED and "epoch ms" in str(report)
    store.shutdown()
    store, report = reopen(disk)
    assert report.kind is StartKind.CLEAN and report.records_scanned == 0 and len(report.lines()) == 1


def test_a_log_cut_anywhere_keeps_exactly_the_records_before_the_cut() -> None:
    disk, expected, starts = crashed_disk()
    rng = random.Random(1)
    for index in rng.sample(range(COUNT), 8):
        size = (starts + [starts[-1] + 900])[index + 1] - starts[index]
        for cut in {0, 1, 4, 8, 20, 36, 87, 88, 95, min(size, 1200) // 2}:
            copy = copy_of(disk)
            cut_log(copy, starts[index] + cut)
            store, report = reopen(copy)
            found = bodies(store)
            assert found == expected[: len(found)] and index <= len(found) <= index + 1, (index, cut)
            assert store.max_offset("T", 0) == len(found) == store.commit_log.put(message()).queue_offset


def cut_log(disk: MemoryDisk, physical_offset: int, file_size: int = FILE_SIZE) -> None:
    """Zero the log from `physical_offset` on, and delete later files."""
    start = physical_offset - physical_offset % file_size
    disk._file(f"{ROOT}/commitlog/{start:020}").pages[physical_offset - start : file_size] = bytes(
        file_size - (physical_offset - start)
    )
    while disk.exists(path := f"{ROOT}/commitlog/{(start := start + file_size):020}"):
        disk.delete(path)


def test_torn_properties_at_the_end_of_a_broken_log_are_cut() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.commit_log.put(message("T", 0, b"whole", KEYS="a b"))
    torn = store.commit_log.put(message("T", 0, b"torn", KEYS="c d", NOTE="e"))
    store.dispatch()
    for damage in (b"X", b"\0", b"NO\x02"):
        for ends in (0, 3):
            copy = copy_of(disk)
            # An entry without a name, without a divider, with zeros; of a record that is valid otherwise.
            text = b"KEYS\x01c d\x02NOTE\x01e"
            overwrite(copy, torn.end_offset - len(text) + (0 if ends else 4), damage if ends else b"_" + damage[1:])
            overwrite(copy, torn.end_offset - len(text) + 4, b"_")
            crash(copy)
            found, report = reopen(copy)
            assert bodies(found) == [b"whole"] and report.end_offset == torn.physical_offset
            assert found.query_message("T", "c", 64, 0, FAR_MS).views == []


@pytest.mark.parametrize("size", range(1, 30))
def test_records_whose_properties_end_in_zero_bytes_survive_a_crash(size: int) -> None:
    # Apache's broker stores them: a client may send any property value.
    disk = MemoryDisk()
    store = open_store(disk)
    expected = [b"%d" % number for number in range(9)]
    for body in expected:
        store.commit_log.put(message("T", 0, body, KEYS="k", note="n" * size + "\0" * (1 + size % 3)))
    store.dispatch()
    crash(disk)
    found, report = reopen(disk)
    assert bodies(found) == expected and report.end_offset == store.commit_log.max_offset
    assert found.shutdown() is None
    found, report = reopen(disk)
    assert bodies(found) == expected and report.kind is StartKind.CLEAN


def test_stale_records_behind_the_end_are_zeroed_and_never_come_back() -> None:
    disk, expected, starts = crashed_disk()
    # One record is torn; those behind it in the same file are valid, and would be read again if the log grew up to them.
    index = next(n for n in range(20, COUNT) if starts[n] // FILE_SIZE == starts[n + 3] // FILE_SIZE)
    whole = disk.read_file(f"{ROOT}/commitlog/{starts[index] // FILE_SIZE * FILE_SIZE:020}")
    overwrite(disk, starts[index] + 4, bytes(4))
    crash(disk)
    store, report = reopen(disk)
    assert report.end_offset == starts[index] and "cut off" in str(report)
    path = f"{ROOT}/commitlog/{starts[index] // FILE_SIZE * FILE_SIZE:020}"
    assert not any(disk.read_file(path)[starts[index] % FILE_SIZE :])
    # Write the torn record again, so that the log ends where a stale record began, and crash again.
    overwrite(disk, starts[index], whole[starts[index] % FILE_SIZE : starts[index + 1] % FILE_SIZE])
    crash(disk)
    store, report = reopen(disk)
    assert bodies(store) == expected[: index + 1]


def test_a_store_without_its_log_is_empty() -> None:
    disk, _, _ = crashed_disk()
    disk.delete_tree(f"{ROOT}/commitlog")
    store, report = reopen(disk)
    assert store.max_offset("T", 0) == 0 and report.repairs == ["the log is empty: all queues are deleted"]
    assert store.commit_log.put(message()).physical_offset == 0


def test_log_truncated_after_a_clean_stop_truncates_queues_and_index() -> None:
    disk, expected, starts = crashed_disk()
    store, _ = reopen(disk)
    store.shutdown()
    cut_log(disk, starts[-3])
    store, report = reopen(disk)
    assert report.clean and any("queues had records" in repair for repair in report.repairs)
    assert bodies(store) == expected[:-3]
    assert store.query_message("T", f"k{COUNT - 1}", 64, 0, FAR_MS).views == []
    assert len(store.query_message("T", "k5", 64, 0, FAR_MS).views) == 1


def test_lost_queue_is_rebuilt_even_if_the_log_has_lost_its_end() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    expected = [b"%d" % number for number in range(5)]
    for body in expected:
        store.commit_log.put(message("T", 0, body))
    store.dispatch()
    store.flush_queues()
    lost = store.commit_log.put(message("T", 0, b"not synced")).physical_offset
    store.dispatch()
    store.checkpoint_service.flush_queues(thorough=True)
    cut_log(disk, lost)
    disk.delete_tree(f"{ROOT}/consumequeue/T")
    crash(disk)
    store, report = reopen(disk)
    assert bodies(store) == expected and store.max_offset("T", 0) == 5
    assert report.end_offset == report.scan_start_offset == lost


def test_log_file_created_ahead_without_a_record_is_deleted() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.commit_log.put(message(body=bytes(FILE_SIZE // 2)))
    store.dispatch()
    store.request_sync(store.max_physical_offset)
    store.flush_service.run_once()
    assert len(disk.listdir(f"{ROOT}/commitlog")) == 2
    store, report = reopen(disk)
    assert report.log_files_deleted == 1 and len(bodies(store)) == 1 and report.repairs == []


@pytest.mark.parametrize("size", [0, 5000])
def test_truncated_log_file_is_extended_with_zeros(size: int) -> None:
    disk, expected, starts = crashed_disk()
    names = disk.listdir(f"{ROOT}/commitlog")
    for name in names[-2:]:
        copy = copy_of(disk)
        copy.write_file(f"{ROOT}/commitlog/{name}", disk.read_file(f"{ROOT}/commitlog/{name}")[:size])
        store, report = reopen(copy)
        gone = [body for body, at in zip(expected, starts, strict=True) if at // FILE_SIZE * FILE_SIZE == int(name)]
        found = bodies(store)
        assert [body for body in expected if body not in gone] == [body for body in found if body not in gone]
        assert size == 0 or report.repairs


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["killed", "clean", "crash"])
@pytest.mark.parametrize("part", [4, 8, 28, 84, 90])  # magic code, CRC, physical offset, body size, body
def test_damage_below_the_synced_point_loses_only_the_damaged_record(kind: str, part: int) -> None:
    disk, expected, starts = crashed_disk()
    index = 40
    store, _ = reopen(disk)
    if kind == "clean":
        store.shutdown()
    disk.delete(f"{ROOT}/{FILE_NAME}")  # with it, only new records would be read
    flip(disk, starts[index] + part)
    if kind == "crash":
        crash(disk, synced_ms=FAR_MS)
    for _ in range(2):
        store, report = reopen(disk)
        del report
        assert bodies(store) == expected[:index] + expected[index + 1 :]
        assert store.max_offset("T", 0) == COUNT
        assert [one.queue_offset for one in records(store)] == [n for n in range(COUNT) if n != index]
    (saved,) = [name for name in disk.listdir(f"{ROOT}/quarantine") if name.startswith(f"{starts[index]:020}")]
    flip(disk, starts[index] + part, f"{ROOT}/quarantine/{saved}", part)
    assert expected[index] in disk.read_file(f"{ROOT}/quarantine/{saved}")
    assert store.commit_log.put(message()).queue_offset == COUNT


def flip(disk: MemoryDisk, physical_offset: int, path: str = "", position: int = 0) -> None:
    path = path or f"{ROOT}/commitlog/{physical_offset // FILE_SIZE * FILE_SIZE:020}"
    position = position or physical_offset % FILE_SIZE
    disk._file(path).pages[position] ^= 0x41


def test_damage_up_to_the_end_of_a_log_file_is_skipped() -> None:
    disk, expected, starts = crashed_disk()
    first = next(n for n in range(10, COUNT) if starts[n] // FILE_SIZE != starts[n + 1] // FILE_SIZE)
    overwrite(disk, starts[first], b"\x55" * (FILE_SIZE - starts[first] % FILE_SIZE))
    store, report = reopen(disk)
    assert bodies(store) == expected[:first] + expected[first + 1 :]
    assert [one.queue_offset for one in records(store)] == [n for n in range(COUNT) if n != first]


def test_a_record_in_the_body_of_a_damaged_one_is_no_message() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    inner = store.commit_log.put(message("T", 0, b"inner"))
    image = bytes(store.message_at(inner.physical_offset) or b"")
    # The image contains the physical offset that it will have in the second record's body.
    at = inner.end_offset + 88 + 40
    image = image[:28] + at.to_bytes(8, "big") + image[36:]
    outer = store.commit_log.put(message("T", 0, bytes(40) + image + bytes(40)))
    store.commit_log.put(message("T", 0, b"last"))
    store.dispatch()
    assert (store.message_at(at) or b"")[:4] == image[:4]
    flip(disk, outer.physical_offset + 88)
    store, report = reopen(disk)
    assert bodies(store) == [b"inner", b"last"] and report.records_scanned == 3


def test_above_the_synced_point_the_log_ends_at_the_first_bad_record() -> None:
    disk = MemoryDisk()
    clock = SteppedClock()
    store = open_store(disk, clock)
    starts = []
    for number in range(30):
        clock.step(1)
        starts.append(store.commit_log.put(message("T", 0, b"%d" % number)).physical_offset)
    store.dispatch()
    synced_ms = records(store)[20].store_timestamp_ms
    for index, kept in ((10, 29), (20, 29), (21, 21), (25, 25)):
        copy = copy_of(disk)
        flip(copy, starts[index] + 88)
        crash(copy, synced_ms=synced_ms)
        found, report = reopen(copy)
        assert len(bodies(found)) == kept
        # In either case valid records follow the bad one, so what is taken out of the log is saved.
        assert copy.listdir(f"{ROOT}/quarantine")


# With POCKETMQ_EVERY_BYTE=1 each byte of a log of 64 KiB is damaged, which takes half an hour; else some of 16 KiB.
EVERY_BYTE = bool(os.environ.get("POCKETMQ_EVERY_BYTE"))
SIZE = 64 << 10 if EVERY_BYTE else 16 << 10
DAMAGED = {"message_index_enable": False, "mapped_file_size_commit_log": SIZE // 4}


def damaged_log() -> tuple[MemoryDisk, list[tuple[int, bytes]]]:
    """Return the disk of a killed store with a log of four files, and (start, bytes) of its records."""
    disk = MemoryDisk()
    store = open_store(disk, **DAMAGED)
    placed = []
    number = 0
    while store.max_physical_offset < SIZE - SIZE // 40:
        one = message(
            "T", number % 2, b"%d:" % number + random.Random(number).randbytes(number * 97 % (SIZE // 40)), KEYS=f"k{number}"
        )
        result = store.commit_log.put(one)
        placed.append((result.physical_offset, bytes(store.message_at(result.physical_offset) or b"")))
        number += 1
    store.dispatch()
    return disk, placed


def hold_damage(disk: MemoryDisk, placed: list[tuple[int, bytes]], physical_offset: int, cut: bool) -> None:
    """Flip a byte, or cut the log there, and check that the store opens and has all intact records."""
    copy = copy_of(disk)
    if cut:
        cut_log(copy, physical_offset, SIZE // 4)
    else:
        start = physical_offset - physical_offset % (SIZE // 4)
        copy._file(f"{ROOT}/commitlog/{start:020}").pages[physical_offset - start] ^= 0x41
    store = MessageStore(small_config(**DAMAGED), copy, VirtualClock())
    report = store.load()
    for start, stored in placed:
        position = physical_offset - start
        found = store.message_at(start)
        if cut and position < len(stored):
            assert found is None or (stored[position:] == bytes(found)[position:]), "a torn record is there"
        elif cut or not 0 <= position < len(stored):
            assert found is not None and bytes(found) == stored, f"{physical_offset}: the record at {start} is lost"
        else:
            body_size = int.from_bytes(stored[84:88], "big")
            is_checked = position < 12 or 28 <= position < 36 or 84 <= position < 88 + body_size
            if is_checked:
                assert report.repairs and (found is None or b"PMQ_QUARANTINE".startswith(decode_record(found).topic))
    del found, store


def bytes_of(stored: bytes) -> set[int]:
    """Return the positions in a record to damage: all but those within its body, of which some show the same."""
    body_end = 88 + int.from_bytes(stored[84:88], "big")
    return {*range(90), *range(90, body_end, cases(23, 1)), *range(body_end - 1, len(stored))}


@pytest.mark.timeout(7200 if EVERY_BYTE else 300)
def test_store_opens_after_damage_to_any_byte_of_the_log() -> None:
    disk, placed = damaged_log()
    disk._locked.clear()
    step = 1 if EVERY_BYTE else cases(149, 37)
    flipped, cut = set(range(0, SIZE, step)), set(range(step // 2, SIZE, step))
    for start, stored in (min(placed[1:-1], key=lambda place: len(place[1])), placed[-1]):
        flipped |= {start + position for position in bytes_of(stored)}
        cut |= {start + position for position in bytes_of(stored)}
    for physical_offset in sorted(flipped):
        hold_damage(disk, placed, physical_offset, cut=False)
    for physical_offset in sorted(cut):
        hold_damage(disk, placed, physical_offset, cut=True)


# --- where to begin -------------------------------------------------------------------------------------------------


def test_start_after_a_clean_stop_reads_no_records() -> None:
    disk, expected, _ = crashed_disk()
    store, _ = reopen(disk)
    store.shutdown()
    store, report = reopen(disk)
    assert report.clean and report.records_scanned == 0 and bodies(store) == expected
    assert store.commit_log.put(message()).store_timestamp_ms >= store.clock.message_time_ms()


def test_last_log_file_is_checked_after_a_clean_stop_of_another_broker() -> None:
    disk, expected, starts = crashed_disk()
    store, _ = reopen(disk)
    whole = state(store)
    store.shutdown()
    disk.delete(f"{ROOT}/{FILE_NAME}")
    # A unit in the last file of the queue is wrong.
    name = disk.listdir(f"{ROOT}/consumequeue/T/0")[-1]
    disk._file(f"{ROOT}/consumequeue/T/0/{name}").pages[3] ^= 1
    store, report = reopen(disk)
    assert report.clean and 0 < report.records_scanned < 2 * COUNT and report.scan_start_offset >= starts[-1] - FILE_SIZE
    assert state(store) == whole and bodies(store) == expected


def test_recovery_after_a_crash_starts_at_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.store.recovery.recovery_start._NEAR_ENOUGH", 1024)
    monkeypatch.setattr("pocketmq.store.recovery.recovery_start._SEARCHED_AT_ONCE", 2048)
    disk = MemoryDisk()
    clock = VirtualClock()
    store = open_store(disk, clock)
    starts, times = [], []
    for number in range(100):
        put = store.commit_log.put(message("T", 0, b"%d" % number + bytes(500)))
        starts.append(put.physical_offset)
        times.append(put.store_timestamp_ms)
        clock.advance(1000)
        store.dispatch()
    for vouched in (20, 50, 99):
        copy = copy_of(disk)
        crash(copy, synced_ms=times[vouched], queues_ms=times[vouched])
        found, report = reopen(copy)
        # The margin is 3 s, as in Apache; the scan never starts after the time in the checkpoint.
        assert starts[vouched - 3] - 4096 < report.scan_start_offset <= starts[vouched - 3]
        assert len(bodies(found)) == 100


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 40, bytes(4096), b"\xa5" * 4096, CHECKPOINT_STRUCT.pack(FAR_MS, FAR_MS, FAR_MS, 0, 0).ljust(4096, b"\0")],
    ids=["empty", "short", "zero", "negative", "far in the future"],
)
@pytest.mark.parametrize("lost", [False, True])
def test_wrong_checkpoint_loses_nothing(data: bytes, lost: bool) -> None:
    disk, expected, starts = crashed_disk()
    whole = state(reopen(copy_of(disk))[0])
    crash(disk)
    disk.write_file(f"{ROOT}/checkpoint", data)
    if lost:
        # The checkpoint may wrongly cover these files.
        name = disk.listdir(f"{ROOT}/consumequeue/T/0")[1]
        disk._file(f"{ROOT}/consumequeue/T/0/{name}").pages[100:400] = bytes(300)
        disk.delete_tree(f"{ROOT}/index")
    store, report = reopen(disk)
    assert state(store) == whole and bodies(store) == expected


# --- queues and index -----------------------------------------------------------------------------------------------


def _delete(disk: MemoryDisk, path: str) -> None:
    (disk.delete_tree if disk.is_dir(path) else disk.delete)(path)


def _empty(disk: MemoryDisk, path: str) -> None:
    disk.write_file(path, b"")


def _shorten(disk: MemoryDisk, path: str) -> None:
    disk.write_file(path, disk.read_file(path)[:-7])


def _zero(disk: MemoryDisk, path: str) -> None:
    disk.write_file(path, bytes(disk.size(path)))


def victims(disk: MemoryDisk) -> list[tuple[Callable[[MemoryDisk, str], None], str]]:
    """Return (damage, path) for files and folders that can be rebuilt from the log."""
    folders = [f"{ROOT}/{name}" for name in ("consumequeue", "consumequeue/T", "consumequeue/Other/1", "index")]
    queue = [f"{ROOT}/consumequeue/T/0/{name}" for name in disk.listdir(f"{ROOT}/consumequeue/T/0")]
    index = [f"{ROOT}/index/{name}" for name in disk.listdir(f"{ROOT}/index")]
    assert len(queue) > 2 and len(index) > 1
    files = [queue[0], queue[1], queue[-1], index[0], index[-1]]
    return [(_delete, path) for path in folders + files] + [(what, path) for path in files for what in (_empty, _shorten)]


@pytest.mark.parametrize("kind", ["clean", "killed", "crash"])
def test_lost_queues_and_index_are_rebuilt_from_the_log(kind: str) -> None:
    disk, expected, _ = crashed_disk()
    store, _ = reopen(disk)
    whole = state(store)
    last_ms = store.commit_log.last_store_timestamp_ms
    store.shutdown()
    if kind == "killed":
        reopen(disk)
    if kind == "crash":
        crash(disk, last_ms + 1, last_ms + 1)
    for damage, path in victims(disk):
        copy = copy_of(disk)
        damage(copy, path)
        store, report = reopen(copy)
        assert state(store) == whole, (damage, path)
        assert report.repairs, (damage, path)
        store.shutdown()
        assert reopen(copy)[1].lines()[1:] == [], (damage, path)


def test_surplus_queues_and_files_are_ignored() -> None:
    disk, _, _ = crashed_disk()
    store, _ = reopen(disk)
    whole = state(store)
    store.shutdown()
    for path in (
        "consumequeue/T/0/00000000000000009600",
        "consumequeue/T/7/00000000000000000000",
        "index/20991231000000000",
    ):
        copy = copy_of(disk)
        size = disk.size(f"{ROOT}/index/{disk.listdir(f'{ROOT}/index')[0]}") if path.startswith("index") else 400
        copy.write_file(f"{ROOT}/{path}", random.Random(4).randbytes(size) if "/7/" in path else bytes(size))
        store, _ = reopen(copy)
        assert state(store) == whole, path


def test_killed_recovery_resumes_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "checkpoint_interval", FILE_SIZE)
    monkeypatch.setattr(
        "pocketmq.store.offline.log_walk.LogWalk.__init__.__kwdefaults__",
        {"check_crc": True, "complete_to": 0, "over_gaps": False, "window_size": 4096},
    )
    disk = MemoryDisk()
    clock = SteppedClock()
    store = open_store(disk, clock, message_index_enable=True)
    for number in range(300):
        clock.step(1)
        store.commit_log.put(message("T", number % 3, b"%d" % number + bytes(400), KEYS=f"k{number}"))
    store.dispatch()
    whole = state(store)
    size = store.max_physical_offset
    disk.delete_tree(f"{ROOT}/consumequeue")
    crash(disk)

    class Killed(Exception):
        pass

    def kill(what: str, done: int, total: int) -> None:
        if done > size // 2:
            raise Killed

    disk._locked.clear()
    with pytest.raises(Killed):
        MessageStore(small_config(), disk, clock).load(kill)
    store = MessageStore(small_config(), disk, clock)
    report = store.load()
    assert 0 < report.bytes_scanned < size * 3 // 4
    assert state(store) == whole


def test_rebuild_of_queues_begins_again_after_a_kill() -> None:
    disk, expected, _ = crashed_disk()
    store, _ = reopen(disk)
    whole = state(store)
    store.shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue/Other")

    def kill(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MessageStore(small_config(), disk, VirtualClock()).load(kill)
    store, report = reopen(disk)
    assert not report.clean and state(store) == whole
    assert json.loads(disk.read_file(f"{ROOT}/{FILE_NAME}"))["rebuilding"] == []


def test_stopped_store_can_be_rebuilt_from_its_log() -> None:
    disk, _, _ = crashed_disk()
    store, _ = reopen(disk)
    whole = state(store)
    store.shutdown()
    disk._file(f"{ROOT}/consumequeue/T/0/{0:020}").pages[9] ^= 4
    seen: list[tuple[str, int, int]] = []
    store = MessageStore(small_config(), disk, VirtualClock())
    report = store.load(lambda *step: seen.append(step), rebuild=True)
    store.shutdown()
    assert report.records_scanned > COUNT and seen[-1][1] <= seen[-1][2]
    store, report = reopen(disk)
    assert report.clean and report.records_scanned == 0 and state(store) == whole


def test_repeated_crashes_lose_nothing_more() -> None:
    disk, expected, starts = crashed_disk()
    overwrite(disk, starts[-1] + 90, b"\xff")
    for _ in range(3):
        crash(disk)
        store, _ = reopen(disk)
        assert bodies(store) == expected[:-1]


def test_report_names_the_records_a_power_cut_may_lose() -> None:
    for mode, words in (
        ("SYNC_FLUSH", "nothing acknowledged is lost"),
        ("ASYNC_FLUSH", "of the last 500 ms (10000 ms while"),
    ):
        store = MessageStore(small_config(flush_disk_type=mode), MemoryDisk(), VirtualClock())
        (line,) = store.load().lines()
        assert mode in line and words in line
