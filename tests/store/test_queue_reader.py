"""Pulls with record filters, and over holes: units whose records are lost. Other pulls are tested in test_message_store."""

from collections.abc import Callable, Sequence

import pytest

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import GetResult, GetStatus
from pocketmq.store.format.record import Record, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue import record_filter
from pocketmq.store.queue.consume_queue import BrokenQueueError, ConsumeQueue
from pocketmq.store.queue.filter_cache import PAGE_SIZE
from pocketmq.store.queue.record_filter import RecordFilter
from pocketmq.store.queue.time_search import Boundary
from tests.store.stores import bodies, message, open_store, records

BIG = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20 * 1000}
Filter = Callable[[int], bool] | RecordFilter | None


@pytest.fixture(autouse=True)
def ample_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets that do not end a pull early on a busy machine."""
    monkeypatch.setattr(record_filter, "BUDGET_S", 60.0)


class Holding(RecordFilter):
    """Filter for records with a text in their properties; it does not use bitmaps."""

    is_constant = True

    def __init__(self, text: str) -> None:
        self.text = text

    def may_match(self, unit: object) -> bool:
        return True

    def judge(self, run: Sequence[str]) -> list[bool]:
        return [self.text in entries for entries in run]


def records_of(result: GetResult) -> list[Record]:
    found: list[Record] = []
    for view in result.views:
        position = 0
        while position < len(view):
            found.append(decode_record(view, position))
            position += found[-1].total_size
    return found


def holed(*holes: int, count: int = 10) -> MessageStore:
    """Return a store with `count` messages in queue T/0, a second apart, of which those in `holes` are lost."""
    store = open_store(MemoryDisk(), **BIG)
    for number in range(count):
        store.clock.advance(1000)  # type: ignore[attr-defined]
        if number in holes:
            store.dispatch()
            filler = store.commit_log.put(message("Filler", body=b"f" * 50))
            queue = store.queues.find_or_create("T", 0)
            queue.fill_hole(number + 1, filler.physical_offset, filler.size)
            store.commit_log.tail.queue_offsets["T", 0] = number + 1
        else:
            store.commit_log.put(message("T", 0, b"%d" % number, TAGS="a"))
    store.dispatch()
    return store


def test_filtered_records_may_be_in_several_files() -> None:
    """A log file has 16 KiB, a queue file 20 units."""
    store = open_store(MemoryDisk())
    for number in range(150):
        store.commit_log.put(message("T", 0, bytes(600), TAGS="wanted" if number % 7 == 3 else "other"))
        store.dispatch()
    found, queue_offset = [], 0
    while queue_offset < 150:
        result = store.reader.get_message("T", 0, queue_offset, 2, Holding("wanted"))
        found += [decode_record(view, 0).queue_offset for view in result.views]
        assert result.next_begin_offset > queue_offset
        queue_offset = result.next_begin_offset
    assert found == list(range(3, 150, 7))
    assert [number for number in range(149) if store.reader.any_matches("T", 0, number, number + 2, Holding("wanted"))] == [
        number for number in range(149) if number % 7 in (2, 3)
    ]


@pytest.mark.parametrize("holes", [(0,), (9,), (4,), (0, 1, 2), (3, 4, 8), tuple(range(9))])
@pytest.mark.parametrize("matches", [None, lambda code: True, {tags_code("a")}.__contains__, Holding("TAGS")])
def test_pulls_step_over_holes(holes: tuple[int, ...], matches: Filter) -> None:
    store = holed(*holes)
    result = store.reader.get_message("T", 0, 0, 32, matches)
    assert result.status is GetStatus.FOUND
    assert (result.count, result.next_begin_offset) == (10 - len(holes), 10)
    assert bodies(store) == [b"%d" % number for number in range(10) if number not in holes]


def test_some_or_no_records_of_a_range_match() -> None:
    """This also holds for a range over several files of the queue."""
    store = open_store(MemoryDisk(), **BIG | {"mapped_file_size_consume_queue": 20 * 4})
    for number in range(10):
        store.commit_log.put(message("T", 0, b"x", n=f"<{number}>"))
    store.dispatch()
    assert [number for number in range(10) if store.reader.any_matches("T", 0, 3, 7, Holding(f"<{number}>"))] == [3, 4, 5, 6]
    assert not store.reader.any_matches("T", 0, 20, 30, Holding("")) and not store.reader.any_matches(
        "U", 0, 0, 1, Holding("")
    )
    found = store.reader.get_message("T", 0, 2, 32, Holding("<5>"))
    assert (found.status, found.count, found.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 0, 4)
    assert store.reader.get_message("T", 0, 4, 32, Holding("<5>")).count == 1


@pytest.mark.parametrize("every", [1, 2, 7, 40])
@pytest.mark.parametrize("count_max", [1, 3, 32, 64])
@pytest.mark.parametrize("bytes_max", [500, 4000, 1 << 18])
@pytest.mark.parametrize("is_alone, body_size_max", [(True, 300), (False, 300), (False, 6000)])
def test_record_filter_returns_the_same_as_a_tag_filter(
    every: int, count_max: int, bytes_max: int, is_alone: bool, body_size_max: int
) -> None:
    """Each pull returns as many records as the limits allow, at least one; none is skipped between two pulls."""
    store = open_store(MemoryDisk(), **BIG, max_transfer_bytes_on_message_in_memory=bytes_max)
    for number in range(120):
        store.commit_log.put(
            message("T", 0, bytes(number * 47 % body_size_max), TAGS="wanted" if number % every == 0 else "other")
        )
        if not is_alone:
            store.commit_log.put(message("T", 1, b"between"))
    store.dispatch()
    again = Holding("wanted")
    for filter_ in again, again, {tags_code("wanted")}.__contains__:
        found, counts, queue_offset = [], [], 0
        while queue_offset < 120:
            result = store.reader.get_message("T", 0, queue_offset, count_max, filter_)
            assert result.count <= count_max and (result.size <= bytes_max or result.count == 1)
            assert result.size == sum(map(len, result.views))
            found += [record.queue_offset for record in records_of(result)]
            counts.append(result.count)
            queue_offset = result.next_begin_offset
        assert found == list(range(0, 120, every))
        if isinstance(filter_, Holding):
            counts_of_records = counts
    assert [count for count in counts_of_records if count] == [count for count in counts if count]


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("count_max, bytes_max", [(1, 1 << 18), (32, 1 << 18), (32, 4000), (100, 1 << 18)])
def test_pull_across_two_pages_of_verdicts_returns_consecutive_records(
    count_max: int, bytes_max: int, is_alone: bool
) -> None:
    """All records have the same size: a pull once returned records of one run in place of those of the previous run."""
    store = open_store(MemoryDisk(), **BIG, max_transfer_bytes_on_message_in_memory=bytes_max)
    count = PAGE_SIZE + 70
    for _ in range(count):
        store.commit_log.put(message("T", 0, TAGS="wanted"))
        if not is_alone:
            store.commit_log.put(message("T", 1))
    store.dispatch()
    for queue_offset in range(PAGE_SIZE - 70, PAGE_SIZE + 3):
        result = store.reader.get_message("T", 0, queue_offset, count_max, Holding("wanted"))
        assert result.count and [record.queue_offset for record in records_of(result)] == list(
            range(queue_offset, result.next_begin_offset)
        )


def test_filler_between_two_records_of_a_queue_is_not_returned() -> None:
    store = open_store(MemoryDisk(), **BIG)
    store.commit_log.put(message("T", body=b"before"))
    store.dispatch()
    filler = store.commit_log.put(message("Filler"))
    store.dispatch()
    store.queues.find_or_create("T", 0).fill_hole(2, filler.physical_offset, filler.size)
    store.commit_log.tail.queue_offsets["T", 0] = 2
    store.commit_log.put(message("T", body=b"after"))
    store.dispatch()
    assert [record.topic for record in records(store)] == [b"T", b"T"]
    assert bodies(store) == [b"before", b"after"]


@pytest.mark.parametrize("matches", [None, {tags_code("a")}.__contains__])
def test_pull_that_finds_only_holes_makes_progress(matches: Filter) -> None:
    store = holed(*range(3, 10))
    result = store.reader.get_message("T", 0, 5, 32, matches)
    assert (result.status, result.next_begin_offset, result.views) == (GetStatus.NO_MATCHED_MESSAGE, 10, [])


@pytest.mark.parametrize("matches", [None, {tags_code("a")}.__contains__, Holding("TAGS")])
def test_unit_pointing_outside_the_log_is_reported_with_its_position(matches: Filter) -> None:
    """Recovery does not check the unit after a clean stop. A pull that skipped it would lose a message."""
    store = holed()
    queue = store.queue("T", 0)
    assert queue is not None
    queue.append(10, (1 << 40, 100, tags_code("a")))
    told = f"^queue T/0 is damaged at queue offset 10: no record of 100 bytes is at physical offset {1 << 40}; "
    with pytest.raises(BrokenQueueError, match=told):
        store.reader.get_message("T", 0, 9, 32, matches)
    assert store.reader.get_message("T", 0, 0, 10, matches).count == 10


@pytest.mark.parametrize("at, mask", [(1, 0x20), (3, 1), (5, 8), (87, 4), (84, 0x80), (89, 1), (39, 0x10)])
@pytest.mark.parametrize("bad", [0, 4, 9])
@pytest.mark.parametrize("matches", [None, {tags_code("a")}.__contains__, Holding("TAGS")])
def test_pulls_step_over_a_record_whose_sizes_are_damaged(
    at: int, mask: int, bad: int, matches: Filter, caplog: pytest.LogCaptureFixture
) -> None:
    """The damage is in size, magic code, body size, topic size or host flags of a record that the start does not read."""
    disk = MemoryDisk()
    store = open_store(disk, **BIG)
    places = [store.commit_log.put(message("T", 0, b"%d" % number, TAGS="a")).physical_offset for number in range(10)]
    store.dispatch()
    store.shutdown()
    store = open_store(disk, **BIG)
    store.commit_log.put(message("T", 0, b"10", TAGS="a"))
    store.dispatch()
    store.commit_log.mapped_files.files[0].view[places[bad] + at] ^= mask
    result = store.reader.get_message("T", 0, 0, 32, matches)
    assert (result.count, result.next_begin_offset) == (10, 11)
    assert [record.queue_offset for record in records_of(result)] == [number for number in range(11) if number != bad]
    assert f"at physical offset {places[bad]} of the log" in caplog.text
    alone = store.reader.get_message("T", 0, bad, 1, matches)
    assert alone.next_begin_offset > bad and all(record.queue_offset > bad for record in records_of(alone))


@pytest.mark.parametrize("matches", [None, {tags_code("a")}.__contains__, Holding("TAGS")])
def test_pull_that_finds_only_lost_records_makes_progress(matches: Filter) -> None:
    """The records in the log file were overwritten with zeros."""
    disk = MemoryDisk()
    store = open_store(disk, **BIG)
    for number in range(10):
        store.commit_log.put(message("T", 0, b"%d" % number, TAGS="a"))
    store.dispatch()
    store.shutdown()
    store = open_store(disk, **BIG)
    end = store.commit_log.max_offset
    store.commit_log.mapped_files.files[0].view[:end] = bytes(end)
    result = store.reader.get_message("T", 0, 0, 32, matches)
    assert (result.status, result.next_begin_offset, result.views) == (GetStatus.NO_MATCHED_MESSAGE, 10, [])


def test_times_are_found_around_a_hole() -> None:
    store = holed(4, 5)
    begin_ms = store.store_timestamp_at("T", 0, 0)
    assert store.offset_by_time("T", 0, begin_ms + 7000, Boundary.LOWER) == 7
    assert store.offset_by_time("T", 0, begin_ms + 2000, Boundary.UPPER) == 2
    assert store.earliest_store_timestamp("T", 0) == begin_ms


def test_hole_is_recognised_by_its_queue_unit() -> None:
    queue: ConsumeQueue | None = holed(2).queue("T", 0)
    assert queue is not None
    unit = queue.unit_at(2)
    assert unit is not None and unit[2] == HOLE_TAGS_CODE
