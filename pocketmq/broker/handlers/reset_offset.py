"""INVOKE_BROKER_TO_RESET_OFFSET: a tool sets the consumer offsets of a group back or forward.

With `useServerSideResetOffset`, as in 5.x, the broker sets the offsets, and the next pull of each queue is answered with the
new one. Without it, as in 4.9.4, the broker sends the offsets to the connected consumers, which commit them later.
"""

from collections.abc import Generator, Iterator
from typing import Final

from pocketmq.broker.handlers.relay import check_versions
from pocketmq.broker.services import Services
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import Work, answer_in_slices
from pocketmq.remoting.bodies import MessageQueue, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader

_CPP: Final = ("CPP", 1)
_READ_MAPS: Final = ("JAVA", 0, "GO", 9)
"""Languages of clients that cannot read a list of offsets: Java's ignores it, Go's panics."""


def reset_offset(services: Services, request: Request[ResetOffsetRequestHeader]) -> Response | Deferred:
    """Reset the offsets of a group; the answer has the new offset of each queue."""
    header = request.header
    if services.config.use_server_side_reset_offset:
        return answer_in_slices(services.slices, request, _set_offsets(services, header))
    if _queue_id(header) >= 0:
        remark = f"queueId={header.queue_id}: a single queue can be reset only if useServerSideResetOffset=true"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return answer_in_slices(services.slices, request, _notify_consumers(services, request))


def _set_offsets(services: Services, header: ResetOffsetRequestHeader) -> Work:
    """Set the offsets as 5.x does, but wake held pulls at once, and respect isForce=false, as 4.9, if no queue is named."""
    topic, group, offsets = header.topic, header.group, services.offsets
    config = services.topics.get(topic)
    if config is None:
        raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] does not exist")
    if services.groups.get(group) is None:
        raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] does not exist")
    table: dict[MessageQueue, int] = {}
    for queue_id, target in _targets(services, header, config):
        offsets.reset(group, topic, queue_id, target)
        table[MessageQueue(services.config.broker_name, queue_id, topic)] = target
        yield
    services.holds.wake_all(topic)
    services.pops.wake_all(topic)
    return Response(body=(yield from _offset_map(table)))


def _targets(services: Services, header: ResetOffsetRequestHeader, config: TopicConfig) -> Iterator[tuple[int, int]]:
    topic, queue_id = header.topic, _queue_id(header)
    if queue_id >= config.read_queue_nums:
        remark = f"topic[{topic}] has no queue {queue_id}: readQueueNums={config.read_queue_nums}"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    if queue_id < 0:
        for each in range(config.read_queue_nums):
            target, now = _offset_at(services, topic, each, header.timestamp), -1
            if not header.is_force:
                now = services.offsets.query(header.group, topic, each)
            yield each, target if now < 0 else min(target, now)
    elif header.offset is None or header.offset == -1:
        yield queue_id, _offset_at(services, topic, queue_id, header.timestamp)
    else:
        begin, end = max(services.store.min_offset(topic, queue_id), 0), services.store.max_offset(topic, queue_id)
        if not begin <= header.offset <= end:
            remark = f"offset={header.offset} is not within queue {queue_id} of topic[{topic}]: {begin} to {end}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        yield queue_id, header.offset


def _queue_id(header: ResetOffsetRequestHeader) -> int:
    """Return the queue to reset, or -1 for all."""
    return -1 if header.queue_id is None else header.queue_id


def _offset_at(services: Services, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """Return the offset of the first message at or after the time; the end of the queue for a negative time."""
    if timestamp_ms < 0:
        return services.store.max_offset(topic, queue_id)
    return max(services.store.offset_by_time(topic, queue_id, timestamp_ms), 0)


def _notify_consumers(services: Services, request: Request[ResetOffsetRequestHeader]) -> Work:
    """Send the offsets to the connected consumers. Without any, code 206 makes tools commit the offsets themselves."""
    header = request.header
    config = services.topics.get(header.topic)
    if config is None:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker: {header.topic}"
        )
    table: dict[MessageQueue, int] = {}
    for queue_id in range(config.write_queue_nums):
        consumer_offset = services.offsets.query(header.group, header.topic, queue_id)
        if consumer_offset < 0:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        target = _offset_at(services, header.topic, queue_id, header.timestamp)
        if not header.is_force:
            target = min(target, consumer_offset)
        table[MessageQueue(services.config.broker_name, queue_id, header.topic)] = target
        yield
    info = services.clients.consumer_group(header.group)
    if info is None:
        remark = (
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}"
        )
        raise RemotingError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    check_versions(info.clients.values())
    push = ResetOffsetRequestHeader(header.topic, header.group, header.timestamp, False)
    as_map, as_list = (yield from _offset_map(table)), _offset_list(table)
    for client in info.clients.values():
        # C++ consumers cannot read the map. A tool that identifies as CPP asks for the list on their behalf.
        is_list = client.language in _CPP or (request.language in _CPP and client.language not in _READ_MAPS)
        client.channel.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, as_list if is_list else as_map)
    return Response(body=as_map)


def _offset_map(table: dict[MessageQueue, int]) -> Generator[None, None, bytes]:
    rows: list[bytes] = []
    for queue, queue_offset in table.items():
        rows.append(b"%b:%d" % (fastjson.object_key(queue.broker_name, queue.queue_id, queue.topic), queue_offset))
        yield
    return fastjson.dumps({"offsetTable": fastjson.joined_map(rows)})


def _offset_list(table: dict[MessageQueue, int]) -> bytes:
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic, "offset": queue_offset}
        for queue, queue_offset in table.items()
    ]
    return fastjson.dumps({"offsetTable": rows})


ROUTES = routes(Route(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, reset_offset))
