import random
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.message import DispatchRequest
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_service import IndexService

SLOT_COUNT = 7
INDEX_COUNT_MAX = 20
BORN_MS = 1_700_000_000_000
ALWAYS = (0, 1 << 62)


class Store:
    """An index and its checkpoint in a folder."""

    def __init__(self, path: Path, *, trusted_to: int | None = None, slot_count: int = SLOT_COUNT) -> None:
        """`trusted_to`: the index is opened as after a crash, and its entries are trusted up to this physical offset."""
        self.folder = path / "index"
        self.checkpoint = StoreCheckpoint(FileDisk(), str(path / "checkpoint"))
        self.clock = VirtualClock(BORN_MS)
        self.index = IndexService(
            FileDisk(),
            str(self.folder),
            self.clock,
            self.checkpoint,
            slot_count=slot_count,
            index_count_max=INDEX_COUNT_MAX,
        )
        self.index.load(clean=trusted_to is None)
        self.indexed_again_from = 0 if trusted_to is None else self.index.recover(trusted_to)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def record(number: int, keys: str | None = None, *, uniq: bool = True, sys_flag: int = 0) -> DispatchRequest:
    """Return record n, at physical offset 100 n and stored n seconds after the first."""
    return DispatchRequest(
        topic="T",
        queue_id=0,
        physical_offset=100 * number,
        size=100,
        tags_code=0,
        store_timestamp_ms=BORN_MS + 1000 * number,
        queue_offset=number,
        sys_flag=sys_flag,
        keys=keys,
        uniq_key=f"U{number}" if uniq else None,
    )


def put_all(store: Store, requests: Iterable[DispatchRequest], batch: int = 5) -> None:
    requests = list(requests)
    for start in range(0, len(requests), batch):
        store.index.put(requests[start : start + batch])
        store.clock.advance(1)


@pytest.mark.parametrize("batch", [1, 5, 100])
def test_records_are_found_by_unique_key_and_by_each_word_of_keys(tmp_path: Path, batch: int) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, f"order-{n}  all") for n in range(30)], batch)
    for n in range(30):
        assert 100 * n in store.index.find("T", f"U{n}", 64, *ALWAYS)
        assert 100 * n in store.index.find("T", f"order-{n}", 64, *ALWAYS)
    assert store.index.find("T", "all", 64, *ALWAYS) == [100 * n for n in range(30)]
    assert store.index.find("Other", "all", 64, *ALWAYS) == []
    assert store.index.find("T", "", 64, *ALWAYS) == []
    # 90 entries, 19 to a file.
    assert len(store.names()) == 5
    assert store.index.last_update == (BORN_MS + 29_000, 2900)


def test_find_returns_the_newest_matches_in_log_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "all", uniq=False) for n in range(50)])
    assert store.index.find("T", "all", 3, *ALWAYS) == [4700, 4800, 4900]
    assert store.index.find("T", "all", 25, *ALWAYS) == [100 * n for n in range(25, 50)]


def test_times_outside_the_range_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "all", uniq=False) for n in range(50)])
    found = store.index.find("T", "all", 64, BORN_MS + 10_000, BORN_MS + 30_000)
    assert found == [100 * n for n in range(10, 31)]
    assert store.index.find("T", "all", 64, 0, BORN_MS - 1) == []
    assert store.index.find("T", "all", 64, BORN_MS + 50_000, 1 << 62) == []


def test_a_rolled_back_transaction_is_not_indexed_and_the_others_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.index.put([record(n, sys_flag=sys_flag) for n, sys_flag in enumerate((0x0, 0x4, 0x8, 0xC))])
    assert [bool(store.index.find("T", f"U{n}", 64, *ALWAYS)) for n in range(4)] == [True, True, True, False]


def test_index_file_has_the_layout_of_apache(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.index.put([record(0), record(1)])
    store.index.close()
    (name,) = store.names()
    assert name[-3:] == f"{BORN_MS % 1000:03}" and len(name) == 17
    data = (store.folder / name).read_bytes()
    assert len(data) == 40 + 4 * SLOT_COUNT + 20 * INDEX_COUNT_MAX
    used = 2 if hash_of("T#U0") % SLOT_COUNT != hash_of("T#U1") % SLOT_COUNT else 1
    assert struct.unpack_from(">qqqqii", data) == (BORN_MS, BORN_MS + 1000, 0, 100, used, 3)
    entries = 40 + 4 * SLOT_COUNT
    assert data[entries : entries + 20] == bytes(20)
    assert struct.unpack_from(">iqii", data, entries + 20) == (hash_of("T#U0"), 0, 0, 0)
    key_hash, physical_offset, time_diff_s, _ = struct.unpack_from(">iqii", data, entries + 40)
    assert (key_hash, physical_offset, time_diff_s) == (hash_of("T#U1"), 100, 1)
    assert struct.unpack_from(">i", data, 40 + 4 * (key_hash % SLOT_COUNT)) == (2,)


def hash_of(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value


def test_redispatched_records_are_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(10)])
    put_all(store, [record(n) for n in range(9)])
    assert store.index.find("T", "U3", 64, *ALWAYS) == [300]


