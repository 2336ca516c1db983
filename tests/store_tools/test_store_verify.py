"""`verify` finds all damage of a store with its position, and reports nothing else."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.record import Record, encode_record, record_size, topic_part
from pocketmq.store_tools.check.finding import Finding
from pocketmq.store_tools.check.verify import Verify
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import NotAStoreError, StoreFiles
from tests.patience import PATIENCE_S
from tests.store_tools.made_stores import (
    GOLDEN_STORES,
    NOW_MS,
    flip,
    kinds,
    made,
    message,
    opened,
    overwrite,
    put_many,
    unpacked,
    verified,
    write_topics,
)


@pytest.fixture(scope="module")
def valid_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("valid") / "store")


@pytest.fixture
def root(valid_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(valid_store, tmp_path / "store"))


def records(root: Path) -> list[Record]:
    return list(select(StoreFiles(str(root)), Selection(), Damage()))


def place(root: Path, record: Record) -> tuple[Path, int]:
    """Return the file and the byte at which a record begins."""
    return root / "commitlog" / f"{record.physical_offset // 16384 * 16384:020}", record.physical_offset % 16384


def only(findings: list[Finding], kind: str) -> Finding:
    found = [finding for finding in findings if finding.kind == kind]
    assert len(found) == 1, findings
    return found[0]


# --- nothing wrong ----------------------------------------------------------------------------------------------------

APACHE_FINDINGS = {
    # Exit code, records and findings: the crash came before the last record was in queue and index.
    "v4_clean": (0, 2280, {}),
    "v4_kill9": (2, 521, {"queue lacks": 1, "index lacks": 2}),
    "v4_torn_body": (1, 520, {"log end": 1}),
    "v4_torn_props": (1, 520, {"log end": 1}),
    "v5_clean": (0, 322, {}),
    "v5_kill9": (0, 297, {}),
}


@pytest.mark.parametrize("name", GOLDEN_STORES)
def test_findings_of_apache_stores(name: str, tmp_path: Path) -> None:
    result = verified(unpacked(name, tmp_path))
    exit_code, count, findings = APACHE_FINDINGS[name]
    assert (result.exit_code, result.records, dict(result.findings.counts)) == (exit_code, count, findings)
    assert result.units == 520 if name.startswith("v4_") and name != "v4_clean" else result.units == count


def test_pocketmq_store_is_valid_for_any_range_size(root: Path) -> None:
    whole = verified(root)
    assert (whole.exit_code, whole.findings.kept) == (0, [])
    assert whole.records == whole.units == len(records(root)) == 180
    assert whole.index_files > 5 and whole.index_entries == 600
    for range_size in (700, 5000):
        cut = verified(root, range_size=range_size)
        assert (cut.exit_code, cut.records, cut.units) == (0, whole.records, whole.units)


def test_several_processes_find_the_same_as_one(root: Path) -> None:
    victim = records(root)[100]
    path, position = place(root, victim)
    flip(path, position + 90)
    alone, shared = verified(root), verified(root, workers=2, range_size=5000)
    assert alone.findings.kept == shared.findings.kept != []
    assert alone.records == shared.records == 179


def test_consume_queue_ext_is_checked(tmp_path: Path) -> None:
    root = made(tmp_path / "store", enable_consume_queue_ext=True)
    assert verified(root).exit_code == 0
    ext = next((root / "consumequeue_ext" / "Topic1").rglob("0" * 20))
    flip(ext, 5)  # in the tags code of the first unit
    result = verified(root)
    assert (result.exit_code, result.findings.counts) == (2, {"queue unit": 1})


def test_multi_dispatch_units_match_their_record(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", VirtualClock(NOW_MS)
    store = opened(root, clock, enable_multi_dispatch=True, enable_lmq=True)
    for number in range(5):
        store.commit_log.put(message("Topic0", 1, b"%d" % number, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
    store.dispatch()
    store.shutdown()
    write_topics(root, "Topic0")
    result = verified(root, with_index=False)
    assert (result.exit_code, result.records, result.units) == (0, 5, 15)


def test_records_of_a_deleted_and_recreated_topic_are_no_damage(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", VirtualClock(NOW_MS)
    store = opened(root, clock)
    put_many(store, clock, 40)
    store.drop_topics({"Topic1"})
    put_many(store, clock, 4)
    store.shutdown()
    write_topics(root, "Topic0", "Topic1", "SCHEDULE_TOPIC_XXXX")
    result = verified(root)
    assert (result.exit_code, result.findings.kept, result.outlived) == (0, [], {"Topic0": 20})
    shutil.rmtree(root / "consumequeue" / "Topic0")
    write_topics(root, "Topic1", "SCHEDULE_TOPIC_XXXX")
    result = verified(root)
    assert (result.exit_code, result.outlived) == (0, {"Topic0": 22})


# --- damage in the log ------------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[Callable[[Path, int, Record], None], str]] = {
    "body": (lambda path, at, record: flip(path, at + 88 + 3), "CRC"),
    "size": (lambda path, at, record: flip(path, at + 3), ""),
    "magic": (lambda path, at, record: flip(path, at + 7), "magic"),
    "physical offset": (lambda path, at, record: flip(path, at + 35), "left over"),
    "topic size": (lambda path, at, record: flip(path, at + 88 + len(record.body), 0x40), "topic"),
    "properties size": (lambda path, at, record: flip(path, at + 90 + len(record.body) + len(record.topic)), "properties"),
    "zeros": (lambda path, at, record: overwrite(path, at, bytes(record.total_size)), ""),
    "noise": (lambda path, at, record: overwrite(path, at, bytes(range(7, 207))), "magic"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_within_the_log(root: Path, kind: str) -> None:
    everything = records(root)
    victim = next(record for record in everything[70:] if len(record.born_host) == 8 and record.topic == b"Topic1")
    path, position = place(root, victim)
    damage, why = DAMAGE[kind]
    damage(path, position, victim)
    for range_size in (1 << 20, 1000):
        result = verified(root, range_size=range_size)
        assert result.exit_code == 1 and result.records == len(everything) - 1
        finding = only(result.findings.kept, "log damage")
        assert (finding.path, finding.position) == (str(path), position) and "--quarantine" in finding.advice
        assert why in finding.what
        # The unit of the lost record points into the damage, which is not an error of the queue.
        assert "1 queue unit" in only(result.findings.kept, "lost").what
        assert kinds(result) <= {"log damage", "lost", "index entry"}


def test_lost_blank_mark_is_damage(root: Path) -> None:
    last = [record for record in records(root) if record.physical_offset < 16384][-1]
    end = last.physical_offset + last.total_size
    overwrite(root / "commitlog" / f"{0:020}", end, bytes(8))
    result = verified(root)
    assert (result.exit_code, result.records) == (1, 180)
    assert only(result.findings.kept, "log damage").position == end


def test_torn_last_record_is_damage(root: Path) -> None:
    last = records(root)[-1]
    path, position = place(root, last)
    overwrite(path, position + 100, bytes(last.total_size - 100))
    result = verified(root)
    assert result.exit_code == 1
    finding = only([one for one in result.findings.kept if "torn" in one.what], "log end")
    assert (finding.path, finding.position) == (str(path), position)


def test_units_after_the_log_end_reveal_a_lost_end(root: Path) -> None:
    first_lost = records(root)[-10]
    path, position = place(root, first_lost)
    overwrite(path, position, bytes(16384 - position))
    result = verified(root)
    finding = only(result.findings.kept, "log end")
    assert result.exit_code == 1 and "10 queue units" in finding.what and result.end == first_lost.physical_offset


def test_left_over_records_after_the_end_are_no_damage(tmp_path: Path) -> None:
    """Apache's broker leaves old bytes after a truncation; here they are records without queue units."""
    root = made(tmp_path / "store", 20)
    longer = made(tmp_path / "longer", 40)
    end = verified(root).end
    name = f"commitlog/{0:020}"
    assert end + 200 < verified(longer).end
    overwrite(root / name, end + 60, (longer / name).read_bytes()[end + 60 :])
    result = verified(root)
    assert (result.exit_code, kinds(result), result.end) == (0, {"left-over"}, end)
    assert result.records == 24


