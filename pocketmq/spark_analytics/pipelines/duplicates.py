"""Keys that occur more than once in a topic: unique keys (the same message stored again) and business keys (KEYS).

The first pass counts 64-bit hashes, so that no key text is shuffled; a second pass looks up the texts of the most frequent
keys, if there are any. Copies made by brokers (delays, retries, transactions) are in other topics and left out. The members
of a batch share a unique key and a store time, and do not count as repetitions of each other.
"""

from typing import Any, Final

from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, INNER_TOPICS, RETRY_PREFIX, Stores, quoted

WORST: Final = 50
_OWN: Final = f"""
topic NOT IN ({quoted(INNER_TOPICS)})
AND NOT (startswith(topic, '{RETRY_PREFIX}') OR startswith(topic, '{DLQ_PREFIX}') OR startswith(topic, 'rmq_sys_'))
"""
_KEYS: Final = f"""
SELECT topic, physicalOffset, storeTimestamp, CASE WHEN left(entry, 1) = 'u' THEN 'unique key' ELSE 'key' END AS kind,
       substring(entry, 2) AS text
FROM (SELECT topic, physicalOffset, storeTimestamp,
             -- A message may name a key twice.
             explode(array_distinct(split(
               concat('u', coalesce(uniqKey, ''), '\x02k', replace(coalesce(keys, ''), ' ', '\x02k')), '\x02'))) AS entry
      FROM {{log}} WHERE {_OWN})
WHERE length(entry) > 1
"""
_REPEATED: Final = """
SELECT topic, kind, xxhash64(text) AS hash, count(*) AS messages, min(storeTimestamp) AS first, max(storeTimestamp) AS last
FROM {keys} GROUP BY topic, kind, xxhash64(text)
HAVING count(*) > 1 AND (kind = 'key' OR min(storeTimestamp) < max(storeTimestamp))
"""
_SUMMARY: Final = """
SELECT topic, kind, count(*) AS keys, sum(messages) AS messages, sum(messages) - count(*) AS superfluous,
       max(messages) AS messages_max FROM {repeated} GROUP BY topic, kind ORDER BY superfluous DESC, topic, kind
"""
_WORST: Final = f"SELECT * FROM {{repeated}} ORDER BY messages DESC, topic, kind, hash LIMIT {WORST}"
_TEXTS: Final = """
SELECT topic, kind, any_value(text) AS text, any_value(messages) AS messages,
       any_value(first) AS first, any_value(last) AS last
FROM (SELECT *, xxhash64(text) AS hash FROM {keys}) JOIN {worst} USING (topic, kind, hash)
GROUP BY topic, kind, hash ORDER BY messages DESC, topic, kind, text
"""


def _keys(stores: Stores) -> Any:
    log = stores.messages("topic", "physicalOffset", "storeTimestamp", "keys", "uniqKey")
    return stores.sql(_KEYS, log=log)


def repeated(stores: Stores) -> Any:
    """Return a row per key hash that occurs more than once in its topic; persist it, as two queries read it."""
    return stores.sql(_REPEATED, keys=_keys(stores))


def tables(stores: Stores, repeated: Any) -> dict[str, Any]:
    """Return by name the tables of the number of repeated keys and of messages with them, and of the most frequent keys."""
    summary = worst = stores.rows(_SUMMARY, repeated=repeated)
    if summary.num_rows:
        worst = stores.rows(_TEXTS, keys=_keys(stores), worst=stores.sql(_WORST, repeated=repeated))
    return {"duplicates": summary, "duplicate_keys": worst}
