"""Sending a message back: the broker delivers it to the group again later, through the group's retry topic.

The message's own broker does it by CONSUMER_SEND_MSG_BACK. While that broker name has no master, a copy is sent to
the retry topic at another broker, as Apache's clients do.
"""

import logging
from typing import Final

from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.message import RETRY_GROUP_PREFIX, RETRY_TOPIC, MessageExt, encode_properties
from pocketmq.client.sending.message_sender import WORTH_ANOTHER_BROKER
from pocketmq.client.sending.outgoing import STORED, send_header
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from pocketmq.store.format.properties import DELAY, UNIQ_KEY

log = logging.getLogger("client")

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry; each further one has the next level. Brokers do the same."""
RECONSUME_MAX: Final = 16
_NOT_COPIED: Final = ("TRAN_MSG", "REAL_TOPIC", "REAL_QID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES")


async def send_back(
    instance: ClientInstance, group: str, message: MessageExt, delay_level: int = 0, reconsume_max: int | None = None
) -> bool:
    """Send a message back; return whether a broker has it. Failures are logged.

    `delay_level` 0: chosen by the number of attempts; -1: it goes to the dead-letter topic. `reconsume_max` None: as the
    broker's group has it.
    """
    header = ConsumerSendMsgBackRequestHeader(
        physical_offset=message.physical_offset,
        group=group,
        delay_level=delay_level,  # 0: the broker chooses by the number of attempts: 10 s, 30 s, 1 min, ...
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        max_reconsume_times=reconsume_max,
    )
    try:
        await instance.call(message.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        return True
    except (OSError, TimeoutError, RemotingError) as failure:
        log.warning("sending %s back failed: %s", message.msg_id, failure)
        if isinstance(failure, RemotingError) and failure.code not in WORTH_ANOTHER_BROKER:
            return False
    return await _send_copy(instance, group, message, delay_level, RECONSUME_MAX if reconsume_max is None else reconsume_max)


async def _send_copy(
    instance: ClientInstance, group: str, message: MessageExt, delay_level: int, reconsume_max: int
) -> bool:
    """Send a copy to the retry topic at another broker name's master."""
    topic = RETRY_GROUP_PREFIX + group
    try:
        queues = await instance.routes.publish_queues(topic)
    except (OSError, TimeoutError, RemotingError) as failure:
        log.warning("sending %s back to another broker failed: %s", message.msg_id, failure)
        return False
    others = {queue.broker_name: queue for queue in queues if queue.broker_name != message.broker_name}
    for broker_name, queue in others.items():
        try:
            header = _header(group, topic, queue, message, delay_level, reconsume_max)
            answer = await instance.invoke(broker_name, RequestCode.SEND_MESSAGE_V2, header, message.body)
        except (OSError, TimeoutError, RemotingError) as failure:
            log.warning("sending %s back to broker %s failed: %s", message.msg_id, broker_name, failure)
            continue
        if answer.code in STORED:
            return True
        log.warning("sending %s back to broker %s failed: %s", message.msg_id, broker_name, answer.remark or answer.code)
    return False


def _header(
    group: str, topic: str, queue: MessageQueue, message: MessageExt, delay_level: int, reconsume_max: int
) -> SendMessageRequestHeader:
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    properties[RETRY_TOPIC] = message.topic
    properties.setdefault(ORIGIN_MESSAGE_ID, message.msg_id)
    properties.setdefault(UNIQ_KEY, message.msg_id)
    properties[DELAY] = str(delay_level or FIRST_RETRY_LEVEL + message.reconsume_times)
    times = message.reconsume_times + 1
    if delay_level < 0:  # brokers make a dead letter of a message with too many attempts
        del properties[DELAY]
        times = max(times, reconsume_max + 1)
    about = {"default_topic_queue_nums": 1, "max_reconsume_times": reconsume_max}
    return send_header(
        "CLIENT_INNER_PRODUCER", topic, queue, encode_properties(properties), message.flag,
        reconsume_times=times, **about,
    )  # fmt: skip
