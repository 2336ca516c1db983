"""CONSUMER_SEND_MSG_BACK: a consumer sends back a message that it could not consume, to receive it again later.

The message is put again: into the group's retry topic, through a delay level that grows with each attempt (10 s, 30 s,
1 min, ...), or after the maximum number of attempts into the group's dead-letter topic.
"""

import random
from typing import Final

from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.handlers.send import retrying_group
from pocketmq.broker.names import DLQ_PREFIX, RETRY_PREFIX, WAIT
from pocketmq.broker.put.message_id import encode_message_id
from pocketmq.broker.put.put import CLUSTER, STALE_IN_COPIES
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE, TOPIC_SYS_FLAG_UNIT_SUB
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pocketmq.store.format.properties import DELAY, decode_properties
from pocketmq.store.format.record import decode_record

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

_FIRST_RETRY_LEVEL: Final = 3


def consumer_send_msg_back(services: Services, request: Request[ConsumerSendMsgBackRequestHeader]) -> Response | Deferred:
    """Put a message back for its group. A topic created by this is registered before the answer."""
    header = request.header
    group = header.group
    group_config, reconsume_times_max = retrying_group(services, request, group)
    if not services.config.broker_permission & PERM_WRITE:
        remark = f"the broker[{services.broker_address}] sending message is forbidden"
        raise RemotingError(ResponseCode.NO_PERMISSION, remark)
    if group_config.retry_queue_nums <= 0:
        return Response()  # retries are off for the group
    sys_flag = TOPIC_SYS_FLAG_UNIT_SUB if header.unit_mode else 0
    topic_config = services.topics.create_on_send_back(
        RETRY_PREFIX + group, group_config.retry_queue_nums, topic_sys_flag=sys_flag
    )
    if not topic_config.perm & PERM_WRITE:
        raise RemotingError(ResponseCode.NO_PERMISSION, f"the topic[{topic_config.topic_name}] sending message is forbidden")
    remark = f"look message by offset failed, {header.physical_offset}"
    record = decode_record(existing(services.store.message_at(header.physical_offset), ResponseCode.SYSTEM_ERROR, remark))
    properties = decode_properties(record.properties)
    for name in STALE_IN_COPIES:
        properties.pop(name, None)
    properties.setdefault(RETRY_TOPIC, record.topic.decode())
    properties.setdefault(ORIGIN_MESSAGE_ID, encode_message_id(record.store_host, record.physical_offset))
    properties.setdefault(CLUSTER, services.config.broker_cluster_name)
    properties[WAIT] = "false"
    if header.delay_level < 0 or record.reconsume_times >= reconsume_times_max:
        topic, queue_id = services.topics.create_on_send_back(DLQ_PREFIX + group, 1).topic_name, 0
        properties[DELAY] = "0"
    else:
        # The topic may have other numbers of queues than the group names: `mqadmin updateSubGroup -q` does not change it.
        counts = (group_config.retry_queue_nums, topic_config.read_queue_nums, topic_config.write_queue_nums)
        topic, queue_id = topic_config.topic_name, random.randrange(max(min(counts), 1))
        properties[DELAY] = str(header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times)
    message = record.copy_to(topic, queue_id, services.store_host, properties)
    message.consumed_again()
    with refused_as(ResponseCode.SYSTEM_ERROR, kind=RemotingError):
        services.putter.put(message)
    services.stats.send_back(group, properties[RETRY_TOPIC])
    return services.gate.when_done(Response(), topic)


ROUTES = routes(
    Route(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader, consumer_send_msg_back),
)
