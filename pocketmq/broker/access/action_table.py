"""The action table of 5.x: which actions on which resources each request code needs with authorizationEnabled.

One of the actions of a code must be allowed on each of its resources. The topics and groups of a request are those of
`access_table`, so that messages are protected wherever they are stored. The actions are those of 5.5.0. Some codes show
whole tables or change something shared by all, and yet 5.5.0 requires no permission for them: here they need the same
action on the cluster as similar codes. A code in no table is open to Super users only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pocketmq.broker.access.access_table import RESOURCES, SIGNED_CODES
from pocketmq.broker.access.acl.access_rules import ADMIN
from pocketmq.broker.access.auth.policies import CLUSTER, CREATE, DELETE, GET, GROUP, PUB, SUB, TOPIC, UPDATE
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import (
    REQUEST_BODY_SIZE_MAX,
    CreateTopicListRequestBody,
    LockBatchBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    decode_body,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request

Resource = tuple[str, str]
"""Type and name."""
ResourcesOf = Callable[[Services, Request[Any]], Iterable[Resource]]

SUPER_ONLY: Final = ("Super", "")
"""Stands for a resource that only Super users may use: a system topic with messages of other topics."""


def _clusters(services: Services, request: Request[Any]) -> Iterable[Resource]:
    return ((CLUSTER, services.config.broker_cluster_name),)


def _nothing(services: Services, request: Request[Any]) -> Iterable[Resource]:
    return ()


def _created_topic(services: Services, request: Request[Any]) -> Iterable[Resource]:
    return ((TOPIC, request.header.topic),)


def _created_topics(services: Services, request: Request[Any]) -> Iterable[Resource]:
    body = decode_body(CreateTopicListRequestBody, request.body or b"{}", REQUEST_BODY_SIZE_MAX)
    return [(TOPIC, one.topic_name) for one in body.topic_config_list]


def _created_group(services: Services, request: Request[Any]) -> Iterable[Resource]:
    body = decode_body(SubscriptionGroupConfig, request.body or b"{}", REQUEST_BODY_SIZE_MAX)
    return ((GROUP, body.group_name),)


def _created_groups(services: Services, request: Request[Any]) -> Iterable[Resource]:
    body = decode_body(SubscriptionGroupList, request.body or b"{}", REQUEST_BODY_SIZE_MAX)
    return [(GROUP, one.group_name) for one in body.group_config_list]


def _deleted_group(services: Services, request: Request[Any]) -> Iterable[Resource]:
    return ((GROUP, request.header.group_name),)


def _locked(services: Services, request: Request[Any]) -> Iterator[Resource]:
    body = decode_body(LockBatchBody, request.body, REQUEST_BODY_SIZE_MAX)
    yield GROUP, body.consumer_group
    yield from {_resource(queue.topic): None for queue in body.mq_set}


def _resource(topic: str) -> Resource:
    """Return the resource of a topic; a retry topic belongs to its group."""
    if topic.startswith(RETRY_PREFIX):
        return GROUP, topic.removeprefix(RETRY_PREFIX)
    return TOPIC, topic


def _topics_and_groups(code: int) -> ResourcesOf:
    """Return the resources that `access_table` has for a code, as 5.x names them."""
    resources_of = RESOURCES[code]

    def found(services: Services, request: Request[Any]) -> Iterator[Resource]:
        for topic, needed in resources_of(services, request):
            yield SUPER_ONLY if needed == ADMIN else _resource(topic)

    return found


_ACTIONS: Final[dict[tuple[str, ...], tuple[RequestCode, ...]]] = {
    (PUB,): (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.RECALL_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.END_TRANSACTION,
    ),
    (SUB,): (
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
    ),
    (SUB, GET): (
        RequestCode.QUERY_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_ASSIGNMENT,
    ),
    (SUB, UPDATE): (RequestCode.UPDATE_CONSUMER_OFFSET,),
    (GET,): (
        RequestCode.POLLING_INFO, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPICS_BY_CONSUMER, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
    ),
    (UPDATE,): (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET, RequestCode.RESUME_CHECK_HALF_MESSAGE,
    ),
}  # fmt: skip
"""Actions -> codes whose topics and groups are those of `access_table`."""

_ON_THE_CLUSTER: Final = {
    UPDATE: (
        RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_DELETE_ACL,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.UPDATE_BROKER_CONFIG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.CANCEL_DELAYED,
        RequestCode.DELIVER_DELAYED_NOW, RequestCode.ADVANCE_CLOCK,
    ),
    GET: (
        RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER, RequestCode.AUTH_GET_ACL, RequestCode.AUTH_LIST_ACL,
        RequestCode.VIEW_BROKER_STATS_DATA, RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS, RequestCode.QUERY_DELAYED,
        RequestCode.COUNT_DELAYED,
    ),
}  # fmt: skip

NEEDED: Final[dict[int, tuple[tuple[str, ...], ResourcesOf]]] = {
    **{code: ((), _nothing) for code in SIGNED_CODES},
    **{code: (actions, _topics_and_groups(code)) for actions, codes in _ACTIONS.items() for code in codes},
    **{code: ((action,), _clusters) for action, codes in _ON_THE_CLUSTER.items() for code in codes},
    RequestCode.LOCK_BATCH_MQ: ((SUB,), _locked),
    RequestCode.UNLOCK_BATCH_MQ: ((SUB,), _locked),
    RequestCode.UPDATE_AND_CREATE_TOPIC: ((CREATE,), _created_topic),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ((CREATE,), _created_topics),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ((CREATE,), _created_group),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ((CREATE,), _created_groups),
    RequestCode.DELETE_TOPIC_IN_BROKER: ((DELETE,), _created_topic),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ((DELETE,), _deleted_group),
}
"""Request code -> actions, one of which is needed on each resource that the function returns."""
