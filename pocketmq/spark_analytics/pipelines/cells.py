"""Volume, sizes and latency from one pass over the log, which counts the records in a small number of cells.

A cell is a combination of topic, time, sender, broker, size bucket and latency bucket. Times are cut into at most
TIMES_MAX steps, from seconds to days by the span of the log. Size and latency buckets are quarters of an octave, so
results are accurate to 19 %: bucket b holds [2^(b/4), 2^((b+1)/4)).

Latency is store time - born time, for messages that came directly from a client, not for those delivered by the broker after
a delay, a retry or a transaction. The two times come from two clocks.
"""

import math
from typing import Any, Final

from pocketmq.spark_analytics.decoding.derived_columns import TIMER_TOPIC
from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, INNER_TOPICS, RETRY_PREFIX, Stores, has_property, quoted
from pocketmq.store.format.message import SCHEDULE_TOPIC

BUCKETS_AN_OCTAVE: Final = 4
DAY_S: Final = 86_400
STEPS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, DAY_S)
TIMES_MAX: Final = 240
# Buckets for negative latency (clocks differ) and for less than a millisecond, which has no logarithm.
NEGATIVE_BUCKET: Final = -2
ZERO_BUCKET: Final = -1

# The second alternative excludes copies that the broker stored later than the message arrived.
_IS_STRAIGHT: Final = f"""
  topic IN ('{SCHEDULE_TOPIC}', '{TIMER_TOPIC}') AND reconsumeTimes = 0
  OR NOT (reconsumeTimes > 0 OR (sysFlag & 12) = 8 OR topic IN ({quoted(INNER_TOPICS)})
          OR startswith(topic, '{RETRY_PREFIX}') OR startswith(topic, '{DLQ_PREFIX}')
          OR {has_property("DELAY")} OR {has_property("TIMER_OUT_MS")})
"""
_CELLS: Final = f"""
SELECT topic, time, sender, broker, size_bucket, latency_bucket,
       count(*) AS messages, sum(storeSize) AS bytes, max(storeSize) AS size_max, max(latency_ms) AS latency_max_ms
FROM (
  SELECT topic, {{time:step}} AS time,
         -- The address without its port, which differs for each connection.
         left(bornHost, length(bornHost) - length(substring_index(bornHost, ':', -1)) - 1) AS sender,
         storeHost AS broker, storeSize, latency_ms,
         CAST(floor(log2(storeSize) * {BUCKETS_AN_OCTAVE}) AS INT) AS size_bucket,
         CASE WHEN latency_ms < 0 THEN {NEGATIVE_BUCKET} WHEN latency_ms = 0 THEN {ZERO_BUCKET}
              ELSE CAST(floor(log2(latency_ms) * {BUCKETS_AN_OCTAVE}) AS INT) END AS latency_bucket
  FROM (SELECT *, CASE WHEN {_IS_STRAIGHT} THEN unix_millis(storeTimestamp) - unix_millis(bornTimestamp) END AS latency_ms
        FROM {{log}})
)
GROUP BY ALL
"""
_VOLUME: Final = """
SELECT topic, time, CAST({seconds:step} AS INT) AS seconds, sum(messages) AS messages, sum(bytes) AS bytes,
       sum(messages) / CAST({seconds:step} AS DOUBLE) AS messages_per_s
FROM {cells} GROUP BY topic, time ORDER BY topic, time
"""
_HOSTS: Final = """
SELECT sender, broker, sum(messages) AS messages, sum(bytes) AS bytes, count(DISTINCT topic) AS topics
FROM {cells} GROUP BY sender, broker ORDER BY messages DESC, sender, broker
"""
# A quantile is the largest integer of its bucket, but at most the observed maximum.
_UPPER: Final = f"CAST(ceil(power(2, (bucket + 1) / CAST({BUCKETS_AN_OCTAVE} AS DOUBLE))) AS BIGINT) - 1"
# The buckets of each topic in ascending order, with the number of messages up to each bucket and in all.
_RANKED: Final = """
SELECT *, sum(messages) OVER (PARTITION BY topic ORDER BY bucket RANGE UNBOUNDED PRECEDING) AS up_to,
       sum(messages) OVER (PARTITION BY topic) AS in_all
FROM (SELECT topic, {bucket:name} AS bucket, sum(messages) AS messages, sum(bytes) AS bytes, max({largest:name}) AS largest
      FROM {cells} WHERE {bucket:name} IS NOT NULL GROUP BY topic, {bucket:name})
"""


