"""Running info of a push consumer (ConsumerRunningInfo), in the form that Java's tools parse."""

from collections.abc import Iterable, Mapping
from typing import Any

from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.pull_consumer import PULL_COUNT_MAX
from pocketmq.client.send_back import RECONSUME_MAX
from pocketmq.client.stacks import stacks
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import ConsumerData
from pocketmq.remoting.codes import LANGUAGE, VERSION_NAME


def running_info(
    data: ConsumerData,
    namesrv_addresses: Iterable[str],
    started_ms: int,
    queues: Iterable[ProcessQueue],
    rates: Mapping[str, ConsumeRates],
    with_stacks: bool,
) -> dict[str, Any]:
    """Return ConsumerRunningInfo: settings, subscriptions, queues, rates; stacks of tasks and threads if asked for."""
    table = ((fastjson.object_key(one.queue.broker_name, one.queue.queue_id, one.queue.topic), one.info()) for one in queues)
    info = {
        "properties": _properties(data, namesrv_addresses, started_ms),
        "subscriptionSet": data.subscription_data_set,
        "mqTable": fastjson.object_map(table),
        "statusTable": {one.topic: rates.get(one.topic, ConsumeRates()).status() for one in data.subscription_data_set},
    }
    return {**info, "jstack": stacks()} if with_stacks else info


def _properties(data: ConsumerData, namesrv_addresses: Iterable[str], started_ms: int) -> dict[str, str]:
    """Return the settings under Java's names; each queue has a task, which gives its messages to the listener one by one."""
    return {
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in namesrv_addresses),
        "PROP_CLIENT_VERSION": VERSION_NAME,
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUME_TYPE": str(data.consume_type),
        "PROP_CONSUMEORDERLY": "false",  # queues are not locked at the brokers
        "PROP_THREADPOOL_CORE_SIZE": "1",
        "consumerGroup": data.group_name,
        "messageModel": str(data.message_model),
        "consumeFromWhere": str(data.consume_from_where),
        "allocateMessageQueueStrategy": "AVG",
        "consumeMessageBatchMaxSize": "1",
        "maxReconsumeTimes": str(RECONSUME_MAX),
        "pullBatchSize": str(PULL_COUNT_MAX),
        "language": LANGUAGE,
    }
