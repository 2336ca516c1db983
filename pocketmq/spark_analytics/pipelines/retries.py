"""Failed consumption: retries by group, and an analysis of the dead letters.

A message that a consumer sends back is stored again in %RETRY%GROUP, after a delay, with `reconsumeTimes` one higher; or in
%DLQ%GROUP when that exceeds the group's retryMaxTimes or the consumer asks for it. RETRY_TOPIC names the original topic,
ORIGIN_MESSAGE_ID the record that was consumed first.

Retries of pop consumption are in %RETRY%GROUP_TOPIC or, with enableRetryTopicV2, %RETRY%GROUP+TOPIC, without RETRY_TOPIC.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, RETRY_PREFIX, Stores, property_of

DEAD_LETTERS: Final = 200
_COLUMNS: Final = (
    *("topic", "msgId", "keys", "tags", "reconsumeTimes", "bornTimestamp", "storeTimestamp", "physicalOffset"),
    *("queueOffset", "storeSize", "rawProperties"),
)
_RETRIES: Final = f"""
SELECT of_group AS `group`, coalesce({property_of("RETRY_TOPIC")}, of_topic) AS topic, reconsumeTimes AS times,
       count(*) AS deliveries, count(DISTINCT msgId) AS messages, min(storeTimestamp) AS first, max(storeTimestamp) AS last
FROM {{retried}} JOIN {{names}} ON name = topic GROUP BY ALL ORDER BY `group`, topic, times
"""
_DEAD: Final = f"""
SELECT of_group AS `group`, origin_topic AS topic,
       CASE WHEN retry_max IS NULL THEN 'unknown group'
            WHEN times > retry_max THEN concat('all ', retry_max, ' retries failed')
            ELSE concat('given up after ', times - 1, ' of ', retry_max, ' retries') END AS reason,
       msgId AS message, keys, tags, times, bornTimestamp AS born, storeTimestamp AS died,
       unix_millis(storeTimestamp) - unix_millis(bornTimestamp) AS lived_ms, origin, queueOffset AS dlq_queue_offset,
       physicalOffset
FROM (
  SELECT *, substring(topic, {len(DLQ_PREFIX) + 1}) AS of_group, reconsumeTimes AS times,
         coalesce({property_of("RETRY_TOPIC")}, {property_of("DLQ_ORIGIN_TOPIC")}) AS origin_topic,
         coalesce({property_of("ORIGIN_MESSAGE_ID")}, {property_of("DLQ_ORIGIN_MESSAGE_ID")}) AS origin
  FROM {{dead}}
)
LEFT JOIN (SELECT `group` AS name, max(retryMaxTimes) AS retry_max FROM {{groups}} GROUP BY 1) ON name = of_group
ORDER BY died DESC, physicalOffset DESC
"""
_NEWEST: Final = f"SELECT * FROM {{dead}} ORDER BY died DESC, physicalOffset DESC LIMIT {DEAD_LETTERS}"
_CAUSES: Final = """
SELECT `group`, topic, reason, count(*) AS messages, min(died) AS first, max(died) AS last FROM {dead}
GROUP BY ALL ORDER BY messages DESC, `group`, topic, reason
"""


def _of_topics(stores: Stores, topics: Iterable[str], prefix: str) -> Any:
    named = [topic for topic in topics if topic.startswith(prefix)]
    # Read through their queues; a topic name with a comma cannot be given in the option, and no broker creates one.
    return stores.messages(*_COLUMNS, topic=",".join(name for name in named if "," not in name) or prefix)


def retries(stores: Stores, topics: Collection[str]) -> Any:
    """Return delivered retries by group, topic and retry number. `topics`: all topics of the log."""
    names = [topic for topic in topics if topic.startswith(RETRY_PREFIX)]
    known = stores.rows("SELECT DISTINCT `group` FROM {groups}", groups=stores.table("groups")).column("group").to_pylist()
    groups, origins = zip(*(group_and_topic(name, known, topics) for name in names), strict=True)
    texts = {"name": names, "of_group": groups, "of_topic": origins}
    named = pa.table({column: pa.array(values, pa.string()) for column, values in texts.items()})
    return stores.rows(_RETRIES, retried=_of_topics(stores, topics, RETRY_PREFIX), names=stores.engine.local(named))


def group_and_topic(name: str, groups: Collection[str], topics: Collection[str]) -> tuple[str, str | None]:
    """Return the consumer group of a retry topic and, for pop consumption, the topic whose messages it has.

    Names may contain the `_` between the two. Of several known groups that fit, one before a known topic is meant, then the
    one with the longest name.
    """
    own = name.removeprefix(RETRY_PREFIX)
    group, plus, topic = own.partition("+")
    if plus:
        return group, topic
    fitting = [(own[len(group) + 1 :] in topics, len(group), group) for group in groups if own.startswith(f"{group}_")]
    if own in groups or not fitting:
        return own, None
    group = max(fitting)[-1]
    return group, own[len(group) + 1 :]


def dead_letters(stores: Stores, topics: Iterable[str]) -> Any:
    """Return every dead letter, newest first. `lived_ms`: from its birth until it was stored in the dead letter queue."""
    return stores.sql(_DEAD, dead=_of_topics(stores, topics, DLQ_PREFIX), groups=stores.table("groups"))


def dead_tables(stores: Stores, dead: Any) -> dict[str, Any]:
    """Return by name the tables of the newest dead letters, and of their number by group, topic and reason."""
    return {"dead_letters": stores.rows(_NEWEST, dead=dead), "dead_causes": stores.rows(_CAUSES, dead=dead)}
