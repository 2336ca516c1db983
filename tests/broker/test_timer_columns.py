"""Bulk reading of timer records gives the same values as reading each record singly."""

import random

import numpy as np
import pytest

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.timer.timer_columns import TimerColumns, read_columns
from pocketmq.broker.timer.timer_enqueue import TimerReader
from pocketmq.broker.timer.timer_record import TimerRecord, read_timer_record
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.message import Message, PutResult
from tests.broker.timed import HOST, Timed

NUMBERS = ("0", "7", "007", "-5", "+9", "1795282779542", "9" * 15, "9" * 16, "9" * 30, "soon", "1e3", "\u0663", "1 2", "")
NAMES = (
    "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME", "PMQ_DUE_MS", "TIMER_ROLL_TIMES",
    "PMQ_COPY_OF", "XTIMER_OUT_MS",
)  # fmt: skip


class Columns(Timed):
    """Stores arbitrary timer records; `singly` lists the offsets of the records that are read singly."""

    def stored(self, properties: str) -> PutResult:
        raw = properties.encode()
        self.singly: list[int] = []
        v6 = HOST if len(raw) % 3 else bytes(16) + HOST[4:]
        return self.store.commit_log.put(Message(TIMER_TOPIC, 0, raw[:40], v6, HOST, properties_bytes=raw))

    def single(self, physical_offset: int) -> TimerRecord | None:
        self.singly.append(physical_offset)
        view = self.store.message_at(physical_offset)
        try:
            return None if view is None else read_timer_record(view, 1000)
        except ValueError:
            return None

    def many(self, places: list[tuple[int, int]]) -> TimerColumns:
        self.store.commit_log.write()
        offsets, sizes = np.array(places, np.int64).T
        return read_columns(self.store.commit_log.mapped_files, offsets, sizes, self.single)


def row_of(columns: TimerColumns, row: int) -> tuple[int, ...]:
    names = ("outs_ms", "dues_ms", "stores_ms", "is_relative", "topic_hashes")
    return tuple(int(getattr(columns, name)[row]) for name in names)


@pytest.mark.parametrize("seed", range(20))
async def test_columns_equal_the_decoded_records(seed: int) -> None:
    t = Columns(commit_log_file_size=1 << 14)
    chance = random.Random(seed)
    places = []
    for _ in range(300):
        entries = [("UNIQ_KEY", str(chance.random())), ("REAL_TOPIC", chance.choice(("T", "Orders", "\u00fcbrig")))]
        entries += [(name, chance.choice(NUMBERS)) for name in NAMES if chance.random() < 0.2]
        entries += [("TIMER_OUT_MS", chance.choice(NUMBERS[:7]))] * (chance.random() < 0.9)
        chance.shuffle(entries)
        result = t.stored("\x02".join(f"{name}\x01{value}" for name, value in entries) + "\x02" * chance.randrange(2))
        places.append((result.physical_offset, result.size))
    chance.shuffle(places)
    columns = t.many(places)
    for row, (physical_offset, _) in enumerate(places):
        record = t.single(physical_offset)
        assert columns.found[row] == (record is not None)
        if record is not None:
            expected = (
                record.out_ms, record.due_ms, record.store_timestamp_ms, record.is_relative, java_hash(record.topic)
            )  # fmt: skip
            assert row_of(columns, row) == expected
            assert columns.records.get(row, record) == record
            assert row in columns.records or (record.cancels, record.copy_of) == (None, None)
    reader, plain_count = TimerReader(t.store, 1000), 0
    for physical_offset, size in places:
        plain = reader.plain_times(physical_offset, size)
        if plain is not None:
            record = t.single(physical_offset)
            assert record is not None and (record.cancels, record.copy_of) == (None, None)
            assert plain == (record.out_ms, record.due_ms, record.is_relative, record.store_timestamp_ms)
            plain_count += 1
    assert plain_count > 5


async def test_ordinary_records_are_read_in_bulk_and_cancelling_ones_marked() -> None:
    t = Columns()
    usual = [t.stored(f"TIMER_DELAY_SEC\x01{n}\x02TIMER_OUT_MS\x01{n}000\x02REAL_TOPIC\x01T") for n in range(5)]
    cancelling = t.stored("TIMER_DELIVER_MS\x014001\x02TIMER_OUT_MS\x014000\x02TIMER_DEL_UNIQKEY\x01k\x02REAL_TOPIC\x01T")
    columns = t.many([(result.physical_offset, result.size) for result in (*usual, cancelling)])
    assert t.singly == [cancelling.physical_offset]
    assert columns.cancels().tolist() == [False] * 5 + [True]
    assert columns.records[5].cancels == "T/k"
    reader = TimerReader(t.store, 1000)
    assert [reader.plain_times(result.physical_offset, result.size) is not None for result in usual] == [True] * 5
    assert reader.plain_times(cancelling.physical_offset, cancelling.size) is None


async def test_incomplete_records_are_left_to_the_single_reader() -> None:
    t = Columns()
    result = t.stored("TIMER_DELAY_SEC\x017\x02TIMER_OUT_MS\x017000")
    offset, size = result.physical_offset, result.size
    places = [(offset, size + 1), (offset + 1, size - 1), (offset, 10), (offset, 1 << 20), (1 << 40, size), (offset, size)]
    columns = t.many(places)
    reader = TimerReader(t.store, 1000)
    for place in ((offset + 1, size - 1), (offset, 1 << 20), (1 << 40, size)):
        assert reader.plain_times(*place) is None
    assert sorted(t.singly) == sorted(place for place, _ in places[:5])
    assert columns.found.tolist() == [True, False, True, True, False, True]
    assert len({row_of(columns, row) for row in (0, 2, 3, 5)}) == 1
