"""Table `topics`, from config/topics.json: one row per topic known to the broker.

topic
readQueueNums, writeQueueNums
perm                    4 read, 2 write, 1 inherit; their sum
order                   whether it is an order topic
topicSysFlag
topicFilterType         SINGLE_TAG or MULTI_TAG
attributes              5.x: `message.type` and others; empty in 4.9.4
store                   the store's folder
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.spark_analytics.tables.document import DocumentTable, Row, attributes, typed
from pocketmq.store.offline.store_folder import StoreFolder

DDL: Final = (
    "topic string, readQueueNums int, writeQueueNums int, perm int, order boolean, topicSysFlag int, topicFilterType "
    "string, attributes map<string,string>, store string"
)
FILE: Final = "topics.json"
_KINDS: Final[dict[str, type]] = {
    "readQueueNums": int,
    "writeQueueNums": int,
    "perm": int,
    "order": bool,
    "topicSysFlag": int,
    "topicFilterType": str,
}


def rows(store: StoreFolder) -> Iterator[Row]:
    """Yield one row per topic."""
    path = store.path("config", FILE)
    for topic, fields in store.topics().items():
        fields = typed(path, fields, dict, topic) or {}
        yield {
            "topic": topic,
            **{name: typed(path, fields.get(name), kind, f"{topic}.{name}") for name, kind in _KINDS.items()},
            "attributes": attributes(path, fields, topic),
        }


TABLE: Final = DocumentTable(DDL, rows).table
