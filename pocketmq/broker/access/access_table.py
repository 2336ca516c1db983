"""The permission table: what each request code needs, by the rules of 4.9 (`aclEnable`) and of 5.x (`authorizationEnabled`).

Each routed code is in one of three parts: `SIGNED_CODES` need only a valid signature, `_ADMIN_ACTIONS` an admin; `_RULES`
has the function that returns the topics and groups that a request uses, with 4.9's permission for each, and the actions of
5.x. A code in none of them needs an admin, so that a new code is closed until it is added here; a test checks the table
against the routes.

4.9.4 checks permissions for few codes, else only the signature. This broker checks more: requests that show or
copy messages need SUB on the topic that the messages are for, wherever they are stored; requests that show or change the
state of a group need SUB on it; requests that show whole tables or change something shared by all need an admin. The actions
are those of 5.5.0. For some of the codes that need an admin 5.5.0 requires no permission: here they need the same action as
similar codes.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.broker.access.acl.access_rules import ADMIN, PUB, SUB, Resources
from pocketmq.broker.access.auth import policies
from pocketmq.broker.names import (
    DLQ_PREFIX,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import REQUEST_BODY_SIZE_MAX, HeartbeatData, LockBatchBody, decode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request
from pocketmq.remoting.handles.pop_handle import normal_topic_of
from pocketmq.remoting.pop_bodies import BatchAckMessageRequestBody, QueryAssignmentRequestBody
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.multi_dispatch import INNER_MULTI_DISPATCH, LMQ_PREFIX
from pocketmq.store.format.properties import REAL_TOPIC, decode_properties, mark_of, text_of, value_of
from pocketmq.store.format.record import bounds, entries_of

B = TypeVar("B", bound=msgspec.Struct)

SIGNED_CODES: Final = frozenset(
    {
        RequestCode.CHECK_CLIENT_CONFIG,  # returns only whether an expression is valid
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,  # the same names on each broker
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,  # names and versions of the ACL files
        RequestCode.READ_CLOCK,
    }
)
"""Codes open to every account."""

_ADMIN_ACTIONS: Final[dict[str | None, tuple[RequestCode, ...]]] = {
    policies.CREATE: (
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    ),
    policies.DELETE: (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP),
    policies.UPDATE: (
        RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_DELETE_ACL,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.UPDATE_BROKER_CONFIG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.CANCEL_DELAYED,
        RequestCode.DELIVER_DELAYED_NOW, RequestCode.ADVANCE_CLOCK,
    ),
    policies.GET: (
        RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER, RequestCode.AUTH_GET_ACL, RequestCode.AUTH_LIST_ACL,
        RequestCode.VIEW_BROKER_STATS_DATA, RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS, RequestCode.QUERY_DELAYED,
        RequestCode.COUNT_DELAYED,
    ),
    None: (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    ),
}  # fmt: skip
"""Action of 5.x -> codes that 4.9's rules open to admins only. Without an action: 4.9's files, for Super users only."""

ADMIN_CODES: Final = frozenset(code for codes in _ADMIN_ACTIONS.values() for code in codes)
"""Codes open to admins only."""

# --- topics and groups ----------------------------------------------------------------------------------------------

_WAITING_TOPICS: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC))
_OTHERS_MESSAGES: Final = _WAITING_TOPICS | {TRANS_OP_HALF_TOPIC, OFFSET_MOVED_EVENT}
"""System topics that hold messages of other topics, or refer to them."""
_RETRY_TOPIC_SIZE_MAX: Final = 1024
"""A longer name cannot be a retry topic: a topic and a group have at most 255 characters each."""
_REAL_TOPIC_MARK: Final = mark_of(REAL_TOPIC)


def _holds_others_messages(services: Services, topic: str) -> bool:
    if topic in _OTHERS_MESSAGES or topic.startswith(SYSTEM_PREFIX):
        return True
    return topic.endswith(REPLY_TOPIC_SUFFIX) and topic in services.topics.system_topics


def _topic(services: Services, topic: str, needed: int = SUB) -> Resources:
    """Return the permissions for a topic; a system topic that holds messages of other topics needs an admin.

    A dead-letter topic also needs the permission for its group. `%RETRY%group_topic` is a retry topic of pops, or of a group
    whose name has that form: if both group and topic exist, the permission for the topic is needed as well.
    """
    if _holds_others_messages(services, topic):
        yield topic, ADMIN
        return
    yield topic, needed
    if topic.startswith(DLQ_PREFIX):
        yield RETRY_PREFIX + topic.removeprefix(DLQ_PREFIX), SUB
    elif topic.startswith(RETRY_PREFIX) and len(topic) <= _RETRY_TOPIC_SIZE_MAX:
        name = topic.removeprefix(RETRY_PREFIX)
        for end in (at for at, character in enumerate(name) if character in "_+" and at):
            if name[:end] in services.groups.table and name[end + 1 :] in services.topics.table:
                yield from _topic(services, name[end + 1 :], needed)


def _group(group: str | None) -> Resources:
    return () if group is None else ((RETRY_PREFIX + group, SUB),)


def _of_message(services: Services, physical_offset: int, needed: int, group: str = "") -> Resources:
    """Return the permission for a message's real topic, also while it is stored in another topic.

    Without a message at that offset no permission is needed: the handler then answers with an error.
    """
    record = services.store.message_at(physical_offset)
    if record is None:
        return ()
    _, _, start, size = bounds(record, 0)
    topic = str(record[start : start + size], "utf-8", "replace")
    real = value_of(entries_of(record, 0), _REAL_TOPIC_MARK) if topic in _WAITING_TOPICS else None
    return _topic(services, normal_topic_of(topic, group) if real is None else text_of(real), needed)


def _of_message_id(services: Services, message_id: str | None, needed: int, group: str = "") -> Resources:
    try:
        _, physical_offset = decode_message_id(message_id or "")
    except ValueError:
        return ()
    return _of_message(services, physical_offset, needed, group)


# --- resources of a request -----------------------------------------------------------------------------------------


def _send(services: Services, request: Request[Any]) -> Resources:
    header = request.header
    yield from _written_topic(header.topic, header.producer_group)
    if header.properties and INNER_MULTI_DISPATCH in header.properties and services.store.config.enable_multi_dispatch:
        names = decode_properties(header.properties).get(INNER_MULTI_DISPATCH, "")
        for name in names.split(","):
            if name and not name.startswith(LMQ_PREFIX):
                yield from _written_topic(name, header.producer_group)
    if header.batch and INNER_MULTI_DISPATCH.encode() in request.body and services.store.config.enable_multi_dispatch:
        yield header.topic, ADMIN  # the queues of a batch are named inside the body


def _written_topic(topic: str, producer_group: str) -> Resources:
    if topic.startswith(RETRY_PREFIX):
        return (*_group(producer_group), (topic, SUB))
    return ((topic, PUB),)


def _reply(services: Services, request: Request[Any]) -> Resources:
    """Every account may send replies to the reply topic, as in Apache."""
    topic = request.header.topic
    return () if topic.endswith(REPLY_TOPIC_SUFFIX) else ((topic, PUB),)


def _send_back(services: Services, request: Request[Any]) -> Resources:
    group = request.header.group
    yield from _group(group)
    yield from _of_message(services, request.header.physical_offset, SUB, group)


def _body(request: Request[Any], kind: type[B]) -> B:
    return decode_body(kind, request.body, REQUEST_BODY_SIZE_MAX)


def _of_consumer_group(services: Services, request: Request[Any]) -> Resources:
    return _group(request.header.consumer_group)


def _of_topic_and_consumer_group(services: Services, request: Request[Any]) -> Resources:
    yield from _topic(services, request.header.topic)
    yield from _group(request.header.consumer_group)


def _of_queue(services: Services, request: Request[Any]) -> Resources:
    """Return the queue's topic, and the group if the request names one."""
    yield from _topic(services, request.header.topic)
    yield from _group(request.header.consumer_group or None)


