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
# Table of the report -> its query, and the companion table that this reads.
_QUERIES: Final = {
    "pending": (_PENDING, "delays"),
    "lag": (_LAG, "offsets"),
    "transactions": (_TRANSACTIONS, "transactions"),
}


def tables(stores: Stores) -> dict[str, Any]:
    """Return by name the tables of the messages that wait, by due hour; of the lag of each group and topic, with the queues
    whose unconsumed messages retention has deleted (`queues_with_loss`); and of half messages by outcome: committed,
    rolledBack, pending, resolved (the log cannot tell how), givenUp.
    """
    return {name: stores.rows(query, **{table: stores.table(table)}) for name, (query, table) in _QUERIES.items()}
