"""Lateness of delayed messages.

A delayed message is stored twice: when it is sent, in SCHEDULE_TOPIC_XXXX (a level) or rmq_sys_wheel_timer (any time), and
when it is delivered, under its real topic. Both copies have the requested delay and the client's key, so the lateness
follows from the log: store time of the delivered copy - due time. When a consumer fails, it sends the message through the
schedule topic again, under another real topic, level and reconsume count: each such journey is counted separately. Copies
that agree in all of these (a producer's retry, a delivery repeated after a crash) are paired in the order in which they
were stored.

Columns: `pending` counts scheduled copies not delivered yet, `early` deliveries before their time, `repeated` deliveries of
messages already delivered, `unpaired` deliveries whose scheduled copy is no longer in the log. Timers have level null.
"""

from typing import Any, Final

from pocketmq.spark_analytics.decoding.derived_columns import TIMER_TOPIC
from pocketmq.spark_analytics.pipelines.cells import floored
from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, RETRY_PREFIX, Stores, has_property, property_of
from pocketmq.store.format.message import SCHEDULE_TOPIC

OFFENDERS: Final = 20
LATE_BUCKETS_AN_OCTAVE: Final = 2
SERIES_STEP_MIN_S: Final = 60
# If the client sets no unique key, a message is identified by its born timestamp, born host and keys.
_MESSAGE: Final = "coalesce(uniqKey, concat(unix_millis(bornTimestamp), ' ', bornHost, ' ', coalesce(keys, '')))"
_JOURNEYS: Final = f"""
SELECT topic = '{SCHEDULE_TOPIC}' AS is_scheduled, real_topic,
       least(greatest(coalesce(delayLevel, 1), 1), :level_max) AS level,
       CAST(NULL AS BIGINT) AS due_ms, unix_millis(storeTimestamp) AS stored_ms,
       {_MESSAGE} AS message, reconsumeTimes, physicalOffset, uniqKey,
       CAST(NULL AS STRING) AS slot, CAST(NULL AS STRING) AS cancels
FROM (SELECT *, {property_of("REAL_TOPIC")} AS real_topic FROM {{log}} WHERE {has_property("DELAY")})
WHERE topic IN ('{SCHEDULE_TOPIC}', real_topic) AND {property_of("DELAY")} IS NOT NULL
UNION ALL
SELECT topic = '{TIMER_TOPIC}', CASE WHEN topic = '{TIMER_TOPIC}' THEN {property_of("REAL_TOPIC")} ELSE topic END, 0,
       unix_millis(deliverTime), unix_millis(storeTimestamp),
       {_MESSAGE}, reconsumeTimes, physicalOffset, uniqKey,
       {property_of("TIMER_OUT_MS")}, {property_of("TIMER_DEL_UNIQKEY")}
FROM {{log}}
WHERE (topic = '{TIMER_TOPIC}' OR {has_property("TIMER_OUT_MS")})
      -- Copies stored again on the way, or sent on by a failed consumer.
      AND NOT ({has_property("TIMER_ROLL_TIMES")} OR {has_property("PMQ_COPY_OF")})
      AND NOT (startswith(topic, '{RETRY_PREFIX}') OR startswith(topic, '{DLQ_PREFIX}') OR topic = '{SCHEDULE_TOPIC}')
"""
# One row per journey and repetition: its scheduled copy, its delivered copy, or both.
_PAIRS: Final = """
SELECT *, {delay_ms} AS delay_ms,
       delivered_ms - CASE WHEN level = 0 THEN due_ms ELSE scheduled_ms + {delay_ms} END AS late_ms
FROM (
  SELECT real_topic, level, message,
         min(stored_ms) FILTER (WHERE is_scheduled) AS scheduled_ms,
         min(due_ms) FILTER (WHERE is_scheduled) AS due_ms,
         min(stored_ms) FILTER (WHERE NOT is_scheduled) AS delivered_ms,
         min(physicalOffset) FILTER (WHERE is_scheduled) AS scheduled_physical_offset,
         min(physicalOffset) FILTER (WHERE NOT is_scheduled) AS delivered_physical_offset,
         bool_or(NOT is_scheduled AND nth > 1) AS is_repeated,
         min(uniqKey) AS unique_key, min(slot) FILTER (WHERE is_scheduled) AS slot
  FROM (
    SELECT *, row_number() OVER (
      PARTITION BY is_scheduled, real_topic, level, message, reconsumeTimes ORDER BY physicalOffset
    ) AS nth FROM {journeys} WHERE cancels IS NULL AND NOT (level = 0 AND startswith(real_topic, 'rmq_sys_'))
  )
  GROUP BY real_topic, level, message, reconsumeTimes, nth
) AS pair
-- Messages cancelled in time are neither delivered nor pending. A cancellation names messages of its slot: by unique key, by
-- topic and unique key (5.3), or by the physical offset of the first copy (PocketMQ).
WHERE delivered_ms IS NOT NULL OR level > 0 OR NOT EXISTS (
  SELECT 1 FROM {journeys} AS other
  WHERE other.cancels IS NOT NULL AND other.slot = pair.slot
        AND other.cancels IN (pair.unique_key, concat(pair.real_topic, '+', pair.unique_key),
                              concat('@', pair.scheduled_physical_offset))
)
"""
_LATENESS: Final = """
SELECT real_topic AS topic, nullif(level, 0) AS level, any_value(delay_ms) AS delay_ms,
       count(scheduled_ms) AS scheduled,
       count(late_ms) AS delivered,
       count(CASE WHEN delivered_ms IS NULL THEN 1 END) AS pending,
       count(CASE WHEN late_ms < 0 THEN 1 END) AS early,
       count(CASE WHEN scheduled_ms IS NULL AND is_repeated THEN 1 END) AS repeated,
       count(CASE WHEN scheduled_ms IS NULL AND NOT is_repeated THEN 1 END) AS unpaired,
       percentile(late_ms, 0.5) AS late_p50_ms,
       percentile(late_ms, 0.99) AS late_p99_ms,
       max(late_ms) AS late_max_ms
FROM {pairs} GROUP BY real_topic, pairs.level ORDER BY pairs.level = 0, pairs.level, topic
""".replace("pairs.level", "{pairs}.level")
_DISTRIBUTION: Final = f"""
SELECT CASE WHEN late_ms < 0 THEN -2 WHEN late_ms = 0 THEN -1
            ELSE CAST(floor(log2(late_ms) * {LATE_BUCKETS_AN_OCTAVE}) AS INT) END AS bucket, count(*) AS messages
FROM {{pairs}} WHERE late_ms IS NOT NULL GROUP BY 1 ORDER BY 1
"""
_OFFENDERS: Final = f"""
SELECT real_topic AS topic, nullif(level, 0) AS level, message, timestamp_millis(scheduled_ms) AS sent,
       timestamp_millis(delivered_ms - late_ms) AS due, timestamp_millis(delivered_ms) AS delivered, late_ms,
       delivered_physical_offset
FROM {{pairs}} WHERE late_ms IS NOT NULL ORDER BY late_ms DESC, delivered_physical_offset LIMIT {OFFENDERS}
"""


