"""Consumer and producer groups: their configs, connections and consumer offsets."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from pocketmq.broker.clients.client_registry import ClientChannelInfo, ConsumerGroupInfo
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.services import Services, in_slices
from pocketmq.broker.tables.consumer_offset import TOPIC_GROUP_SEPARATOR
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import Work
from pocketmq.remoting.bodies import (
    Connection,
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicList,
    encode_body,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import (
    BrokerConsumeStatsRequestHeader,
    CloneGroupOffsetRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumeStatsRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GroupRequestHeader,
    ProducerGroupRequestHeader,
    TopicAndGroupRequestHeader,
)
from pocketmq.remoting.layout import FRAME_SIZE_MAX

LAST_YEAR_MS = 253_370_764_800_000  # 9999-01-01 UTC

# --- configs --------------------------------------------------------------------------------------------------------


def update_and_create_subscription_group(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Create or replace a group. The answer comes once it is on disk."""
    return _update(services, [request_body(request, SubscriptionGroupConfig)])


def update_and_create_subscription_group_list(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Create or replace many groups (5.x)."""
    return _update(services, request_body(request, SubscriptionGroupList).group_config_list)


def _update(services: Services, configs: Sequence[SubscriptionGroupConfig]) -> Response | Deferred:
    if not all(config.group_name for config in configs):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "groupName is missing")
    with refused_as(ResponseCode.SYSTEM_ERROR, "the group is not created: "):
        services.groups.update(*configs)
    return services.gate.when_done(Response(), written={services.groups.unwritten(config.group_name) for config in configs})


def get_all_subscription_group_config(services: Services, request: Request[NoHeader]) -> Response:
    """Return the whole table; 5.x's paging fields are ignored."""
    groups = services.groups
    body = {"dataVersion": groups.version(), "subscriptionGroupTable": groups.table.encoded()}
    return Response(body=encode_body(body))


def get_subscription_group_config(services: Services, request: Request[GroupRequestHeader]) -> Response:
    """Return a group's config for 5.x's tools and proxy. A missing group is created if allowed: the proxy asks first."""
    group = request.header.group
    remark = f"No group in this broker. group: {group}"
    found = existing(services.groups.find(group), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    return Response(body=encode_body(found))


def delete_subscription_group(
    services: Services, request: Request[DeleteSubscriptionGroupRequestHeader]
) -> Response | Deferred:
    """Delete a group; a missing group is a success, too. removeOffset (4.9) or cleanOffset (5.x) deletes its offsets."""
    header = request.header
    services.groups.delete(header.group_name)
    if header.remove_offset or header.clean_offset:
        services.offsets.delete_group(header.group_name)
        services.pops.orders.forget(group=header.group_name)
    return services.gate.when_done(Response(), written=(services.groups.unwritten(header.group_name),))


# --- connections ----------------------------------------------------------------------------------------------------


def _connections(clients: Iterable[ClientChannelInfo]) -> list[Connection]:
    return [Connection(c.client_id, c.channel.remote_address, c.language, c.version) for c in clients]


def get_consumer_connection_list(services: Services, request: Request[ConsumerGroupRequestHeader]) -> Response:
    """Return the clients of a group and their subscriptions; code 206 when no client is connected."""
    info = online_group(services, request.header.consumer_group)
    body = {
        "connectionSet": _connections(info.clients.values()),
        "consumeFromWhere": info.consume_from_where,
        "consumeType": info.consume_type,
        "messageModel": info.message_model,
        "subscriptionTable": info.subscriptions,
    }
    return Response(body=encode_body(body))


def online_group(services: Services, group: str) -> ConsumerGroupInfo:
    """Return a connected group. Raises RemotingError with code 206 when no client is connected."""
    remark = f"the consumer group[{group}] not online"
    return existing(services.clients.consumers.get(group), ResponseCode.CONSUMER_NOT_ONLINE, remark)


def get_producer_connection_list(services: Services, request: Request[ProducerGroupRequestHeader]) -> Response:
    """Return the clients of a producer group."""
    group = request.header.producer_group
    clients = services.clients.producer_clients(group)
    if not clients:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return Response(body=encode_body({"connectionSet": _connections(clients)}))


def get_all_producer_info(services: Services, request: Request[NoHeader]) -> Response:
    """Return all producers by group."""
    clock = services.clock
    # Heartbeat times are monotonic; tools expect calendar time.
    epoch_ms = clock.message_time_ms() - clock.monotonic() * 1000

    def row(client: ClientChannelInfo) -> dict[str, Any]:
        return {
            "clientId": client.client_id,
            "language": client.language,
            "lastUpdateTimestamp": int(epoch_ms + client.last_update_s * 1000),
            "remoteIP": f"/{client.channel.remote_address}",
            "version": client.version,
        }

    data = {group: [row(c) for c in services.clients.producer_clients(group)] for group in services.clients.producers}
    return Response(body=encode_body({"data": data}))


# --- consumer offsets -----------------------------------------------------------------------------------------------


@in_slices
def get_all_consumer_offset(services: Services, request: Request[NoHeader]) -> Work:
    """Return all consumer offsets for a slave; queue ids are unquoted keys, as Apache writes them."""
    version = services.version_for(RequestCode.GET_ALL_CONSUMER_OFFSET, request.version)
    encode, table, rows = msgspec.json.encode, services.offsets.table, list[bytes]()
    for key in list(table):
        if (queues := table.get(key)) is not None:
            rows.append(b"%b:{%b}" % (encode(key), b",".join([b"%d:%d" % row for row in queues.items()])))
            yield
    versioned = b"" if version is None else b'"dataVersion":%b,' % encode_body(version)
    return Response(body=b'{%b"offsetTable":{%b}}' % (versioned, b",".join(rows)))


@in_slices
def get_consume_stats(services: Services, request: Request[ConsumeStatsRequestHeader]) -> Work:
    """Return the progress of a group in one topic, or in all topics in which it has offsets."""
    group, topic = request.header.consumer_group, request.header.topic
    stats = yield from _consume_stats(services, group, [topic] if topic else services.offsets.topics_of(group))
    return Response(body=stats.document)


class _ConsumeStats(NamedTuple):
    """A group's progress: ConsumeStats as JSON, its lag in messages, and how many of these are in flight."""

    document: bytes
    behind: int
    in_flight: int


def _consume_stats(services: Services, group: str, topics: Iterable[str]) -> Generator[None, None, _ConsumeStats]:
    """Return the progress of `group` in `topics`, after a step for each queue."""
    tps, behind, in_flight = 0.0, 0, 0
    rows: list[bytes] = []
    for topic in topics:
        count = len(rows)
        for key, row in _consume_offsets(services, group, topic):
            rows.append(key + b":" + fastjson.dumps(row))
            behind += row["brokerOffset"] - row["consumerOffset"]
            in_flight += row["pullOffset"] - row["consumerOffset"]
            yield
        tps += services.stats.group_get_tps(group, topic) if len(rows) > count else 0.0
        yield
    document = fastjson.dumps({"consumeTps": tps, "offsetTable": fastjson.joined_map(rows)})
    return _ConsumeStats(document, behind, in_flight)


@in_slices
def get_broker_consume_stats(services: Services, request: Request[BrokerConsumeStatsRequestHeader]) -> Work:
    """Return the progress of every group, separately for each of its topics."""
    groups, size = list[dict[str, list[msgspec.Raw]]](), 0
    total_behind = total_in_flight = 0
    topics_of: dict[str, list[str]] = {}
    for key in list(services.offsets.table):
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        topics_of.setdefault(group, []).append(topic)
        yield
    for group in list(services.groups.table):
        documents = []
        for topic in topics_of.get(group, ()):
            config = services.topics.get(topic)
            if config is None or (request.header.is_order and not config.order):
                continue
            stats = yield from _consume_stats(services, group, [topic])
            documents.append(msgspec.Raw(stats.document))
            total_behind += stats.behind
            total_in_flight += stats.in_flight
            size += len(stats.document)
        groups.append({group: documents})
        if size > FRAME_SIZE_MAX:
            remark = f"the progress of all groups has more than {FRAME_SIZE_MAX} bytes: ask for one group"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        yield
    totals = {"totalDiff": total_behind, "totalInflightDiff": total_in_flight}
    return Response(body=fastjson.dumps({"brokerAddr": services.broker_address, "consumeStatsList": groups} | totals))


def _consume_offsets(services: Services, group: str, topic: str) -> Iterator[tuple[bytes, Any]]:
    """Yield a row per read queue; no rows for a missing topic, or one to which the connected group does not subscribe."""
    config = services.topics.get(topic)
    info = services.clients.consumers.get(group)
    if config is None or (info is not None and info.subscriptions and topic not in info.subscriptions):
        return
    store = services.store
    for queue_id in range(config.read_queue_nums):
        consumer_offset = max(services.offsets.query(group, topic, queue_id), 0)
        pull_offset = services.offsets.pull_offsets.get((group, topic, queue_id), 0)
        last_ms = store.store_timestamp_at(topic, queue_id, consumer_offset - 1) if consumer_offset else 0
        yield (
            fastjson.object_key(services.config.broker_name, queue_id, topic),
            {
                "brokerOffset": store.max_offset(topic, queue_id),
                "consumerOffset": consumer_offset,
                "lastTimestamp": max(last_ms, 0),
                "pullOffset": max(pull_offset, consumer_offset),
            },
        )


def query_topics_by_consumer(services: Services, request: Request[GroupRequestHeader]) -> Response:
    """Return the topics in which a group has offsets."""
    topics = sorted(services.offsets.topics_of(request.header.group))
    return Response(body=encode_body(TopicList(topics, services.broker_address)))


def query_subscription_by_consumer(services: Services, request: Request[TopicAndGroupRequestHeader]) -> Response:
    """Return a connected group's subscription to a topic, or null."""
    group, topic = request.header.group, request.header.topic
    found = services.clients.find_subscription(group, topic)
    return Response(body=encode_body({"group": group, "subscriptionData": found, "topic": topic}))


def clone_group_offset(services: Services, request: Request[CloneGroupOffsetRequestHeader]) -> Response:
    """Copy the offsets of one group to another. Success even if there is nothing to copy, as in Apache.

    Missing topics are skipped and, unless `offline`, topics to which the connected source group no longer subscribes.
    """
    header, clients, offsets = request.header, services.clients, services.offsets
    source = header.src_group
    for topic in [header.topic] if header.topic else offsets.topics_of(source):
        is_online = not header.offline and clients.consumers.get(source) is not None
        if services.topics.get(topic) is None or (is_online and clients.find_subscription(source, topic) is None):
            continue
        for queue_id, consumer_offset in offsets.queues(source, topic).items():
            offsets.commit(header.dest_group, topic, queue_id, consumer_offset)
    return Response()


@in_slices
def query_consume_time_span(services: Services, request: Request[TopicAndGroupRequestHeader]) -> Work:
    """Return the store times of the first, last and last consumed message of each queue."""
    topic, group = request.header.topic, request.header.group
    config = existing(services.topics.get(topic), ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    store, now_ms = services.store, services.clock.message_time_ms()
    spans = []
    for queue_id in range(config.write_queue_nums):
        consumer_offset = services.offsets.query(group, topic, queue_id)
        min_ms = store.earliest_store_timestamp(topic, queue_id)
        max_ms = store.store_timestamp_at(topic, queue_id, store.max_offset(topic, queue_id) - 1)
        consumed_ms = store.store_timestamp_at(topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else min_ms
        next_ms = store.store_timestamp_at(topic, queue_id, max(consumer_offset, 0))
        spans.append(
            {
                "consumeTimeStamp": consumed_ms,
                "consumeTimeStampStr": _time_text(consumed_ms),
                "delayTime": now_ms - next_ms if next_ms > 0 else 0,
                "maxTimeStamp": max_ms,
                "maxTimeStampStr": _time_text(max_ms),
                "messageQueue": MessageQueue(services.config.broker_name, queue_id, topic),
                "minTimeStamp": min_ms,
                "minTimeStampStr": _time_text(min_ms),
            }
        )
        yield
    return Response(body=encode_body({"consumeTimeSpanSet": spans}))


def _time_text(time_ms: int) -> str:
    """Format a time as Java's UtilAll.timeMillisToHumanString2, with its separators: `2026-11-21#03:00:38:598`.

    A time beyond Python's last year, which no valid record has, is shown as that year's first day.
    """
    shown_ms = min(max(time_ms, 0), LAST_YEAR_MS)
    return f"{datetime.fromtimestamp(shown_ms / 1000):%Y-%m-%d#%H:%M:%S}:{shown_ms % 1000:03d}"


ROUTES = routes(
    Route(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoHeader, update_and_create_subscription_group),
    Route(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, NoHeader, update_and_create_subscription_group_list),
    Route(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NoHeader, get_all_subscription_group_config),
    Route(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader, get_subscription_group_config),
    Route(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader, delete_subscription_group),
    Route(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader, get_consumer_connection_list),
    Route(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader, get_producer_connection_list),
    Route(RequestCode.GET_ALL_PRODUCER_INFO, NoHeader, get_all_producer_info),
    Route(RequestCode.GET_ALL_CONSUMER_OFFSET, NoHeader, get_all_consumer_offset),
    Route(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader, get_broker_consume_stats),
    Route(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader, get_consume_stats),
    Route(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupRequestHeader, query_topics_by_consumer),
    Route(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, TopicAndGroupRequestHeader, query_subscription_by_consumer),
    Route(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader, clone_group_offset),
    Route(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicAndGroupRequestHeader, query_consume_time_span),
)
