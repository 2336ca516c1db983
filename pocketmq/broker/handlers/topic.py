"""Topics: creation, deletion, listing, and the offsets of their queues."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

import msgspec

from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.names import TRANS_OP_HALF_TOPIC
from pocketmq.broker.services import Services, in_slices
from pocketmq.broker.tables import attributes as attribute_rules
from pocketmq.broker.tables.row_limits import topic_problem
from pocketmq.broker.tables.topic_config import SYSTEM_TOPICS, topic_name_problem
from pocketmq.remoting import fastjson
from pocketmq.remoting.after_write import Work
from pocketmq.remoting.bodies import CreateTopicListRequestBody, TopicConfig, TopicList, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.handles.pop_handle import retry_topic_of
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from pocketmq.runtime.table_writer import Written

log = logging.getLogger("broker")


def update_and_create_topic(services: Services, request: Request[CreateTopicRequestHeader]) -> Response | Deferred:
    """Create or change a topic. The answer comes once every reachable name server has it in its routes."""
    header = request.header
    wanted = TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm,
        header.topic_filter_type,
        header.topic_sys_flag or 0,
    )
    services.topics.update(_admitted(services, wanted, header.attributes))
    return services.gate.when_done(Response(), header.topic)


def update_and_create_topic_list(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Create or change many topics (5.x): none of them if one is refused."""
    rows = request_body(request, CreateTopicListRequestBody).topic_config_list
    changes = [
        ",".join(f"{name}={value}" if value else name for name, value in (row.attributes or {}).items()) for row in rows
    ]
    admitted = [_admitted(services, row, change) for row, change in zip(rows, changes, strict=True)]
    services.topics.update(*admitted)
    return services.gate.when_done(Response(), *(config.topic_name for config in admitted))


def _admitted(services: Services, wanted: TopicConfig, attribute_changes: str | None) -> TopicConfig:
    """Check a requested topic and return the config to store. Raises RemotingError."""
    topic = wanted.topic_name
    _check_name(services, topic)
    if (problem := topic_problem(topic, wanted)) is not None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, problem)
    present = services.topics.get(topic)
    attributes = None if present is None else present.attributes
    if attribute_changes:
        with refused_as(ResponseCode.SYSTEM_ERROR, f"topic {topic}: "):
            changes = attribute_rules.split_changes(attribute_changes)
            attributes = attribute_rules.changed(attribute_rules.TOPIC, attributes or {}, changes)
    # The requested `order` is ignored: 4.9.4 takes it only from the name server's ORDER_TOPIC_CONFIG.
    return msgspec.structs.replace(wanted, order=present is not None and present.order, attributes=attributes)


def _check_name(services: Services, topic: str) -> None:
    """Raises RemotingError, in 4.9.4's words, for a name that users may not choose."""
    if services.topics.is_system_topic(topic):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, problem)


def delete_topic(services: Services, request: Request[TopicRequestHeader]) -> Response | Deferred:
    """Delete a topic with its queues and, as in 5.x, its consumer offsets; a missing topic is a success, too.

    Also as in 5.x, the retry topics of the groups that popped from it are deleted; their messages would be popped from a new
    topic of that name.
    First topics.json is written without the topic, then its queues are deleted, so that no topic in the file lacks its
    messages. Until then the topic cannot be created again. Queues of other topics stay, even of topics not in the table.
    """
    topic = request.header.topic
    _check_name(services, topic)
    popped = {
        retry_topic_of(topic, group, with_v2=v2) for group in services.offsets.groups_of(topic) for v2 in (False, True)
    }
    deleted = [topic, *sorted(name for name in popped - {topic} if name in services.topics.table)]
    return services.gate.when_done(Response(), topic, written=tuple(_delete(services, name) for name in deleted))


def _delete(services: Services, topic: str) -> Written:
    """Delete one topic. Return a future that is done when its queues are deleted."""
    topics = services.topics
    topics.delete(topic)
    services.holds.wake_all(topic)
    services.pops.wake_all(topic)
    dropped = topics.leaving.get(topic)
    if dropped is None:
        dropped = topics.leaving[topic] = asyncio.get_running_loop().create_future()
        dropped.add_done_callback(lambda _: topics.leaving.pop(topic))
        written = topics.unwritten(topic)
        if written is None:
            _mark_dropped(services, topic, dropped)
        else:
            written.add_done_callback(lambda done: _forgotten(services, topic, dropped, done.result()))
    return dropped


def _forgotten(services: Services, topic: str, dropped: Written, error: Exception | None) -> None:
    if error is None:
        _mark_dropped(services, topic, dropped)
    else:
        dropped.set_result(error)


