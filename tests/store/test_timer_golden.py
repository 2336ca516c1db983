"""Timer wheel, log and checkpoint that a real 5.5.0 has written, compared with ours after the same puts."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.layout import (
    TIMER_CHECKPOINT_STRUCT,
    TIMER_LOG_UNIT_DTYPE,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_WHEEL_SLOT_DTYPE,
)
from pocketmq.store.timer.timer_log import joined, unit_dues, unit_times
from pocketmq.store.timer.timer_store import TimerStore
from tests.golden.golden_files import GOLDEN, unpack_golden
from tests.store.timer_slots import units_at

FILE_SIZE = 1 << 20
NAMES = ["v5_clean", "v5_kill9"]


def opened(store: Path) -> TimerStore:
    return TimerStore(FileDisk(), lambda name: f"{store}/{name}", log_file_size=FILE_SIZE)


def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((GOLDEN / name / "expected_timer.json").read_text())
    return expected


def out_times(name: str) -> dict[int, int]:
    """Return physical offset -> TIMER_OUT_MS, read from the records."""
    with gzip.open(GOLDEN / name / "expected.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    return {
        line["physicalOffset"]: int(line["properties"]["TIMER_OUT_MS"])
        for line in lines
        if line["kind"] == "msg" and "TIMER_OUT_MS" in line["properties"]
    }


@pytest.mark.parametrize("name", NAMES)
def test_slots_units_and_checkpoint_are_read_as_by_apache(name: str, tmp_path: Path) -> None:
    store, expected = unpack_golden(name, tmp_path), expected_of(name)
    slots = np.fromfile(store / "timerwheel", TIMER_WHEEL_SLOT_DTYPE)
    assert len(slots) == expected["slotsInFile"]
    assert [
        (index, int(slots[index]["time"]) * 1000, *map(int, slots[index].item()[1:]))
        for index in np.flatnonzero(slots["time"])
    ] == [
        tuple(slot[key] for key in ("slotIndex", "timeMs", "firstPos", "lastPos", "num", "magic"))
        for slot in expected["slots"]
    ]
    data = (store / "timerlog" / f"{0:020d}").read_bytes()
    units = np.frombuffer(data, TIMER_LOG_UNIT_DTYPE, len(expected["timerlog"]))
    assert not data[units.nbytes :].strip(b"\0")
    assert [(52 * index, *unit.item()) for index, unit in enumerate(units)] == [
        tuple(unit.values()) for unit in expected["timerlog"]
    ]
    numbers = TIMER_CHECKPOINT_STRUCT.unpack((store / "config" / "timercheck").read_bytes()[:56])
    assert numbers[:4] == tuple(expected["timercheck"].values())


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_puts_make_the_same_bytes(name: str, many: bool, tmp_path: Path) -> None:
    theirs = unpack_golden(name, tmp_path / "theirs")
    units = np.frombuffer(
        (theirs / "timerlog" / f"{0:020d}").read_bytes(), TIMER_LOG_UNIT_DTYPE, len(expected_of(name)["timerlog"])
    )
    dues = out_times(name)
    ours = tmp_path / "ours"
    timers = opened(ours)
    timers.recover(int(units["write_time_ms"][0]), 0, 0)
    for write_time_ms, group in itertools.groupby(units, lambda unit: int(unit["write_time_ms"])):
        # DELETE is a property of the message, which cancels another one; ROLL follows from the times.
        puts = []
        for unit in group:
            magic = 1 | int(unit["magic"]) & TIMER_MAGIC_DELETE
            physical_offset, size, topic_hash = (
                int(unit[field]) for field in ("physical_offset", "record_size", "topic_hash")
            )
            puts.append((dues[physical_offset], physical_offset, size, topic_hash, magic))
        if many:
            due_column, *columns = (np.array(column) for column in zip(*puts, strict=True))
            timers.put_many(due_column, write_time_ms + 999, *columns)
        else:
            for due, physical_offset, size, topic_hash, magic in puts:
                timers.put(due, write_time_ms + 999, physical_offset, size, topic_hash, magic)
    timers.mark(0, len(units))
    timers.flush(timers.state, 0)
    written = np.fromfile(ours / "timerlog" / f"{0:020d}", np.uint8)
    found = written[: 52 * len(units)].view(TIMER_LOG_UNIT_DTYPE)
    rolled = found["magic"] & TIMER_MAGIC_ROLL != 0
    assert rolled.any() and not found["rolled_due_ms"][~rolled].any()
    # 5.5.0 does not write this field: the due time of a rolled message.
    assert found["rolled_due_ms"][rolled].tolist() == [dues[int(offset)] for offset in found["physical_offset"][rolled]]
    found["rolled_due_ms"] = 0
    assert written.tobytes() == (theirs / "timerlog" / f"{0:020d}").read_bytes()
    assert (ours / "timerwheel").read_bytes() == (theirs / "timerwheel").read_bytes()
    assert (ours / "config" / "timercheck").read_bytes()[8:24] == (theirs / "config" / "timercheck").read_bytes()[8:24]


@pytest.mark.parametrize("name", NAMES)
def test_pending_timers_of_5_5_0_are_found(name: str, tmp_path: Path) -> None:
    store, expected = unpack_golden(name, tmp_path), expected_of(name)
    before = (store / "timerwheel").read_bytes()
    read_time_ms = expected["timercheck"]["lastReadTimeMs"]
    timers = opened(store)
    recovered = timers.recover(read_time_ms + 5000, 1 << 40, 1000)
    assert (recovered.delivered_before, recovered.queue_offset) == (
        (read_time_ms + 1, 0),
        expected["timercheck"]["lastTimerQueueOffset"],
    )
    # Apache's three numbers are from three different times: the caller must check whether anything is missing.
    assert not recovered.complete
    assert recovered.entered_to == max(unit["offsetPy"] for unit in expected["timerlog"])
    assert (store / "timerwheel").read_bytes() == before
    wanted = [unit for unit in expected["timerlog"] if unit["enqueueTime"] + unit["delayedTimeDelta"] >= read_time_ms]
    assert wanted
    found = joined(timers.pending())
    assert found["physical_offset"].tolist() == [unit["offsetPy"] for unit in wanted]
    assert (unit_dues(found) == unit_times(found)).all()
    for slot in (slot for slot in expected["slots"] if not slot["past"]):
        units = units_at(timers, slot["timeMs"])
        chain = [unit for unit in wanted if unit["enqueueTime"] + unit["delayedTimeDelta"] == slot["timeMs"]]
        marks = [unit["offsetPy"] for unit in chain if unit["magic"] & 6 == 4]
        assert units.marks["physical_offset"].tolist() == marks
        assert units.messages["physical_offset"].tolist() == [
            unit["offsetPy"] for unit in chain if unit["offsetPy"] not in marks
        ]
    # After the caller has read the queue, the state is written by us and exact.
    timers.mark(read_time_ms, recovered.queue_offset)
    timers.flush(timers.state, read_time_ms)
    timers.close()
    assert opened(store).recover(read_time_ms, 1 << 40, 1000).complete