_SERIES: Final = """
SELECT time, count(*) AS delivered, percentile(late_ms, 0.5) AS late_p50_ms, percentile(late_ms, 0.99) AS late_p99_ms,
       max(late_ms) AS late_max_ms
FROM (SELECT {time:step} AS time, late_ms FROM {pairs} WHERE late_ms IS NOT NULL) GROUP BY time ORDER BY time
"""


def pairs(stores: Stores) -> Any:
    """Return one row per delayed message with its store, due and delivery times. One pass; three queries read it."""
    log = stores.messages(
        *("topic", "physicalOffset", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes", "keys", "uniqKey"),
        *("delayLevel", "deliverTime", "rawProperties"),
        delayLevel=stores.level_option,
    )
    journeys = stores.sql(_JOURNEYS, {"level_max": stores.levels.level_max}, log=log)
    delays_ms = enumerate(stores.levels.delays_ms, 1)
    cases = " ".join(f"WHEN {level} THEN CAST({delay_ms} AS BIGINT)" for level, delay_ms in delays_ms)
    return stores.sql(_PAIRS.replace("{delay_ms}", f"CASE level {cases} END"), journeys=journeys)


def lateness(stores: Stores, pairs: Any) -> Any:
    """Return by topic and level the number of scheduled and delivered messages, and the lateness."""
    return stores.rows(_LATENESS, pairs=pairs)


def distribution(stores: Stores, pairs: Any) -> Any:
    """Return the number of messages by lateness: bucket b is [2^(b/2), 2^((b+1)/2)) ms, -1 on time, -2 early."""
    return stores.rows(_DISTRIBUTION, pairs=pairs)


def series(stores: Stores, pairs: Any, step: int) -> Any:
    """Return the lateness by time of delivery; `step`: seconds, at least a minute."""
    time = floored("delivered_ms", max(step, SERIES_STEP_MIN_S))
    return stores.rows(_SERIES.replace("{time:step}", time), pairs=pairs)


def offenders(stores: Stores, pairs: Any) -> Any:
    """Return the messages delivered latest."""
    return stores.rows(_OFFENDERS, pairs=pairs)