def _of_progress(services: Services, request: Request[Any]) -> Resources:
    """Return the group, and the topic if the request names one; otherwise the request is for all topics of the group."""
    if request.header.topic:
        yield from _topic(services, request.header.topic)
    yield from _group(request.header.consumer_group)


def _of_topic_and_group(services: Services, request: Request[Any]) -> Resources:
    yield from _topic(services, request.header.topic)
    yield from _group(request.header.group)


def _clone(services: Services, request: Request[Any]) -> Resources:
    header = request.header
    if header.topic:
        yield header.topic, SUB
    yield from _group(header.src_group)
    yield from _group(header.dest_group)


def _heart_beat(services: Services, request: Request[Any]) -> Resources:
    resources: list[tuple[str, int]] = []
    for consumer in _body(request, HeartbeatData).consumer_data_set:
        resources += _group(consumer.group_name)
        resources += [(subscription.topic, SUB) for subscription in consumer.subscription_data_set]
    return resources


def _of_popped(services: Services, request: Request[Any]) -> Resources:
    """Return the group and the normal topic of a message, which may be popped from the retry topic `%RETRY%group_topic`."""
    topic, group = request.header.topic, request.header.consumer_group
    yield from _topic(services, normal_topic_of(topic, group))
    yield from _group(group)


def _of_assignment(services: Services, request: Request[Any]) -> Resources:
    asked = _body(request, QueryAssignmentRequestBody)
    yield from _topic(services, asked.topic)
    yield from _group(asked.consumer_group)