def test_extra_and_missing_log_files(root: Path) -> None:
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    (root / "commitlog" / f"{int(names[-1]) + 16384:020}").touch()
    assert verified(root).exit_code == 2
    (root / "commitlog" / names[1]).unlink()
    result = verified(root)
    assert result.exit_code == 1 and any("missing" in finding.what for finding in result.findings.kept)


# --- derived files ----------------------------------------------------------------------------------------------------


def unit_path(root: Path) -> Path:
    return root / "consumequeue" / "Topic1" / "1" / f"{0:020}"


def index_path(root: Path) -> Path:
    return sorted((root / "index").iterdir())[1]


_ENTRIES_START = 40 + 16 * 4

DERIVED: dict[str, tuple[Callable[[Path], None], str]] = {
    "unit's offset": (lambda root: flip(unit_path(root), 5 * 20 + 6), "queue unit"),
    "unit's size": (lambda root: flip(unit_path(root), 5 * 20 + 11), "queue unit"),
    "unit's tags code": (lambda root: flip(unit_path(root), 5 * 20 + 18), "queue unit"),
    "zero unit": (lambda root: overwrite(unit_path(root), 5 * 20, bytes(20)), "queue lacks"),
    "due time": (
        lambda root: flip(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2" / f"{0:020}", 5 * 20 + 17),
        "queue unit",
    ),
    "surplus unit": (
        lambda root: overwrite(
            max((root / "consumequeue" / "Topic1" / "2").iterdir()), 200, CONSUME_QUEUE_UNIT_STRUCT.pack(0, 100, 1)
        ),
        "queue unit",
    ),
    "queue file": (lambda root: unit_path(root).unlink(), "queue lacks"),
    "queue": (lambda root: shutil.rmtree(unit_path(root).parent), "queue lacks"),
    "empty queue file": (lambda root: os.truncate(unit_path(root), 0), "queue file"),
    "short queue file": (lambda root: os.truncate(unit_path(root), 50), "queue file"),
    "entry's hash": (lambda root: flip(index_path(root), _ENTRIES_START + 7 * 20 + 3), "index entry"),
    "entry's offset": (lambda root: flip(index_path(root), _ENTRIES_START + 7 * 20 + 11), "index lacks"),
    "entry's time": (lambda root: flip(index_path(root), _ENTRIES_START + 7 * 20 + 15), "index time"),
    "entry's previous": (lambda root: flip(index_path(root), _ENTRIES_START + 30 * 20 + 19), "index chain"),
    "slot": (lambda root: flip(index_path(root), 40 + 3 * 4 + 3), "index slot"),
    "index header": (lambda root: flip(index_path(root), 35), "index header"),
    "index count": (lambda root: flip(index_path(root), 39, 0x08), "index file"),
    "index file": (lambda root: index_path(root).unlink(), "index lacks"),
    "index": (lambda root: shutil.rmtree(root / "index"), "index missing"),
    "short index file": (lambda root: os.truncate(index_path(root), 30), "index file"),
    "checkpoint ahead": (lambda root: flip(root / "checkpoint", 2, 0x02), "checkpoint"),
    "no checkpoint": (lambda root: (root / "checkpoint").unlink(), "checkpoint"),
    "short checkpoint": (lambda root: os.truncate(root / "checkpoint", 16), "checkpoint"),
    "topics.json": (lambda root: overwrite(root / "config" / "topics.json", 0, b"?"), "config"),
}


@pytest.mark.parametrize("kind", DERIVED)
def test_each_difference_of_a_derived_file_is_found(root: Path, kind: str) -> None:
    damage, expected = DERIVED[kind]
    damage(root)
    result = verified(root)
    assert result.exit_code == 2 and expected in kinds(result), result.findings
    assert result.records == 180
    assert all(finding.advice for finding in result.findings.kept)


def test_findings_have_the_position_of_the_unit_and_entry(root: Path) -> None:
    flip(unit_path(root), 5 * 20 + 11)
    flip(index_path(root), _ENTRIES_START + 7 * 20 + 15)
    findings = verified(root).findings.kept
    unit, entry = only(findings, "queue unit"), only(findings, "index time")
    assert (unit.path, unit.position) == (str(unit_path(root)), 100)
    assert (entry.path, entry.position) == (str(index_path(root)), _ENTRIES_START + 140)
    assert "entry 7" in entry.what and "unit 5 of Topic1/1" in unit.what


def test_many_findings_are_counted_but_not_all_listed(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    result = verified(root)
    assert result.findings.counts["queue lacks"] == 180
    assert len([finding for finding in result.findings.kept if finding.kind == "queue lacks"]) == 20


def test_due_times_are_checked_against_given_delay_levels(root: Path) -> None:
    from pocketmq.store.format.delay_level import DelayLevels

    assert verified(root, delay_levels=DelayLevels()).exit_code == 0
    result = verified(root, delay_levels=DelayLevels("1s 2s 3s"))
    assert result.exit_code == 2 and result.findings.counts == {"queue unit": 30}


def test_missing_index_is_ignored_with_no_index(root: Path) -> None:
    shutil.rmtree(root / "index")
    assert verified(root, with_index=False).exit_code == 0


# --- while a broker writes --------------------------------------------------------------------------------------------


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Path]:
    """Root of a store to which a thread writes continuously."""
    root, clock = tmp_path / "live", VirtualClock(NOW_MS)
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 40_000}
    store = opened(root, clock, max_index_num=20_000, max_hash_slot_num=500, **sizes)
    put_many(store, clock, 20)
    write_topics(root, "Topic0", "Topic1", "SCHEDULE_TOPIC_XXXX")
    stop = threading.Event()

    def write() -> None:
        first = 20
        while not stop.wait(0.01) and first < 20_000:
            put_many(store, clock, 13, first)
            first += 13

    thread = threading.Thread(target=write)
    thread.start()
    yield root
    stop.set()
    thread.join()
    store.shutdown()


