"""Volume, sizes and latency from one pass over the log, which counts records in few cells that are kept.

A cell is a combination of topic, hour, sender, broker, size bucket and latency bucket. Buckets are quarters of an octave, so
results are accurate to 19 %: bucket b holds [2^(b/4), 2^((b+1)/4)).

Latency is store time - born time, for messages that came directly from a client, not for those delivered by the broker after
a delay, a retry or a transaction. The two times come from two clocks.
"""

from typing import Any, Final

from pocketmq.spark_analytics.decoding.derived_columns import TIMER_TOPIC
from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, INNER_TOPICS, RETRY_PREFIX, Stores, has_property, quoted
from pocketmq.store.format.message import SCHEDULE_TOPIC

BUCKETS_AN_OCTAVE: Final = 4
# Buckets for negative latency (clocks differ) and for less than a millisecond, which has no logarithm.
NEGATIVE_BUCKET: Final = -2
ZERO_BUCKET: Final = -1

# The second alternative excludes copies stored by the broker on a client's behalf, later than they arrived.
_IS_STRAIGHT: Final = f"""
  topic IN ('{SCHEDULE_TOPIC}', '{TIMER_TOPIC}') AND reconsumeTimes = 0
  OR NOT (reconsumeTimes > 0 OR (sysFlag & 12) = 8 OR topic IN ({quoted(INNER_TOPICS)})
          OR startswith(topic, '{RETRY_PREFIX}') OR startswith(topic, '{DLQ_PREFIX}')
          OR {has_property("DELAY")} OR {has_property("TIMER_OUT_MS")})
"""
_CELLS: Final = f"""
SELECT topic, hour, sender, broker, size_bucket, latency_bucket,
       count(*) AS messages, sum(storeSize) AS bytes, max(storeSize) AS size_max, max(latency_ms) AS latency_max_ms
FROM (
  SELECT topic, date_trunc('hour', storeTimestamp) AS hour,
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
SELECT topic, hour, sum(messages) AS messages, sum(bytes) AS bytes FROM {cells} GROUP BY topic, hour ORDER BY topic, hour
"""
_HOSTS: Final = """
SELECT sender, broker, sum(messages) AS messages, sum(bytes) AS bytes, count(DISTINCT topic) AS topics
FROM {cells} GROUP BY sender, broker ORDER BY messages DESC, sender, broker
"""
# A quantile is the largest integer of its bucket, but at most the observed maximum.
_UPPER: Final = f"CAST(ceil(power(2, (bucket + 1) / CAST({BUCKETS_AN_OCTAVE} AS DOUBLE))) AS BIGINT) - 1"
# The cells of a topic in the order of a bucket, with the number of messages up to each and in all.
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


def cells(stores: Stores) -> Any:
    """Count the log's records in cells, in one pass."""
    log = stores.messages(
        *("topic", "storeSize", "sysFlag", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost"),
        *("reconsumeTimes", "rawProperties"),
    )
    return stores.sql(_CELLS, log=log)


def volume(stores: Stores, cells: Any) -> Any:
    """Return messages and bytes by topic and hour."""
    return stores.rows(_VOLUME, cells=cells)


def hosts(stores: Stores, cells: Any) -> Any:
    """Return messages and bytes by sender and broker."""
    return stores.rows(_HOSTS, cells=cells)


def sizes(stores: Stores, cells: Any) -> Any:
    """Return record sizes by topic."""
    return stores.rows(_of(_SIZES, "size_bucket", "size_max"), cells=cells)


def latency(stores: Stores, cells: Any) -> Any:
    """Return the latency from birth at the client to storage, by topic."""
    return stores.rows(_of(_LATENCY, "latency_bucket", "latency_max_ms"), cells=cells)


def buckets(stores: Stores, cells: Any, name: str) -> Any:
    """Return the number of messages in each bucket; `name` is `size_bucket` or `latency_bucket`."""
    return stores.rows(_of(_BUCKETS, name), cells=cells)


def _of(query: str, bucket: str, largest: str = "") -> str:
    return query.replace("{bucket:name}", bucket).replace("{largest:name}", largest)
