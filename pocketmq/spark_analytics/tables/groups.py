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

from typing import Final

from pocketmq.spark_analytics.tables.document import entry_table

DDL: Final = (
    "group string, consumeEnable boolean, consumeFromMinEnable boolean, consumeBroadcastEnable boolean, "
    "consumeMessageOrderly boolean, retryQueueNums int, retryMaxTimes int, brokerId bigint, "
    "whichBrokerWhenConsumeSlowly bigint, notifyConsumerIdsChangedEnable boolean, attributes map<string,string>, "
    "store string"
)
TABLE: Final = entry_table(DDL, "subscriptionGroup.json", "subscriptionGroupTable")