def test_store_is_valid_while_it_is_written(writer: Path) -> None:
    seen = [verified(writer, range_size=100_000)]
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 3 or (seen[0].records == seen[-1].records and time.monotonic() < deadline):
        seen.append(verified(writer, range_size=100_000))
    assert {(result.exit_code, len(result.findings.kept)) for result in seen} == {(0, 0)}
    assert seen[0].records < seen[-1].records


def test_log_files_deleted_during_the_check_are_no_finding(root: Path) -> None:
    files = StoreFiles(str(root))

    verify = Verify(files, range_size=4096)
    steps = 0

    def delete_first(done: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps == 2:
            for name in sorted(path.name for path in (root / "commitlog").iterdir())[:2]:
                (root / "commitlog" / name).unlink()

    result = verify.run(delete_first)
    assert steps > 2 and (result.exit_code, result.findings.kept) == (0, [])


def test_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inner" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotAStoreError, match="did you mean .*inner"):
        StoreFiles(str(tmp_path))
    with pytest.raises(NotAStoreError, match="there is no folder"):
        StoreFiles(str(tmp_path / "nowhere"))
    empty = verified(tmp_path / "inner")
    assert (empty.exit_code, empty.records) == (0, 0)


def test_log_in_several_folders(root: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    second = tmp_path / "second"
    second.mkdir()
    (root / "commitlog" / names[1]).rename(second / names[1])
    assert verified(root).exit_code == 1
    files = StoreFiles(str(root), f"{root}/commitlog,{second}")
    result = Verify(files).run()
    assert (result.exit_code, result.records) == (0, 180)


def test_body_that_contains_images_of_records_is_not_read_as_records(tmp_path: Path) -> None:
    """Any client can send such a body; a check that begins in its middle must not take its content for records."""
    root, clock = tmp_path / "store", VirtualClock(NOW_MS)
    store = opened(root, clock)
    put_many(store, clock, 5)
    inner = message("Topic1", 0, b"never sent")
    magic_code, topic = topic_part(b"Topic1")
    size = record_size(inner, len(topic))
    image = b"".join(
        encode_record(inner, magic_code, topic, size, 9, store.max_physical_offset + 88 + size * number, NOW_MS)
        for number in range(40)
    )
    store.commit_log.put(message("Topic0", 0, image))
    put_many(store, clock, 5, 5)
    store.shutdown()
    write_topics(root, "Topic0", "Topic1", "SCHEDULE_TOPIC_XXXX")
    for range_size in (1 << 20, 2000, 700, 256):
        result = verified(root, range_size=range_size)
        assert (result.exit_code, result.findings.kept, result.records) == (0, [], 13)


def test_records_larger_than_the_read_window(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(root, VirtualClock(NOW_MS), mapped_file_size_commit_log=16 << 20, max_message_size=8 << 20)
    for size in (5 << 20, 100, 6 << 20, 4 << 20, 7):
        store.commit_log.put(message("T" * 200, 0, os.urandom(size)))
    store.dispatch()
    store.shutdown()
    for options in ({}, {"range_size": 1 << 20}):
        result = verified(root, **options)
        assert (result.exit_code, result.records, result.units) == (0, 5, 5)


def test_verify_writes_nothing(root: Path) -> None:
    def look() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*"))

    before = look()
    (root / "cleanStop.json").chmod(0o444)
    assert verified(root).exit_code == 0
    assert look() == before
