"""consumequeue_ext: units, addresses, files, and stores that have it. tests/interop checks that Apache can read it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.layout import CONSUME_QUEUE_EXT_UNIT, EXT_ADDRESS_MAX
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExt, ConsumeQueueExtStore
from tests.store.stores import ROOT, bodies, message, open_store, records

EXT = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 100}
FOLDER = f"{ROOT}/consumequeue_ext/T/0"
LONG_MIN = -(2**63)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62), st.binary(max_size=40))
def test_unit_matches_its_layout_and_is_read_back(code: int, time_ms: int, bitmap: bytes) -> None:
    disk = MemoryDisk()
    row = ConsumeQueueExt(disk, FOLDER, 100)
    address = row.put(code, time_ms, bitmap)
    assert address == LONG_MIN and address <= EXT_ADDRESS_MAX
    declared = CONSUME_QUEUE_EXT_UNIT.parse(disk.read_file(f"{FOLDER}/{0:020d}"))
    assert (declared.size, declared.tags_code, declared.store_timestamp_ms) == (20 + len(bitmap), code, time_ms)
    assert declared.bitmap == bitmap
    unit = row.get(address)
    assert unit is not None and (unit.tags_code, unit.store_timestamp_ms, unit.bitmap) == (code, time_ms, bitmap)


def test_a_file_ends_with_the_mark_and_four_bytes_stay_free() -> None:
    disk = MemoryDisk()
    row = ConsumeQueueExt(disk, FOLDER, 100)
    assert [row.put(1, 2) for _ in range(6)] == [LONG_MIN + at for at in (0, 20, 40, 60, 100, 120)]
    assert disk.read_file(f"{FOLDER}/{0:020d}")[80:] == b"\xff\xff" + bytes(18)


def test_too_large_entry_is_not_stored() -> None:
    ext = ConsumeQueueExtStore(MemoryDisk(), f"{ROOT}/consumequeue_ext", 1 << 20, writes=True)
    assert ext.put("T", 0, 77, 1, bytes(32767 - 20)) == LONG_MIN
    assert ext.put("T", 0, 77, 1, bytes(32767 - 19)) == 77
    assert ext.put("T", 1, 77, 1) == LONG_MIN
    assert ConsumeQueueExtStore(MemoryDisk(), "/none").put("T", 0, 77, 1) == 77


@pytest.mark.parametrize("address", [LONG_MIN + 20, LONG_MIN + 7, LONG_MIN + 100, LONG_MIN + 10**9, EXT_ADDRESS_MAX])
def test_invalid_address_returns_no_unit(address: int) -> None:
    row = ConsumeQueueExt(MemoryDisk(), FOLDER, 100)
    row.put(1, 2)
    assert row.get(address) is None


# --- in a store -----------------------------------------------------------------------------------------------------


def filled(disk: MemoryDisk, count: int = 20, **changes: object) -> MessageStore:
    store = open_store(disk, **(EXT | changes))
    for number in range(count):
        store.commit_log.put(message("T", 0, b"%d" % number, TAGS="odd" if number % 2 else "even"))
    store.dispatch()
    return store


def codes(store: MessageStore) -> list[int]:
    queue = store.queue("T", 0)
    assert queue is not None
    return [unit[2] for at in range(queue.max_offset) if (unit := queue.unit_at(at))]


def filtered_bodies(store: MessageStore, tag: str) -> list[bytes]:
    """Return the bodies that pulls filtered by a tag return, in order."""
    found, at = [], 0
    while at < store.max_offset("T", 0):
        result = store.reader.get_message("T", 0, at, 1, {tags_code(tag)}.__contains__)
        found += [decode_record(view).body for view in result.views]
        at = result.next_begin_offset
    return found


ODD = [b"%d" % number for number in range(1, 20, 2)]


def test_tags_are_filtered_by_the_extension_unit() -> None:
    store = open_store(MemoryDisk(), **EXT)
    store.commit_log.put(message(TAGS="odd"))
    arrival = store.dispatch()[0]
    assert arrival.tags_codes == [tags_code("odd")], "held pulls are woken by the real code"
    assert codes(store) == [LONG_MIN]
    store = filled(MemoryDisk())
    assert filtered_bodies(store, "odd") == ODD and filtered_bodies(store, "none") == []
    assert bodies(store) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("enabled", [True, False])
def test_reopened_store_is_readable_and_appends(enabled: bool) -> None:
    disk = MemoryDisk()
    filled(disk).shutdown()
    store = open_store(disk, **(EXT | {"enable_consume_queue_ext": enabled}))
    assert filtered_bodies(store, "odd") == ODD
    before = codes(store)
    store.commit_log.put(message("T", 0, b"21", TAGS="odd"))
    store.dispatch()
    assert filtered_bodies(store, "odd") == [*ODD, b"21"]
    newest = codes(store)[-1]
    assert newest == (before[-1] + 20 if enabled and (before[-1] - LONG_MIN) % 100 < 60 else newest)
    assert (newest <= EXT_ADDRESS_MAX) is enabled


def test_tags_are_read_from_the_records_if_the_folder_is_missing() -> None:
    disk = MemoryDisk()
    filled(disk).shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue_ext")
    assert filtered_bodies(open_store(disk, **EXT), "odd") == ODD


def test_damaged_extension_unit_is_ignored() -> None:
    disk = MemoryDisk()
    filled(disk).shutdown()
    path = f"{FOLDER}/{0:020d}"
    disk.write_file(path, bytes(100))
    store = open_store(disk, **EXT)
    assert filtered_bodies(store, "odd") == ODD
    store.commit_log.put(message("T", 0, b"21", TAGS="odd"))
    store.dispatch()
    assert filtered_bodies(store, "odd") == [*ODD, b"21"]


def test_unreferenced_extension_units_are_truncated_at_start() -> None:
    disk = MemoryDisk()
    store = filled(disk, 2)
    store.queues.ext.put("T", 0, 1, 1)
    store.queues.ext.put("Gone", 0, 1, 1)
    store.shutdown()
    store = open_store(disk, **EXT)
    assert not disk.listdir(f"{ROOT}/consumequeue_ext/Gone/0")
    store.commit_log.put(message("T", 0, b"2", TAGS="even"))
    store.dispatch()
    assert [code - LONG_MIN for code in codes(store)] == [0, 20, 40]


def test_rebuilt_queues_get_new_extension_units() -> None:
    disk = MemoryDisk()
    filled(disk).shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue")
    store = open_store(disk, **EXT)
    assert max(codes(store)) <= EXT_ADDRESS_MAX
    assert filtered_bodies(store, "odd") == ODD


def test_files_are_deleted_with_those_of_the_queue_and_with_the_topic() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    assert len(disk.listdir(FOLDER)) == 5
    queue = store.queue("T", 0)
    assert queue is not None
    unit = queue.unit_at(9)
    assert unit is not None
    queue.correct_min_offset(unit[0])
    assert store.queues.ext.delete_below() == 2
    assert disk.listdir(FOLDER)[0] == f"{200:020d}"
    assert store.drop_topics(set()) == ["T"]
    assert not disk.is_dir(f"{ROOT}/consumequeue_ext/T")


def test_deliver_time_of_a_delayed_message_is_in_its_extension_unit() -> None:
    store = open_store(MemoryDisk(), **EXT)
    put = store.commit_log.put(message(SCHEDULE_TOPIC, 1, DELAY="2"))
    store.dispatch()
    queue = store.queue(SCHEDULE_TOPIC, 1)
    assert queue is not None
    unit = queue.unit_at(0)
    assert unit is not None and unit[2] == LONG_MIN
    due_ms = put.store_timestamp_ms + 5000
    assert store.reader.tags_code(SCHEDULE_TOPIC, 1, unit[2], unit[0]) == due_ms
    del store.queues.ext.rows[SCHEDULE_TOPIC, 1]
    assert store.reader.tags_code(SCHEDULE_TOPIC, 1, unit[2], unit[0]) == due_ms
    assert records(store, SCHEDULE_TOPIC, 1)