def _mark_dropped(services: Services, topic: str, dropped: Written) -> None:
    """Write a mark to disk that the topic's present records are dropped, then delete its queues."""
    mark = partial(services.store.mark_dropped, {topic}, services.store.max_physical_offset)
    assert services.topics.writer is not None
    drop = partial(_drop, services, topic, dropped)
    services.topics.writer.run(mark).add_done_callback(lambda _: services.slices.start(drop()))


def _drop(services: Services, topic: str, dropped: Written) -> Iterator[None]:
    """Delete the queues of a topic, one a step. The result of `dropped` is the error, if any."""
    try:
        yield from services.store.dropping(topic)
    except OSError as error:
        log.error("the queues of topic %s cannot be deleted: %s", topic, error)
        dropped.set_result(error)
        return
    _forget(services, topic)
    if services.config.auto_delete_unused_stats:
        services.stats.forget_topic(topic)
    dropped.set_result(None)


def _forget(services: Services, topic: str) -> None:
    """Forget what refers to queue offsets of a deleted topic."""
    services.offsets.delete_topic(topic)
    services.pops.orders.forget(topic)


def clean_unused_topic(services: Services, request: Request[NoHeader]) -> Response:
    """Delete the queues of all topics that are not in the topic table."""
    # System topics are kept: another version of the broker may use some that are in no table here.
    system = {topic for topic, _ in services.store.queues.queues if services.topics.is_system_topic(topic)}
    kept = set(services.topics.table) | {TRANS_OP_HALF_TOPIC} | system | set(services.topics.leaving)
    for topic in services.store.drop_topics(kept):
        _forget(services, topic)
    return Response()


def get_all_topic_config(services: Services, request: Request[NoHeader]) -> Response:
    """Return the whole table; 5.x's paging fields are ignored, and its clients take the answer for the only page."""
    topics = services.topics
    return Response(body=encode_body({"dataVersion": topics.version(), "topicConfigTable": topics.table.encoded()}))


def get_topic_config(services: Services, request: Request[TopicRequestHeader]) -> Response:
    """Return a topic's config for 5.x tools, which fail if `attributes` is missing."""
    topic = request.header.topic
    remark = f"No topic in this broker. topic: {topic}"
    found = existing(services.topics.get(topic), ResponseCode.TOPIC_NOT_EXIST, remark)
    return Response(body=encode_body({"attributes": {}} | services.topics.table.plain((found, None))))


@in_slices
def get_topic_stats_info(services: Services, request: Request[TopicRequestHeader]) -> Work:
    """Return one entry per write queue, even if empty: the client takes an empty table for an error."""
    topic = request.header.topic
    config = existing(services.topics.get(topic), ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    store, broker_name = services.store, services.config.broker_name
    rows: list[bytes] = []
    for queue_id in range(config.write_queue_nums):
        max_offset = store.max_offset(topic, queue_id)
        row = {
            "lastUpdateTimestamp": max(store.store_timestamp_at(topic, queue_id, max_offset - 1), 0),
            "maxOffset": max_offset,
            "minOffset": max(store.min_offset(topic, queue_id), 0),
        }
        rows.append(fastjson.object_key(broker_name, queue_id, topic) + b":" + fastjson.dumps(row))
        yield
    return Response(body=fastjson.dumps({"offsetTable": fastjson.joined_map(rows)}))


def query_topic_consume_by_who(services: Services, request: Request[TopicRequestHeader]) -> Response:
    """Return the connected groups that subscribe to a topic, and the groups with offsets in it."""
    topic = request.header.topic
    groups = services.clients.groups_of_topic(topic) | set(services.offsets.groups_of(topic))
    return Response(body=encode_body({"groupList": sorted(groups)}))


def get_system_topic_list(services: Services, request: Request[NoHeader]) -> Response:
    """Return the topics that users may neither create nor delete."""
    return Response(body=encode_body(TopicList(sorted(SYSTEM_TOPICS | services.topics.system_topics))))


ROUTES = routes(
    Route(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, update_and_create_topic),
    Route(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, NoHeader, update_and_create_topic_list),
    Route(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader, delete_topic),
    Route(RequestCode.CLEAN_UNUSED_TOPIC, NoHeader, clean_unused_topic),
    Route(RequestCode.GET_ALL_TOPIC_CONFIG, NoHeader, get_all_topic_config),
    Route(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader, get_topic_config),
    Route(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader, get_topic_stats_info),
    Route(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader, query_topic_consume_by_who),
    Route(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, NoHeader, get_system_topic_list),
)
