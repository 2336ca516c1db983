"""Finding messages by offset id, key or unique key, and units of a ConsumeQueue.

RemotingError has the code of the broker, or NO_MESSAGE.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pocketmq.admin.api.client import AdminClient, AdminError, chosen_address, document
from pocketmq.admin.api.consumers import RUNNING_INFO_TIMEOUT_S
from pocketmq.admin.api.stored_messages import StoredMessage, stored_messages
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.bodies import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.query import (
    ConsumeMessageDirectlyRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from pocketmq.store.format.host import host_text

EVER: Final = (1 << 63) - 1
MAX_NUM: Final = 64
UNIQUE_MAX_NUM: Final = 32
KEY_SEPARATOR: Final = " "
NOT_FOUND: Final = "query message by key finished, but no message."
_ID_SIZES: Final = (16, 28)
"""Bytes of an offset id: 4 or 16 of address, 4 of port, 8 of physical offset."""


class OffsetId(NamedTuple):
    """The place of a message: its broker's address and its physical offset."""

    address: str
    physical_offset: int


def offset_id(msg_id: str) -> OffsetId:
    """Decode an offset id. Raises RemotingError. A unique key has the same form, but decodes to a meaningless address."""
    try:
        packed = bytes.fromhex(msg_id)
    except ValueError:
        packed = b""
    if len(packed) not in _ID_SIZES:
        remark = f"query message by id finished, but no message: {msg_id} is not an offset id of 32 or 56 hex digits"
        raise RemotingError(ResponseCode.NO_MESSAGE, remark)
    (physical_offset,) = struct.unpack(">q", packed[-8:])
    return OffsetId(host_text(packed[:-8]), physical_offset)


async def by_offset_id(admin: AdminClient, msg_id: str) -> StoredMessage:
    """Return the message of an offset id, from the broker whose address is in the id."""
    place = offset_id(msg_id)
    answer = await admin.call(place.address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(place.physical_offset))
    found = stored_messages(answer.body, _name_of(admin, place.address))
    if not found:
        raise AdminError(f"{place.address} answered without a message")
    return found[0]


async def by_any_id(admin: AdminClient, msg_id: str, topic: str | None) -> StoredMessage:
    """Return a message by its offset id; if the id names no known broker and there is a topic, by its unique key."""
    if topic is not None and not await names_known_broker(admin, msg_id):
        return (await by_unique_key(admin, topic.strip(), msg_id))[0]
    return await by_offset_id(admin, msg_id)


async def names_known_broker(admin: AdminClient, msg_id: str) -> bool:
    """Return whether an id is an offset id of a broker that is registered: no connection is made to another address."""
    brokers = (await admin.cluster_info()).broker_addr_table.values()
    try:
        return offset_id(msg_id).address in {address for data in brokers for address in data.broker_addrs.values()}
    except RemotingError:
        return False


def _name_of(admin: AdminClient, address: str) -> str:
    """Return the name of the broker with an address; empty if the command has not fetched the clusters, or for no broker."""
    info = admin.known_cluster_info
    brokers = {} if info is None else info.broker_addr_table
    return next((name for name, data in brokers.items() if address in data.broker_addrs.values()), "")


async def by_key(
    admin: AdminClient, topic: str, key: str, max_num: int = MAX_NUM, begin_ms: int = 0, end_ms: int = EVER
) -> list[StoredMessage]:
    """Return the messages of a topic with a key, sorted by store time. Raises RemotingError 208 if no message matches."""
    header = QueryMessageRequestHeader(topic, key, max_num, begin_ms, end_ms, False)
    return await _query(admin, header, lambda stored: key in (stored.message.keys or "").split(KEY_SEPARATOR))


async def by_unique_key(
    admin: AdminClient, topic: str, key: str, begin_ms: int = 0, end_ms: int = EVER
) -> list[StoredMessage]:
    """Return the messages of a topic with a unique key, the oldest first. Raises RemotingError 208 if no message matches."""
    header = QueryMessageRequestHeader(topic, key, UNIQUE_MAX_NUM, begin_ms, end_ms, True)
    return await _query(admin, header, lambda stored: stored.message.msg_id == key)


async def _route(admin: AdminClient, topic: str) -> TopicRouteData:
    try:
        return await admin.route(topic)
    except RemotingError as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise RemotingError(refusal.code, f"The topic[{topic}] not matched route info") from None


async def _query(
    admin: AdminClient, header: QueryMessageRequestHeader, is_wanted: Callable[[StoredMessage], bool]
) -> list[StoredMessage]:
    """Query the brokers of the topic's route. They search by hash code, so messages that are not wanted are dropped."""
    found: list[StoredMessage] = []
    for data in (await _route(admin, header.topic)).broker_datas:
        address = chosen_address(data)
        answer = await admin.invoke(address, RequestCode.QUERY_MESSAGE, header)
        if answer.code == ResponseCode.SUCCESS:
            messages = stored_messages(answer.body, data.broker_name)
            found += (stored for stored in messages if stored.topic == header.topic and is_wanted(stored))
        elif answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise RemotingError(answer.code, answer.remark or f"{address} answered with code {answer.code}")
    if not found:
        raise RemotingError(ResponseCode.NO_MESSAGE, NOT_FOUND)
    return sorted(found, key=lambda stored: stored.record.store_timestamp_ms)


async def consume_directly(admin: AdminClient, group: str, client_id: str, stored: StoredMessage) -> dict[str, Any]:
    """Let a client consume a message now. Return its ConsumeMessageDirectlyResult."""
    header = ConsumeMessageDirectlyRequestHeader(group, client_id, stored.message.offset_msg_id)
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    return document(await admin.call(stored.store_host, code, header, timeout_s=RUNNING_INFO_TIMEOUT_S))


async def queue_units(
    admin: AdminClient, topic: str, queue_id: int, index: int, count: int, broker: str | None, group: str | None
) -> dict[str, Any]:
    """Return units of a ConsumeQueue at a broker, or at the first master of the topic's route.

    `group`: also its subscription, and whether it selects each unit. Raises AdminError if there are no units.
    """
    if broker is None:
        masters = (data.broker_addrs.get(MASTER_ID) for data in (await admin.route(topic)).broker_datas)
        broker = next(filter(None, masters), None)
        if broker is None:
            raise AdminError("No topic route data!")
    header = QueryConsumeQueueRequestHeader(topic, queue_id, index, count, group)
    answer = await admin.call(broker, RequestCode.QUERY_CONSUME_QUEUE, header)
    if not answer.body:
        raise AdminError(answer.remark or f"{broker} returned no ConsumeQueue units")
    return document(answer)
