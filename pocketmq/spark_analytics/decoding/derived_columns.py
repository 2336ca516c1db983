"""Columns that exist only when they are requested by name: values derived from a record, and the record's origin."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.spark_analytics.decoding.columns import TIMESTAMP, TIMESTAMP_MS_MAX, Column, Records
from pocketmq.spark_analytics.decoding.properties import slices, text
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.properties import DELAY, REAL_QID, REAL_TOPIC, UNIQ_KEY
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.format.record_window import Mask

BROKER_NAME: Final = "brokerName"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
# System topics in which messages for another topic wait.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)

# Properties of a timer-topic record that determine its deliver time, in order of precedence: PocketMQ's own; the sender's
# first (a delay counts only until Apache's broker stores the record again on its way); else the time computed by the
# broker, which Apache's rounds down to the last whole second before it.
_DUE: Final = "PMQ_DUE_MS"
_ROLLED: Final = "TIMER_ROLL_TIMES"
_ASKED: Final = (("TIMER_DELAY_SEC", 1000), ("TIMER_DELAY_MS", 1), ("TIMER_DELIVER_MS", 0), ("__STARTDELIVERTIME", 0))
_OUT: Final = "TIMER_OUT_MS"
_PRECISION_MS: Final = 1000
_NUMBER: Final = r"^-?[0-9]{1,18}$"


def property_numbers(records: Records, name: str) -> tuple[Positions, Mask]:
    """Return (integer values of a property, clipped to the range of timestamps; mask of rows that have one)."""
    found = records.property_column(name)
    valid = pc.fill_null(pc.match_substring_regex(found, _NUMBER), False)
    numbers = pc.if_else(valid, found, pa.scalar("0")).cast(pa.int64()).to_numpy()
    return np.clip(numbers, -TIMESTAMP_MS_MAX // 2, TIMESTAMP_MS_MAX // 2), valid.to_numpy(zero_copy_only=False)


def _numbers(records: Records, name: str) -> Any:
    numbers, valid = property_numbers(records, name)
    limits = np.iinfo(np.int32)
    valid = valid & (numbers >= limits.min) & (numbers <= limits.max)
    return pa.array(np.where(valid, numbers, 0), pa.int32(), mask=~valid)


def _msg_ids(records: Records) -> Any:
    """Return message ids as the Java client's getMsgId does: the unique key, else the offset message id."""
    keys = records.property_column(UNIQ_KEY)
    return pc.coalesce(keys, records.offset_msg_ids()) if keys.null_count else keys


def _real(records: Records, own: Any, asked: Callable[[], Any]) -> Any:
    """Return `own`, with the values of `asked` that are not null for the messages that wait in a system topic."""
    waiting = records.is_of_topics(WAITING_TOPICS)
    return pc.if_else(pa.array(waiting), pc.coalesce(asked(), own), own) if waiting.any() else own


def _real_topics(records: Records) -> Any:
    return _real(records, records.topic_column, lambda: records.property_column(REAL_TOPIC))


def _real_queue_ids(records: Records) -> Any:
    return _real(records, pa.array(records.fixed("queue_id"), pa.int32()), lambda: _numbers(records, REAL_QID))


def _deliver_times(records: Records) -> Any:
    due_ms, known = np.zeros(len(records), np.int64), np.zeros(len(records), bool)
    for topic, due_of in ((SCHEDULE_TOPIC, _scheduled_due), (TIMER_TOPIC, _timer_due)):
        own = records.is_of_topics((topic,))
        if own.any():
            due_ms[own], known[own] = due_of(records.rows(own))
    due_us = np.clip(due_ms, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX) * 1000
    return pa.array(due_us, mask=~known).cast(TIMESTAMP)


def _scheduled_due(records: Records) -> tuple[Positions, Mask]:
    levels, known = property_numbers(records, DELAY)
    known = known & (levels > 0)
    delays_ms = np.array(records.delay_levels.delays_ms, np.int64)
    return _stored_ms(records) + delays_ms[np.clip(levels, 1, len(delays_ms)) - 1], known


def _timer_due(records: Records) -> tuple[Positions, Mask]:
    due_ms, known = property_numbers(records, _DUE)
    open_ = ~known
    was_rolled = records.has_property(_ROLLED)
    for name, unit_ms in _ASKED:
        asked = records.has_property(name) & open_
        if asked.any():
            numbers, valid = property_numbers(records, name)
            valid = valid & asked & ~(was_rolled & (unit_ms > 0))
            times_ms = numbers
            if unit_ms:
                times_ms = _stored_ms(records) + np.clip(numbers, None, TIMESTAMP_MS_MAX // 2000) * unit_ms
            due_ms, known = np.where(valid, times_ms, due_ms), known | valid
            open_ &= ~asked
    out_ms, has_out = property_numbers(records, _OUT)
    return np.where(known, due_ms, out_ms + _PRECISION_MS), known | has_out


def _stored_ms(records: Records) -> Positions:
    stored_ms: Positions = records.timestamps_us("store_timestamp_ms") // 1000
    return np.clip(stored_ms, None, TIMESTAMP_MS_MAX // 2)


DERIVED_COLUMNS: Final = {
    column.name: column
    for column in (
        Column("msgId", pa.string(), _msg_ids),
        Column("delayLevel", pa.int32(), lambda records: _numbers(records, DELAY), is_nullable=True),
        Column("deliverTime", TIMESTAMP, _deliver_times, is_nullable=True),
        Column("realTopic", pa.string(), _real_topics),
        Column("realQueueId", pa.int32(), _real_queue_ids),
        Column("crcOk", pa.bool_(), Records.crc_ok),
        Column(
            "rawProperties",
            pa.string(),
            lambda records: text(slices(records.data, records.properties_begins, records.properties_ends)),
        ),
        Column("storePath", pa.string(), lambda records: pa.repeat(pa.scalar(records.path), len(records))),
        Column(BROKER_NAME, pa.string(), lambda records: pa.repeat(pa.scalar(records.broker_name), len(records))),
    )
}
