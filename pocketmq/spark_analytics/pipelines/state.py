"""Queries that need only the companion tables: pending delays, consumer lag, outcomes of transactions."""

from typing import Any, Final

from pocketmq.spark_analytics.pipelines.stores import Stores

_PENDING: Final = """
SELECT date_trunc('hour', dueTime) AS hour, kind, topic, count(*) AS messages, min(dueTime) AS first, max(dueTime) AS last
FROM {delays} GROUP BY ALL ORDER BY hour, kind, topic
"""
_LAG: Final = """
SELECT `group`, topic, sum(lag) AS lag, max(lag) AS queue_lag_max, count(*) AS queues,
       count(CASE WHEN lag > 0 THEN 1 END) AS queues_behind, sum(consumerOffset) AS consumed,
       count(CASE WHEN consumerOffset < minOffset THEN 1 END) AS queues_with_loss
FROM {offsets} WHERE maxOffset IS NOT NULL AND NOT startswith(`group`, 'CID_RMQ_SYS_')
GROUP BY `group`, topic ORDER BY lag DESC, `group`, topic
"""
_TRANSACTIONS: Final = """
SELECT topic, producerGroup AS producer_group, coalesce(outcome, state) AS outcome, count(*) AS messages,
       max(checkTimes) AS checks_max, min(storeTimestamp) AS first, max(storeTimestamp) AS last
FROM {transactions} WHERE state <> 'putBack'
GROUP BY ALL ORDER BY topic, producer_group, outcome
"""


def pending(stores: Stores) -> Any:
    """Return pending delayed messages by due hour."""
    return stores.rows(_PENDING, delays=stores.table("delays"))


def lag(stores: Stores) -> Any:
    """Return the lag of each group and topic; `queues_with_loss`: retention has deleted unconsumed messages there."""
    return stores.rows(_LAG, offsets=stores.table("offsets"))


def transactions(stores: Stores) -> Any:
    """Return half messages by outcome: committed, rolledBack, pending, resolved (the log cannot tell how), givenUp."""
    return stores.rows(_TRANSACTIONS, transactions=stores.table("transactions"))