def _batch_ack(services: Services, request: Request[Any]) -> Iterator[tuple[str, int]]:
    for ack in _body(request, BatchAckMessageRequestBody).acks:
        yield from _topic(services, ack.t)
        yield from _group(ack.c)


def _consume_directly(services: Services, request: Request[Any]) -> Resources:
    group = request.header.consumer_group
    yield from _group(group)
    yield from _of_message_id(services, request.header.msg_id, SUB, group)


ResourcesOf = Callable[[Services, Request[Any]], Resources]

_PUB, _SUB, _GET, _UPDATE = (policies.PUB,), (policies.SUB,), (policies.GET,), (policies.UPDATE,)
_RULES: Final[tuple[tuple[ResourcesOf, tuple[str, ...], tuple[RequestCode, ...]], ...]] = (
    # Writing:
    (_send, _PUB, (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)),
    (_reply, _PUB, (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)),
    (lambda services, request: ((request.header.topic, PUB),), _PUB, (RequestCode.RECALL_MESSAGE,)),
    (lambda services, request: _of_message(services, request.header.commit_log_offset, PUB), _PUB, (
        RequestCode.END_TRANSACTION,
    )),
    (lambda services, request: _of_message_id(services, request.header.msg_id, PUB), _UPDATE, (
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
    )),
    # Reading and copying messages:
    (_of_topic_and_consumer_group, _SUB, (
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
    )),
    (_of_topic_and_consumer_group, _GET, (RequestCode.POLLING_INFO,)),
    (lambda services, request: _topic(services, request.header.topic), _SUB + _GET, (RequestCode.QUERY_MESSAGE,)),
    (lambda services, request: _of_message(services, request.header.physical_offset, SUB), _GET, (
        RequestCode.VIEW_MESSAGE_BY_ID,
    )),
    (_send_back, _SUB, (RequestCode.CONSUMER_SEND_MSG_BACK,)),
    (_consume_directly, _SUB, (RequestCode.CONSUME_MESSAGE_DIRECTLY,)),
    (_of_queue, _GET, (RequestCode.QUERY_CONSUME_QUEUE,)),
    # Requests of a consumer for its group:
    (_heart_beat, _SUB, (RequestCode.HEART_BEAT,)),
    (_of_consumer_group, _SUB, (RequestCode.UNREGISTER_CLIENT,)),
    (_of_consumer_group, _SUB + _GET, (RequestCode.GET_CONSUMER_LIST_BY_GROUP,)),
    (lambda services, request: _group(_body(request, LockBatchBody).consumer_group), _SUB, (
        RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
    )),
    (_of_assignment, _SUB + _GET, (RequestCode.QUERY_ASSIGNMENT,)),
    (_of_topic_and_consumer_group, _SUB + _GET, (RequestCode.QUERY_CONSUMER_OFFSET,)),
    (_of_topic_and_consumer_group, _SUB + _UPDATE, (RequestCode.UPDATE_CONSUMER_OFFSET,)),
    (_of_popped, _SUB, (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)),
    (_batch_ack, _SUB, (RequestCode.BATCH_ACK_MESSAGE,)),
    # Offsets and queue counts of topics:
    (lambda services, request: _topic(services, request.header.topic, PUB | SUB), _GET, (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    )),
    # Groups, for tools:
    (_of_topic_and_group, _UPDATE, (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,)),
    (_clone, _UPDATE, (RequestCode.CLONE_GROUP_OFFSET,)),
    (lambda services, request: _group(request.header.group), _GET, (
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, RequestCode.QUERY_TOPICS_BY_CONSUMER,
    )),
    (_of_consumer_group, _GET, (RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUMER_RUNNING_INFO)),
    (_of_progress, _GET, (RequestCode.GET_CONSUME_STATS,)),
    (_of_topic_and_group, _GET, (
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
    )),
)  # fmt: skip

RESOURCES: Final[dict[int, ResourcesOf]] = {code: resources_of for resources_of, _, codes in _RULES for code in codes}
"""Request code -> function that returns the topics and groups of a request with the permission needed for each."""
ACTIONS: Final[dict[int, tuple[str, ...]]] = {
    **{code: () for code in SIGNED_CODES},
    **{code: actions for _, actions, codes in _RULES for code in codes},
    **{code: (action,) for action, codes in _ADMIN_ACTIONS.items() if action is not None for code in codes},
}
"""Request code -> actions of 5.x, one of which is needed on each resource."""


def needs_admin(code: int) -> bool:
    """Whether `code` is open to admins only, as is a code missing in the table."""
    return code in ADMIN_CODES or not (code in SIGNED_CODES or code in RESOURCES)
