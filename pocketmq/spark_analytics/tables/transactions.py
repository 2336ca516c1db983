"""Table `transactions`: one row per half message, with its outcome.

    topic, queueId          destination if it is committed
    producerGroup           group that is asked about its state
    uniqKey
    halfQueueOffset         queue offset of the half message in RMQ_SYS_TRANS_HALF_TOPIC
    physicalOffset          of its record
    bornTimestamp, storeTimestamp
    checkTimes              number of times the broker had asked the producer when this record was stored
    state                   pending; resolved: an op message names it; putBack: after a check the broker stored it again, as
                            a later row; givenUp: after too many checks it was moved to TRANS_CHECK_MAX_TIME_TOPIC
    outcome                 committed: the message is in its topic (or waits for its delay); rolledBack: resolved, but not
                            in its topic; null: still open, or unknown because the topic no longer exists
    store                   the store's folder

An op message of 4.9 names one queue offset, one of 5.x several. 5.x writes them up to 3 s late, so a message may be
committed and pending at the same time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.spark_analytics.decoding.columns import COLUMNS, Records
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS, HALF_TOPIC, TIMER_TOPIC, property_numbers
from pocketmq.spark_analytics.tables.log_records import records_at
from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.record_window import Mask
from pocketmq.store.offline.queue_files import Numbers, live_units
from pocketmq.store.offline.store_folder import StoreFolder

DDL: Final = (
    "topic string, queueId int, producerGroup string, uniqKey string, halfQueueOffset bigint, physicalOffset bigint, "
    "bornTimestamp timestamp, storeTimestamp timestamp, checkTimes int, state string, outcome string, store string"
)
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_HALF: Final = "TRAN_PREPARED_QUEUE_OFFSET"
STATES: Final = np.array(["pending", "resolved", "putBack", "givenUp"])
# A delayed message that is committed waits in one of these first, with the offset of its half message.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)


@dataclass(frozen=True, slots=True)
class Part:
    """One queue of half messages."""

    store: StoreFolder
    queue_id: int


def parts(store: StoreFolder) -> list[Part]:
    """Return one part per queue; brokers have one queue."""
    return [Part(store, queue_id) for topic, queue_id in store.queue_keys() if topic == HALF_TOPIC]


def rows(part: Part) -> Iterator[Rows]:
    """Yield the half messages of a queue."""
    found = list(_halves(part))
    if not found:
        return
    halves: dict[str, Any] = {name: pa.concat_arrays([columns[name] for columns in found]) for name in found[0]}
    own, queue_offsets = halves["physicalOffset"].to_numpy(), halves["halfQueueOffset"].to_numpy()
    resolved = np.isin(queue_offsets, _op_offsets(part))
    put_back = _is_put_back(halves["uniqKey"], halves.pop("isCopy").to_numpy(False))
    given_up = pc.fill_null(pc.is_in(halves["uniqKey"], value_set=_given_up(part.store)), False).to_numpy(False)
    states = np.select([resolved, put_back, given_up], [1, 2, 3], 0)
    queues = sorted(set(zip(halves["topic"].to_pylist(), halves["queueId"].to_pylist(), strict=True)))
    committed = np.isin(own, _prepared_offsets(part.store, queues, int(own.min())))
    known = set(part.store.topics()) | {topic for topic, _ in part.store.queue_keys()}
    is_known = pc.is_in(halves["topic"], value_set=pa.array(sorted(known), pa.string())).to_numpy(False)
    outcomes = np.select([committed, (states == 1) & is_known], ["committed", "rolledBack"], "")
    yield Rows(
        len(own),
        {
            **halves,
            "state": pa.array(STATES[states]),
            "outcome": pa.array(outcomes, pa.string(), mask=outcomes == ""),
            "store": part.store.root,
        },
    )


def _records(store: StoreFolder, topic: str, queue_id: int, after: int = 0) -> Iterator[Records]:
    """Yield the records of a queue behind physical offset `after`."""
    for _, units in live_units(store, topic, queue_id, log_begin=max(store.log_begin(), after)):
        yield from records_at(store, units["physical_offset"].astype(np.int64), units["size"])


def _halves(part: Part) -> Iterator[dict[str, Any]]:
    for records in _records(part.store, HALF_TOPIC, part.queue_id):
        queue_offsets = records.fixed("queue_offset")
        times, has_times = property_numbers(records, CHECK_TIMES)
        _, has_first = property_numbers(records, FIRST_HALF)
        yield {
            "topic": DERIVED_COLUMNS["realTopic"].decode(records),
            "queueId": DERIVED_COLUMNS["realQueueId"].decode(records),
            "producerGroup": records.property_column("PGROUP"),
            "uniqKey": COLUMNS["uniqKey"].decode(records),
            "halfQueueOffset": pa.array(queue_offsets, pa.int64()),
            "checkTimes": pa.array(np.where(has_times, times, 0).astype(np.int32)),
            "isCopy": pa.array(has_times | has_first),
            **{name: COLUMNS[name].decode(records) for name in ("physicalOffset", "bornTimestamp", "storeTimestamp")},
        }


def _is_put_back(keys: Any, is_copy: Mask) -> Mask:
    """Return a mask of the half messages that were stored again: a later copy has the same unique key."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(False)
    last_copy = np.full(len(encoded.dictionary) + 1, -1)
    numbers = np.arange(len(codes))
    np.maximum.at(last_copy, codes[is_copy], numbers[is_copy])
    last_copy[-1] = -1  # copies cannot be matched without a unique key
    found: Mask = numbers < last_copy[codes]
    return found


def _op_offsets(part: Part) -> list[int]:
    """Return the queue offsets named by op messages: `17` in 4.9, `17,18,` in 5.x."""
    found: list[int] = []
    for records in _records(part.store, OP_TOPIC, part.queue_id):
        for body in records.bodies.to_pylist():
            found += [int(number) for number in body.split(b",") if number.isdigit()]
    return found


def _given_up(store: StoreFolder) -> Any:
    keys: list[str] = []
    for topic, queue_id in store.queue_keys():
        if topic == GIVEN_UP_TOPIC:
            for records in _records(store, topic, queue_id):
                keys += records.property_column("UNIQ_KEY").drop_null().to_pylist()
    return pa.array(keys, pa.string())


def _prepared_offsets(store: StoreFolder, queues: list[tuple[str, int]], after: int) -> Numbers:
    """Return the offsets of the half messages whose commits are in some queues behind physical offset `after`."""
    waiting = [key for key in store.queue_keys() if key[0] in WAITING_TOPICS]
    found = [np.empty(0, np.int64)]
    for topic, queue_id in (*queues, *waiting):
        for records in _records(store, topic, queue_id, after):
            offsets = records.fixed("prepared_transaction_offset").astype(np.int64)
            found.append(offsets[offsets >= after])
    return np.unique(np.concatenate(found))


TABLE: Final = Table(DDL, parts, rows)
