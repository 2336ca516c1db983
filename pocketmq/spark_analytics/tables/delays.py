"""Table `delays`: one row per message that waits for its delivery time.

    kind                    level: a delay level; timer: any time (5.x, PocketMQ)
    topic, queueId          destination
    dueTime                 due time in ms; in seconds for timers that Apache stored again on their way
    level                   the delay level, null for timers
    physicalOffset          of the record in SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer
    storeTimestamp          of that record
    uniqKey, keys
    store                   the store's folder

Pending by hour: `.groupBy(date_trunc("hour", "dueTime")).count()`.

The table holds the messages that a broker started on these files would still deliver: levels from config/delayOffset.json
on, which a broker writes every 10 s; timers in slots from the read time in config/timercheck on (written every second), and
messages in the timer topic's queue behind its queue offset. Cancelled messages are left out.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from pocketmq.spark_analytics.decoding.columns import COLUMNS, Records
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS, TIMER_TOPIC, property_numbers
from pocketmq.spark_analytics.tables.document import typed
from pocketmq.spark_analytics.tables.log_records import records_at
from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.format.layout import (
    HOLE_TAGS_CODE,
    TIMER_CHECKPOINT_SEAL_STRUCT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_CHECKPOINT_STRUCT,
    TIMER_LOG_BLANK_SIZE,
    TIMER_LOG_UNIT_DTYPE,
    TIMER_LOG_UNIT_SIZE,
    TIMER_MAGIC_BITS,
    TIMER_MAGIC_DELETE,
)
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.record_window import Mask
from pocketmq.store.offline.queue_files import Numbers, live_units, tags_codes
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

DDL: Final = (
    "kind string, topic string, queueId int, dueTime timestamp, level int, physicalOffset bigint, storeTimestamp timestamp, "
    "uniqKey string, keys string, store string"
)
DELAY_OFFSETS: Final = "delayOffset.json"
CANCELLED: Final = "delayCancelled.json"
# A record that cancels a timer names it in this property.
CANCELS: Final = "TIMER_DEL_UNIQKEY"
# As in store.timer.timer_checkpoint: PocketMQ's checkpoint ends with a checksum.
_SEAL_BASE: Final = 0x504D5154 << 32
_UNITS_READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """The queue of a level from a queue offset on, without cancelled messages; or (level 0) the timers."""

    store: StoreFolder
    level: int
    next_offset: int = 0
    cancelled: frozenset[int] = frozenset()


def parts(store: StoreFolder) -> list[Part]:
    """Return one part per level that has a queue, and one for the timers."""
    offsets = store.table(DELAY_OFFSETS, "offsetTable")
    cancelled = store.table(CANCELLED, "cancelled")
    found = []
    for topic, queue_id in store.queue_keys():
        level = str(queue_id + 1)
        if topic == SCHEDULE_TOPIC:
            next_offset = typed(store.path("config", DELAY_OFFSETS), offsets.get(level), int, level) or 0
            given_up = typed(store.path("config", CANCELLED), cancelled.get(level), list, level) or []
            found.append(Part(store, queue_id + 1, next_offset, frozenset(given_up)))
    return [*found, Part(store, 0)]


def rows(part: Part) -> Iterator[Rows]:
    """Yield the pending messages of a part."""
    return _levels(part) if part.level else _timers(part.store)


def _row_columns(records: Records, kind: str, level: int | None, due: Any, root: str) -> Rows:
    return Rows(
        len(records),
        {
            "kind": kind,
            "topic": DERIVED_COLUMNS["realTopic"].decode(records),
            "queueId": DERIVED_COLUMNS["realQueueId"].decode(records),
            "dueTime": due,
            "level": level,
            "store": root,
            **{name: COLUMNS[name].decode(records) for name in ("physicalOffset", "storeTimestamp", "uniqKey", "keys")},
        },
    )


# --- levels ---------------------------------------------------------------------------------------------------------


def _levels(part: Part) -> Iterator[Rows]:
    for queue_offsets, units in live_units(part.store, SCHEDULE_TOPIC, part.level - 1, part.next_offset):
        dues, _ = tags_codes(part.store, SCHEDULE_TOPIC, part.level - 1, units)
        waits = (dues != HOLE_TAGS_CODE) & ~np.isin(queue_offsets, list(part.cancelled))
        offsets, sizes, dues = units["physical_offset"][waits].astype(np.int64), units["size"][waits], dues[waits]
        for records in records_at(part.store, offsets, sizes):
            due = dues[np.searchsorted(offsets, records.physical_offsets)]
            yield _row_columns(records, "level", part.level, due, part.store.root)


# --- timers ---------------------------------------------------------------------------------------------------------


class _Checkpoint(NamedTuple):
    """Progress of the timers: those in slots before `read_time_ms` are processed, and in later slots those before
    `delivered_before` (due time in ms, physical offset).
    """

    read_time_ms: int
    queue_offset: int
    delivered_before: tuple[int, int]


def _checkpoint(store: StoreFolder) -> _Checkpoint:
    data = store.bytes_of("config", "timercheck")
    if data is None:
        return _Checkpoint(0, 0, (0, 0))
    if len(data) < TIMER_CHECKPOINT_SIZE:
        raise DamagedFileError(f"{store.path('config', 'timercheck')} has {len(data)} bytes, not {TIMER_CHECKPOINT_SIZE}")
    read_time_ms, _, queue_offset, *_ = TIMER_CHECKPOINT_STRUCT.unpack_from(data)
    sealed = data[: TIMER_CHECKPOINT_SIZE + TIMER_CHECKPOINT_SEAL_STRUCT.size]
    if sealed[-8:] != (_SEAL_BASE | zlib.crc32(sealed[:-8])).to_bytes(8, "big"):
        return _Checkpoint(read_time_ms, queue_offset, (0, 0))
    before_ms, before_offset, _ = TIMER_CHECKPOINT_SEAL_STRUCT.unpack_from(data, TIMER_CHECKPOINT_SIZE)
    return _Checkpoint(read_time_ms, queue_offset, (before_ms, before_offset))


def _entered(store: StoreFolder, read_time_ms: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return (physical offsets, record sizes, magics) of the timer-log units in slots from `read_time_ms` on."""
    log_begin = store.log_begin()
    found = [np.empty((3, 0), np.int64)]
    for file in store.row("timerlog").files:
        count = (file.size - TIMER_LOG_BLANK_SIZE) // TIMER_LOG_UNIT_SIZE
        for number in range(0, count, _UNITS_READ):
            wanted = min(_UNITS_READ, count - number)
            units = file.read(number * TIMER_LOG_UNIT_SIZE, wanted * TIMER_LOG_UNIT_SIZE).view(TIMER_LOG_UNIT_DTYPE)
            is_unit = (units["size"] == TIMER_LOG_UNIT_SIZE) & (units["magic"] >= 0) & (units["magic"] <= TIMER_MAGIC_BITS)
            written = wanted if is_unit.all() else int(np.argmin(is_unit))
            units = units[:written]
            times = units["write_time_ms"].astype(np.int64) + units["delay_ms"]
            waits = (times >= read_time_ms) & (units["physical_offset"] >= log_begin)
            names = ("physical_offset", "record_size", "magic")
            found.append(np.stack([units[name][waits].astype(np.int64) for name in names]))
            if written < wanted:
                break
    offsets, sizes, magics = np.concatenate(found, axis=1)
    return offsets, sizes, magics


