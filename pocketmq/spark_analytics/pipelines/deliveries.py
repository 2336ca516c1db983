"""Table `deliveries`: one row per delayed message, with the copy that waits and the delivered one, as far as they are there.

    kind                    level: a delay level; timer: any time (5.x, PocketMQ)
    topic                   destination
    level                   the delay level, null for timers
    message                 the unique key; without one, born timestamp, born host and keys
    sent                    store time of the copy that waits, in SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer
    due                     when it is to be delivered
    delivered               store time of the delivered copy; null while it waits
    lateMs                  delivered - due; negative if early
    sentPhysicalOffset, deliveredPhysicalOffset
    isRepeated              delivered, but a copy of it had been delivered before
    store                   the store's folder

`sent` and `due` are null if retention has deleted the waiting copy, or if the message was delivered more often than it was
sent. How copies are paired is described in `lateness`. The option `delayLevel` gives the broker's messageDelayLevel, from
which the due time of levels follows. Each store is read by one task.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.spark_analytics.direct.engine import DirectEngine
from pocketmq.spark_analytics.pipelines import lateness
from pocketmq.spark_analytics.pipelines.stores import Stores
from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.offline.store_folder import StoreFolder

DDL: Final = (
    "kind string, topic string, level int, message string, sent timestamp, due timestamp, delivered timestamp, "
    "lateMs bigint, sentPhysicalOffset bigint, deliveredPhysicalOffset bigint, isRepeated boolean, store string"
)
_ROWS: Final = """
SELECT CASE WHEN level = 0 THEN 'timer' ELSE 'level' END AS kind, real_topic AS topic, nullif(level, 0) AS level, message,
       timestamp_millis(scheduled_ms) AS sent,
       timestamp_millis(CASE WHEN level = 0 THEN due_ms ELSE scheduled_ms + delay_ms END) AS due,
       timestamp_millis(delivered_ms) AS delivered, late_ms AS lateMs, scheduled_physical_offset AS sentPhysicalOffset,
       delivered_physical_offset AS deliveredPhysicalOffset, is_repeated AS isRepeated
FROM {pairs}
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A store, and its broker's delay levels."""

    store: StoreFolder
    levels: DelayLevels


def parts(store: StoreFolder, levels: DelayLevels) -> list[Part]:
    """Return one part, as the copies of a message may be anywhere in the log; none without a log."""
    return [Part(store, levels)] if store.row("commitlog").files else []


def rows(part: Part) -> Iterator[Rows]:
    """Yield the pairs of a store."""
    stores = Stores(DirectEngine(), (part.store.root,), part.levels)
    found = stores.rows(_ROWS, pairs=lateness.pairs(stores))
    for batch in found.to_batches():
        columns = {name: batch.column(name) for name in batch.schema.names}
        yield Rows(batch.num_rows, columns | {"store": part.store.root})


TABLE: Final = Table(DDL, parts, rows, needs_levels=True)
