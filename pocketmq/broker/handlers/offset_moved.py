"""OFFSET_MOVED_EVENT: a message stored for monitoring each time a consumer's offset was out of range.

Its form is 4.9.4's (PullMessageProcessor.generateOffsetMovedEvent); `mqadmin startMonitoring` reads it.
"""

import logging
from typing import Final

from pocketmq.broker.names import OFFSET_MOVED_EVENT
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import MessageQueue, OffsetMovedEvent, encode_body
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import DELAY, KEYS, TAGS, encode_properties

log = logging.getLogger("broker")

_QUEUE_ID: Final = 0


def store_offset_moved(services: Services, header: PullMessageRequestHeader, offset_new: int) -> None:
    """Store the event that a pull was redirected to `offset_new`. If it cannot be stored, the pull is answered anyway."""
    if services.store.config.is_slave:
        return
    queue = MessageQueue(services.config.broker_name, header.queue_id, header.topic)
    event = OffsetMovedEvent(header.consumer_group, queue, header.queue_offset, offset_new)
    properties = {KEYS: header.consumer_group, DELAY: "0", TAGS: header.consumer_group}
    message = Message(
        OFFSET_MOVED_EVENT,
        _QUEUE_ID,
        encode_body(event),
        services.store_host,
        services.store_host,
        0,
        0,
        services.clock.message_time_ms(),
        0,
        0,
        properties,
        encode_properties(properties).encode(),
    )
    try:
        services.putter.put(message)
    except RemotingError as error:
        log.debug("the OFFSET_MOVED_EVENT of group %s cannot be stored: %s", header.consumer_group, error.remark)
    services.turn.arm()  # a held pull is served after this turn's DISPATCH phase