def _quantile(share: float) -> str:
    """Return SQL for the upper end of the bucket that holds a quantile of a topic's messages."""
    upper = f"CASE WHEN bucket < 0 THEN 0 ELSE {_UPPER} END"
    return f"least(min(CASE WHEN up_to >= {share} * in_all THEN {upper} END), max(largest))"


_SIZES: Final = f"""
SELECT topic, sum(messages) AS messages, sum(bytes) / sum(messages) AS mean,
       {_quantile(0.5)} AS p50, {_quantile(0.99)} AS p99, max(largest) AS max, sum(bytes) AS bytes
FROM ({_RANKED}) GROUP BY topic ORDER BY bytes DESC, topic
"""
_LATENCY: Final = f"""
SELECT topic, sum(messages) AS messages, greatest(0, {_quantile(0.5)}) AS p50_ms, greatest(0, {_quantile(0.99)}) AS p99_ms,
       max(largest) AS max_ms, sum(CASE WHEN bucket = {NEGATIVE_BUCKET} THEN messages ELSE 0 END) AS before_born
FROM ({_RANKED}) GROUP BY topic ORDER BY p99_ms DESC, topic
"""
_BUCKETS: Final = """
SELECT {bucket:name} AS bucket, sum(messages) AS messages FROM {cells} WHERE {bucket:name} IS NOT NULL GROUP BY 1 ORDER BY 1
"""


_SPAN: Final = "SELECT min(storeTimestamp) AS first, max(storeTimestamp) AS last FROM {log}"


def step_s(stores: Stores) -> int:
    """Return the number of seconds into which the times of the log are cut. One pass over one column."""
    (row,) = stores.rows(_SPAN, log=stores.messages("storeTimestamp")).to_pylist()
    span_s = 0.0 if row["first"] is None else (row["last"] - row["first"]).total_seconds()
    days = math.ceil(span_s / (TIMES_MAX * DAY_S))
    return next((step for step in STEPS_S if span_s / step <= TIMES_MAX), days * DAY_S)


def floored(time_ms: str, step: int) -> str:
    """Return SQL for the beginning of the step of `step` seconds that holds a time in ms."""
    return f"timestamp_millis(CAST(floor({time_ms} / {step * 1000}) AS BIGINT) * {step * 1000})"


def cells(stores: Stores, step: int) -> Any:
    """Count the log's records in cells, in one pass; `step`: seconds."""
    log = stores.messages(
        *("topic", "storeSize", "sysFlag", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost"),
        *("reconsumeTimes", "rawProperties"),
    )
    return stores.sql(_CELLS.replace("{time:step}", floored("unix_millis(storeTimestamp)", step)), log=log)


def _of(query: str, bucket: str, largest: str = "") -> str:
    return query.replace("{bucket:name}", bucket).replace("{largest:name}", largest)


# Table of the report -> query over the cells.
_QUERIES: Final = {
    "volume": _VOLUME,
    "hosts": _HOSTS,
    "sizes": _of(_SIZES, "size_bucket", "size_max"),
    "latency": _of(_LATENCY, "latency_bucket", "latency_max_ms"),
    "size_buckets": _of(_BUCKETS, "size_bucket"),
    "latency_buckets": _of(_BUCKETS, "latency_bucket"),
}


def tables(stores: Stores, cells: Any, step: int) -> dict[str, Any]:
    """Return by name the tables of volume by topic and time, senders and brokers, record sizes, and latency to storage."""
    return {name: stores.rows(query.replace("{seconds:step}", str(step)), cells=cells) for name, query in _QUERIES.items()}