def _timers(store: StoreFolder) -> Iterator[Rows]:
    check = _checkpoint(store)
    offsets, sizes, magics = _entered(store, check.read_time_ms)
    new_from = 1 << 62
    for _, units in live_units(store, TIMER_TOPIC, 0, check.queue_offset):
        new = units["physical_offset"].astype(np.int64)
        new_from = min(new_from, int(new[0]))
        offsets, sizes = np.concatenate([offsets, new]), np.concatenate([sizes, units["size"]])
        # Only the records themselves show which of these cancel others.
        magics = np.concatenate([magics, np.full(len(new), TIMER_MAGIC_DELETE)])
    may_cancel = magics & TIMER_MAGIC_DELETE != 0
    cancelled = _cancelled(store, offsets[may_cancel], sizes[may_cancel])
    for records in records_at(store, offsets, sizes):
        due = DERIVED_COLUMNS["deliverTime"].decode(records)
        due_ms = due.cast("int64").fill_null(0).to_numpy() // 1000
        own = records.physical_offsets
        before_ms, before_offset = check.delivered_before
        delivered = (due_ms < before_ms) | ((due_ms == before_ms) & (own < before_offset))
        waits = ~(delivered & (own < new_from)) & ~records.has_property(CANCELS) & ~_is_cancelled(records, cancelled)
        kept = records.rows(waits)
        yield _row_columns(kept, "timer", None, due.filter(waits), store.root)


def _cancelled(store: StoreFolder, offsets: Numbers, sizes: Numbers) -> dict[int, set[str]]:
    """Return by slot (TIMER_OUT_MS) the names of the messages that are cancelled there."""
    found: dict[int, set[str]] = {}
    for records in records_at(store, offsets, sizes):
        records = records.rows(records.has_property(CANCELS))
        if len(records):
            keys = records.property_column(CANCELS).to_pylist()
            for slot, key in zip(property_numbers(records, "TIMER_OUT_MS")[0].tolist(), keys, strict=True):
                found.setdefault(slot, set()).add(key)
    return found


def _is_cancelled(records: Records, cancelled: dict[int, set[str]]) -> Mask:
    """Return a mask of cancelled messages.

    A message is named by its unique key, by topic and unique key (5.3), or by the physical offset of it or of its first copy
    (PocketMQ).
    """
    slots, _ = property_numbers(records, "TIMER_OUT_MS")
    found = np.isin(slots, list(cancelled))
    rows_ = np.flatnonzero(found)
    if not len(rows_):
        return found
    chosen = records.rows(found)
    columns = [chosen.property_column(name).to_pylist() for name in ("REAL_TOPIC", "UNIQ_KEY", "PMQ_COPY_OF")]
    for row, own, topic, key, copy_of in zip(rows_.tolist(), chosen.physical_offsets.tolist(), *columns, strict=True):
        names = {key, f"{topic}+{key}", f"@{copy_of or own}", f"#{own}"}
        found[row] = not names.isdisjoint(cancelled[int(slots[row])])
    return found


TABLE: Final = Table(DDL, parts, rows)