def test_cleanly_stopped_index_is_reopened_and_continues(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "all") for n in range(15)])
    store.index.close()
    # The time of the full file: the unfinished one will be written again.
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 9_000
    store = Store(tmp_path)
    put_all(store, [record(n, "all") for n in range(15, 25)])
    assert store.index.find("T", "all", 64, *ALWAYS) == [100 * n for n in range(25)]


def test_full_file_is_synced_and_covered_by_the_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(19)])
    store.index.flush_full()
    assert store.checkpoint.index_msg_timestamp_ms == 0
    put_all(store, [record(19)])
    store.index.flush_full()
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 18_000


def found_once(store: Store, count: int) -> bool:
    """Return whether each of the first `count` records is found exactly once by its key."""
    return all(store.index.find("T", f"U{n}", 64, *ALWAYS) == [100 * n] for n in range(count))


@pytest.mark.parametrize("trusted", [0, 1, 10, 18, 19, 20, 40, 50, 99])
def test_recovery_keeps_trusted_entries_and_indexes_no_record_twice(tmp_path: Path, trusted: int) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "all") for n in range(50)])
    store = Store(tmp_path, trusted_to=100 * trusted)
    assert store.indexed_again_from == 100 * trusted
    kept = min(trusted, 50)
    assert found_once(store, kept) and not store.index.find("T", f"U{kept}", 64, *ALWAYS)
    assert store.index.find("T", "all", 64, *ALWAYS) == [100 * n for n in range(kept)]
    if kept:
        assert store.index.last_update == (BORN_MS + 1000 * (kept - 1), 100 * (kept - 1))
    put_all(store, [record(n, "all") for n in range(50)])
    expected = [*range(kept), *range(trusted, 50)]
    assert store.index.find("T", "all", 64, *ALWAYS) == [100 * n for n in expected]


def test_slots_header_and_later_entries_left_by_a_crash_are_ignored(tmp_path: Path) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        store = Store(tmp_path / str(seed))
        put_all(store, [record(n) for n in range(8)])
        trusted = 8
        (path,) = store.folder.iterdir()
        synced = bytearray(path.read_bytes())
        put_all(store, [record(n) for n in range(8, 15)])
        newer = path.read_bytes()
        # Any part of the changes after the sync may be present or missing.
        for at in range(40 + 4 * SLOT_COUNT, len(synced), 20):
            if chance.random() < 0.5:
                synced[at : at + 20] = newer[at : at + 20]
        for at in range(40, 40 + 4 * SLOT_COUNT, 4):
            if chance.random() < 0.5:
                synced[at : at + 4] = chance.choice((newer[at : at + 4], bytes(4)))
        synced[:40] = chance.choice((synced, newer))[:40]
        path.write_bytes(synced)
        again = Store(tmp_path / str(seed), trusted_to=100 * trusted)
        put_all(again, [record(n) for n in range(trusted, 15)])
        assert found_once(again, 15)


def test_a_kill_between_slot_and_header_loses_no_older_entry_of_that_slot(tmp_path: Path) -> None:
    store = Store(tmp_path, slot_count=1)
    put_all(store, [record(n) for n in range(5)])
    (path,) = store.folder.iterdir()
    header = path.read_bytes()[:40]
    put_all(store, [record(5)])
    path.write_bytes(header + path.read_bytes()[40:])
    store = Store(tmp_path, slot_count=1, trusted_to=500)
    assert found_once(store, 5) and not store.index.find("T", "U5", 64, *ALWAYS)


@pytest.mark.parametrize("number", [0, 1])
def test_file_without_header_and_later_files_are_deleted_and_reported(tmp_path: Path, number: int) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "k") for n in range(30)])
    path = store.folder / store.names()[number]
    path.write_bytes(bytes(40) + path.read_bytes()[40:])
    store = Store(tmp_path, trusted_to=3000)
    # The first file ends with the first key of record 9: that record is indexed again as a whole.
    assert len(store.names()) == number and store.indexed_again_from == 900 * number
    put_all(store, [record(n, "k") for n in range(30)])
    assert found_once(store, 30) and len(store.index.find("T", "k", 64, *ALWAYS)) == 30


