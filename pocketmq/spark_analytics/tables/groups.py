"""Table `groups`, from config/subscriptionGroup.json: one row per consumer group known to the broker.

group
consumeEnable, consumeFromMinEnable, consumeBroadcastEnable
consumeMessageOrderly           5.x
retryQueueNums, retryMaxTimes
brokerId, whichBrokerWhenConsumeSlowly      the broker it reads from, and the one to read from when it is far behind
notifyConsumerIdsChangedEnable
attributes                      5.x
store                           the store's folder
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.spark_analytics.tables.document import DocumentTable, Row, attributes, typed
from pocketmq.store.offline.store_folder import StoreFolder

DDL: Final = (
    "group string, consumeEnable boolean, consumeFromMinEnable boolean, consumeBroadcastEnable boolean, "
    "consumeMessageOrderly boolean, retryQueueNums int, retryMaxTimes int, brokerId bigint, "
    "whichBrokerWhenConsumeSlowly bigint, notifyConsumerIdsChangedEnable boolean, attributes map<string,string>, "
    "store string"
)
FILE: Final = "subscriptionGroup.json"
_FLAGS: Final = (
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "consumeMessageOrderly",
    "notifyConsumerIdsChangedEnable",
)
_NUMBERS: Final = ("retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly")


def rows(store: StoreFolder) -> Iterator[Row]:
    """Yield one row per group."""
    path = store.path("config", FILE)
    for group, fields in store.table(FILE, "subscriptionGroupTable").items():
        fields = typed(path, fields, dict, group) or {}
        yield {
            "group": group,
            **{name: typed(path, fields.get(name), bool, f"{group}.{name}") for name in _FLAGS},
            **{name: typed(path, fields.get(name), int, f"{group}.{name}") for name in _NUMBERS},
            "attributes": attributes(path, fields, group),
        }


TABLE: Final = DocumentTable(DDL, rows).table
