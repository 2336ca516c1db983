"""The action table of 5.x: which actions on which resources each request code needs with authorizationEnabled.

One of the actions of a code must be allowed on each of its resources. The actions, and the topics and groups of a request,
are those of `access_table`, so that messages are protected wherever they are stored; a code that needs an admin there is
about the cluster. A code without actions there is open to Super users only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.broker.access.access_table import ACTIONS, RESOURCES, SIGNED_CODES
from pocketmq.broker.access.acl.access_rules import ADMIN
from pocketmq.broker.access.auth.policies import CLUSTER, GROUP, TOPIC
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
B = TypeVar("B", bound=msgspec.Struct)
ResourcesOf = Callable[[Services, Request[Any]], Iterable[Resource]]

SUPER_ONLY: Final = ("Super", "")
"""Stands for a resource that only Super users may use: a system topic with messages of other topics."""


def _body(request: Request[Any], kind: type[B]) -> B:
    return decode_body(kind, request.body or b"{}", REQUEST_BODY_SIZE_MAX)


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


_OWN_RESOURCES: Final[dict[int, ResourcesOf]] = {
    RequestCode.LOCK_BATCH_MQ: _locked,
    RequestCode.UNLOCK_BATCH_MQ: _locked,
    RequestCode.UPDATE_AND_CREATE_TOPIC: lambda _, request: ((TOPIC, request.header.topic),),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda _, request: [
        (TOPIC, one.topic_name) for one in _body(request, CreateTopicListRequestBody).topic_config_list
    ],
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda _, request: (
        (GROUP, _body(request, SubscriptionGroupConfig).group_name),
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda _, request: [
        (GROUP, one.group_name) for one in _body(request, SubscriptionGroupList).group_config_list
    ],
    RequestCode.DELETE_TOPIC_IN_BROKER: lambda _, request: ((TOPIC, request.header.topic),),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: lambda _, request: ((GROUP, request.header.group_name),),
    **dict.fromkeys(SIGNED_CODES, lambda *_: ()),
}


def _resources_of(code: int) -> ResourcesOf:
    """Return the function for a code: that of `access_table`, if it has one, else the whole cluster."""
    if code in _OWN_RESOURCES:
        return _OWN_RESOURCES[code]
    if code in RESOURCES:
        return _topics_and_groups(code)
    return lambda services, _: ((CLUSTER, services.config.broker_cluster_name),)


NEEDED: Final = {code: (actions, _resources_of(code)) for code, actions in ACTIONS.items()}
"""Request code -> actions, one of which is needed on each resource that the function returns."""
