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

from typing import Final

from pocketmq.spark_analytics.tables.document import entry_table

DDL: Final = (
    "topic string, readQueueNums int, writeQueueNums int, perm int, order boolean, topicSysFlag int, topicFilterType "
    "string, attributes map<string,string>, store string"
)
TABLE: Final = entry_table(DDL, "topics.json", "topicConfigTable")
