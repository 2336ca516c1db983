import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from runtime.clock import VirtualClock
from store.disk import FileDisk, StoreError
from store.index_service import IndexService
from store.message import DispatchRequest
from store.store_checkpoint import StoreCheckpoint

SLOT_COUNT = 7
INDEX_COUNT_MAX = 20
BORN_MS = 1_700_000_000_000
ALWAYS = (0, 1 << 62)


class Store:
    """An index and its checkpoint in a folder."""

    def __init__(self, path: Path, *, clean: bool = True, slot_count: int = SLOT_COUNT) -> None:
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
        self.index.load(clean=clean)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def record(number: int, keys: str | None = None, *, uniq: bool = True, sys_flag: int = 0) -> DispatchRequest:
    """Record n: at physical offset 100 n, stored n seconds after the first."""
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


def test_of_too_many_the_newest_are_taken_in_the_order_of_the_log(tmp_path: Path) -> None:
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


def test_the_bytes_are_those_of_apache(tmp_path: Path) -> None:
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


def test_what_is_dispatched_again_is_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(10)])
    put_all(store, [record(n) for n in range(9)])
    assert store.index.find("T", "U3", 64, *ALWAYS) == [300]


def test_a_cleanly_stopped_index_is_found_again_and_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n, "all") for n in range(15)])
    store.index.close()
    # The full file's: the other one will be written again.
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 9_000
    store = Store(tmp_path)
    put_all(store, [record(n, "all") for n in range(15, 25)])
    assert store.index.find("T", "all", 64, *ALWAYS) == [100 * n for n in range(25)]


def test_a_full_file_is_synced_and_the_checkpoint_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(19)])
    store.index.flush_full()
    assert store.checkpoint.index_msg_timestamp_ms == 0
    put_all(store, [record(19)])
    store.index.flush_full()
    assert store.checkpoint.index_msg_timestamp_ms == BORN_MS + 18_000


def test_after_a_crash_doubtful_files_go_and_the_log_is_indexed_again_from_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    store.index.flush_full()
    store.checkpoint.flush()
    assert len(store.names()) == 3

    store = Store(tmp_path, clean=False)
    assert len(store.names()) == 2
    assert store.index.indexed_to == 3700
    put_all(store, [record(n) for n in range(50)])
    for n in range(50):
        assert 100 * n in store.index.find("T", f"U{n}", 64, *ALWAYS)
    assert store.index.find("T", "U3", 64, *ALWAYS).count(300) == 1


@pytest.mark.parametrize(
    "header",
    [
        bytes(40),  # the sector with the header is lost
        struct.pack(">qqqqii", BORN_MS, BORN_MS + 5_000, 0, 500, 5, 7),  # or as old as an earlier sync of it
    ],
)
def test_after_a_crash_a_file_with_a_lost_or_old_header_goes_and_all_behind_it(tmp_path: Path, header: bytes) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(70)])
    store.index.flush_full()
    store.checkpoint.flush()
    path = store.folder / store.names()[1]
    path.write_bytes(header + path.read_bytes()[40:])

    store = Store(tmp_path, clean=False)
    assert len(store.names()) == 1 and store.index.indexed_to == 1800
    put_all(store, [record(n) for n in range(70)])
    for n in range(70):
        assert 100 * n in store.index.find("T", f"U{n}", 64, *ALWAYS)


def test_of_files_that_end_in_the_same_ms_the_checkpoint_vouches_for_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    requests = [record(n) for n in range(60)]
    for request in requests:
        request.store_timestamp_ms = BORN_MS
    put_all(store, requests)
    store.index.flush_full()
    store.checkpoint.flush()
    store = Store(tmp_path, clean=False)
    assert len(store.names()) == 1 and store.index.indexed_to == 1800


def test_what_is_indexed_again_is_not_vouched_for_by_the_checkpoint_of_the_life_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    store.index.flush_full()
    store.index.truncate(0)
    put_all(store, [record(n) for n in range(50)])
    # Not flushed: a power cut may take any of it.
    assert Store(tmp_path, clean=False).names() == []


def test_a_file_that_knows_of_records_behind_the_end_of_the_log_goes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(n) for n in range(50)])
    store.index.truncate(3800)
    assert store.index.indexed_to == 3700
    store.index.truncate(3700)
    assert store.index.indexed_to == 1800
    store.index.truncate(0)
    assert store.index.indexed_to == 0 and store.names() == []


def test_files_go_with_the_log_but_never_the_newest(tmp_path: Path) -> None:
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
    store.clock.advance(-3_600_000)
    store.index.put([record(n, "all", uniq=False) for n in range(60, 90)])
    store.index.close()
    assert len(set(store.names())) == 5
    assert Store(tmp_path).index.find("T", "all", 64, *ALWAYS)[-1] == 8900


def test_an_index_of_other_dimensions_is_refused_by_key(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_all(store, [record(0)])
    store.index.close()
    with pytest.raises(StoreError, match="maxHashSlotNum=8 and maxIndexNum=20"):
        Store(tmp_path, slot_count=8)


def test_a_chain_that_runs_in_a_circle_ends(tmp_path: Path) -> None:
    store = Store(tmp_path, slot_count=1)
    store.index.put([record(n, "all", uniq=False) for n in range(5)])
    store.index.close()
    (path,) = store.folder.iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 40 + 4 + 20 * 3 + 16, 5)
    path.write_bytes(data)
    assert Store(tmp_path, slot_count=1).index.find("T", "all", 64, *ALWAYS) == [200, 300, 400]
