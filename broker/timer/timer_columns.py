"""Many records of the timer topic read at once, as columns: what `timer_record.read_timer_record` says of each.

A record costs 7 us by itself; here 2 us, and 1.2 ms for all, which matters where thousands come together: timers that are
entered again from the log. What is not plain is read by itself: what cancels others, was copied forward or rolled by
Apache's broker, has a number that is none, or is no sound record.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.broker.put.delivery_time import ASKED, TIMER_OUT_MS
from pocketmq.broker.timer.timer_record import DIGITS_MAX, NOT_PLAIN, TimerRecord
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, RECORD_SIZE_MIN
from pocketmq.store.format.properties import REAL_TOPIC
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.timer.timer_log import Numbers

Mask = npt.NDArray[np.bool_]
ReadRecord = Callable[[int], TimerRecord | None]
"""The record at a physical offset; None when it is gone, or none of the timer topic."""

MANY: Final = 64
"""From so many records on it is quicker to enter them by columns than one by one (9 us each of what is known)."""
topic_hash = lru_cache(4096)(java_hash)


class TimerColumns:
    """A row a record, in the order given. `records` are those that had to be read singly, by row; `found`: which exist."""

    def __init__(self, count: int) -> None:
        self.outs_ms = np.zeros(count, np.int64)
        self.dues_ms = np.zeros(count, np.int64)
        self.stores_ms = np.zeros(count, np.int64)
        self.topic_hashes = np.zeros(count, np.int64)
        self.is_relative = np.zeros(count, np.bool_)
        self.found = np.zeros(count, np.bool_)
        self.records: dict[int, TimerRecord] = {}

    def set(self, row: int, record: TimerRecord) -> None:
        """What a record that was read by itself says."""
        self.outs_ms[row], self.dues_ms[row], self.stores_ms[row] = record.out_ms, record.due_ms, record.store_timestamp_ms
        self.is_relative[row], self.topic_hashes[row] = record.is_relative, topic_hash(record.topic)
        self.records[row] = record
        self.found[row] = True

    @classmethod
    def of(cls, records: Sequence[TimerRecord]) -> "TimerColumns":
        """Columns of records that are known."""
        columns = cls(len(records))
        columns.outs_ms[:] = [record.out_ms for record in records]
        columns.dues_ms[:] = [record.due_ms for record in records]
        columns.stores_ms[:] = [record.store_timestamp_ms for record in records]
        columns.is_relative[:] = [record.is_relative for record in records]
        columns.topic_hashes[:] = [topic_hash(record.topic) for record in records]
        columns.records = {
            row: record for row, record in enumerate(records) if record.cancels is not None or record.copy_of is not None
        }
        columns.found[:] = True
        return columns

    def cancels(self) -> Mask:
        """Which cancel others."""
        found = np.zeros(len(self.found), np.bool_)
        found[[row for row, record in self.records.items() if record.cancels is not None]] = True
        return found


def read_columns(files: MappedFileQueue, physical_offsets: Numbers, sizes: Numbers, read: ReadRecord) -> TimerColumns:
    """The records of these sizes; `read` is asked for those that are not plain."""
    columns = TimerColumns(len(physical_offsets))
    order = np.argsort(physical_offsets, kind="stable")
    offsets = physical_offsets[order]
    at = 0
    while at < len(offsets):
        file = files.file_at(int(offsets[at]))
        if file is None:
            at += 1
            continue
        end = int(np.searchsorted(offsets, file.start_offset + file.size))
        _read_file(columns, file, order[at:end], offsets[at:end] - file.start_offset, sizes[order[at:end]])
        at = end
    for row in np.flatnonzero(~columns.found).tolist():
        record = read(int(physical_offsets[row]))
        if record is not None:
            columns.set(row, record)
    return columns


def _read_file(columns: TimerColumns, file: MappedFile, rows: Numbers, starts: Numbers, sizes: Numbers) -> None:
    # Further than what is written nothing may be touched; a field is looked for only where its record has room for it.
    inside = (sizes >= RECORD_SIZE_MIN) & (starts + sizes <= file.wrote)
    window = RecordWindow(file.array, file.start_offset, starts[inside], sizes[inside])
    rows = rows[inside]
    magic_codes = window.fixed("magic_code")
    sound = (window.fixed("total_size") == window.sizes) & (window.fixed("physical_offset") == window.physical_offsets)
    sound &= (magic_codes == MESSAGE_MAGIC_CODE) | (magic_codes == MESSAGE_MAGIC_CODE_V2)
    sound &= window.lengths_add_up
    window, rows = window.rows(sound), rows[sound]
    if not len(window):
        return
    plain = np.ones(len(window), np.bool_)
    for name in NOT_PLAIN:
        plain &= window.property_spans(name.encode())[0] < 0
    stores_ms = window.fixed("store_timestamp_ms").astype(np.int64)
    outs_ms, legal, _ = _numbers(window, TIMER_OUT_MS)
    plain &= legal
    dues_ms, asked = np.zeros(len(window), np.int64), np.zeros(len(window), np.bool_)
    is_relative = np.zeros(len(window), np.bool_)
    for name, unit_ms in ASKED:
        if asked.all():
            break
        numbers, legal, present = _numbers(window, name)
        counts = ~asked & present
        dues_ms = np.where(counts, stores_ms + numbers * unit_ms if unit_ms else numbers, dues_ms)
        plain &= legal | ~counts
        is_relative |= counts & (unit_ms > 0)
        asked |= counts
    plain &= asked
    rows = rows[plain]
    columns.outs_ms[rows] = outs_ms[plain]
    columns.dues_ms[rows] = np.maximum(dues_ms, outs_ms + 1)[plain]
    columns.stores_ms[rows] = stores_ms[plain]
    columns.is_relative[rows] = is_relative[plain]
    columns.topic_hashes[rows] = _topic_hashes(window, plain)
    columns.found[rows] = True


def _numbers(window: RecordWindow, name: str) -> tuple[Numbers, Mask, Mask]:
    """The values of a property that are plain digits, which are, and which there are at all."""
    begins, ends = window.property_spans(name.encode())
    sizes, present = ends - begins, begins >= 0
    legal = present & (sizes <= DIGITS_MAX)
    width = int(sizes[legal].max(initial=0))
    if not width:
        return np.zeros(len(begins), np.int64), legal, present
    # One row per record with its digits at the right: cheaper than digit by digit.
    places = ends[:, None] + np.arange(-width, 0)
    digits = window.data[np.clip(places, 0, len(window.data) - 1)] - np.uint8(ord("0"))
    digits[places < begins[:, None]] = 0
    legal &= (digits <= 9).all(axis=1)
    return np.where(legal, digits @ 10 ** np.arange(width - 1, -1, -1), 0), legal, present


def _topic_hashes(window: RecordWindow, plain: Mask) -> Numbers:
    begins, ends = (spans[plain] for spans in window.property_spans(REAL_TOPIC.encode()))
    known: dict[bytes, int] = {}
    hashes = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        topic = window.data[begin:end].tobytes() if begin >= 0 else b""
        value = known.get(topic)
        if value is None:
            value = known[topic] = java_hash(topic.decode("utf-8", "replace"))
        hashes.append(value)
    return np.array(hashes, np.int64)