@pytest.mark.parametrize("size", [0, 100])
def test_file_of_wrong_size_is_deleted_after_a_crash(tmp_path: Path, size: int) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(25)])
    (store.folder / store.names()[1]).write_bytes(bytes(size))
    store = Store(tmp_path, trusted_to=1900)
    assert store.indexed_again_from == 1900 and len(store.names()) == 1
    put_all(store, [record(n) for n in range(25)])
    assert found_once(store, 25)


def test_nothing_is_found_in_an_index_file_of_random_bytes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(5)])
    (path,) = store.folder.iterdir()
    for seed in range(30):
        path.write_bytes(random.Random(seed).randbytes(path.stat().st_size))
        assert Store(tmp_path, trusted_to=1 << 60).index.find("T", "U1", 64, *ALWAYS) == []
        path.write_bytes(bytes(40 + 4 * SLOT_COUNT + 20 * INDEX_COUNT_MAX))


def test_flush_returns_the_time_up_to_which_all_entries_are_durable(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.index.flush_current() == 0
    put_all(store, [record(n) for n in range(25)])
    assert store.index.flush_current() == BORN_MS + 24_000
    # The full file was synced with it.
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 18_000


def test_rebuilt_index_is_not_covered_by_the_previous_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    store.index.flush_full()
    store.index.truncate(1000)
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 9_000
    store.index.truncate(0)
    assert store.checkpoint.index_msg_timestamp_ms == 0 and store.names() == []


@pytest.mark.parametrize("end", [0, 1, 19, 37, 38, 39, 50])
def test_entries_after_the_end_of_the_log_are_removed(tmp_path: Path, end: int) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    store.index.truncate(100 * end)
    assert store.index.indexed_to == max(100 * end - 100, 0)
    assert found_once(store, end) and not store.index.find("T", f"U{end}", 64, *ALWAYS)
    put_all(store, [record(n) for n in range(end, 50)])
    assert found_once(store, 50)


@pytest.mark.parametrize("slot_count", [1, 7, 1000])
def test_put_many_and_put_keys_write_the_same_bytes(tmp_path: Path, slot_count: int) -> None:
    hashes = [random.Random(n).choice((0, 7, 2**31 - 1, n * 7919)) for n in range(100)]
    places = [(50 * n, BORN_MS + 700 * n) for n in range(100)]
    files: list[bytes] = []
    for batch in (0, 1, 9, 100):
        first = IndexFile(FileDisk(), str(tmp_path / f"{batch}-first"), slot_count, 60)
        second = None
        at = 0
        while at < 100:
            file = second or first
            size = batch or 10
            if batch:
                own, offsets, times = (np.array(part[at : at + size]) for part in (hashes, *zip(*places, strict=True)))
                at += file.put_many(own.astype(np.int32), offsets, times)
            else:
                at += file.put_keys(hashes[at : at + size], places[at : at + size])
            if first.full and second is None:
                second = IndexFile(FileDisk(), str(tmp_path / f"{batch}-second"), slot_count, 60, after=first)
        files.append((tmp_path / f"{batch}-first").read_bytes() + (tmp_path / f"{batch}-second").read_bytes())
    assert len(set(files)) == 1


def test_files_of_deleted_records_are_deleted_except_the_newest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    assert store.index.delete_below(1800) == 0
    assert store.index.delete_below(1801) == 1
    assert store.index.delete_below(10**9) == 1
    assert len(store.names()) == 1
    store.index.flush_full()
    assert store.index.find("T", "U49", 64, *ALWAYS) == [4900]


def test_files_that_fill_up_within_a_millisecond_keep_their_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.index.put([record(n, "all", uniq=False) for n in range(60)])
    store.clock.step(-3_600_000)
    store.index.put([record(n, "all", uniq=False) for n in range(60, 90)])
    store.index.close()
    assert len(set(store.names())) == 5
    assert Store(tmp_path).index.find("T", "all", 64, *ALWAYS)[-1] == 8900


def test_refusal_of_an_index_of_other_dimensions_names_the_config_keys(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(0)])
    store.index.close()
    with pytest.raises(StoreError, match="maxHashSlotNum=8 and maxIndexNum=20"):
        Store(tmp_path, slot_count=8)


def test_search_ends_in_a_circular_chain_of_entries(tmp_path: Path) -> None:
    store = Store(tmp_path, slot_count=1)
    store.index.put([record(n, "all", uniq=False) for n in range(5)])
    store.index.close()
    (path,) = store.folder.iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 40 + 4 + 20 * 3 + 16, 5)
    path.write_bytes(data)
    assert Store(tmp_path, slot_count=1).index.find("T", "all", 64, *ALWAYS) == [200, 300, 400]
