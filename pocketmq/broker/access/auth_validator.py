"""AuthValidator: 5.x's check. The request must be signed by a user, and the user's policies must allow what it does.

With authorizationEnabled, one of the actions of a request code must be allowed on each of its resources (`NEEDED`). The
actions, and the topics and groups of a request, are those of `access_table`, so that messages are protected wherever they
are stored; a code that needs an admin there is about the cluster. A code without actions there is open to Super users only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.broker.access.access_table import ACTIONS, RESOURCES, SIGNED_CODES
from pocketmq.broker.access.access_validator import AccessValidator, Check
from pocketmq.broker.access.acl.access_rules import ADMIN
from pocketmq.broker.access.auth.policies import ALLOW, CLUSTER, GROUP, TOPIC
from pocketmq.broker.access.auth.users import ENABLE, Account, AuthUsers
from pocketmq.broker.config import BrokerConfig, whitelisted_codes
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
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request
from pocketmq.remoting.signature import ACCESS_KEY

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


class AuthValidator(AccessValidator):
    """Checks requests against users and their policies."""

    REFUSAL_CODE = ResponseCode.NO_PERMISSION

    def __init__(self, users: AuthUsers, config: BrokerConfig) -> None:
        super().__init__()
        self._users = users
        self._unsigned = whitelisted_codes("authenticationWhitelist", config.authentication_whitelist)
        self._unchecked = whitelisted_codes("authorizationWhitelist", config.authorization_whitelist)
        self._is_authorizing = config.authorization_enabled

    def check(self, code: int) -> Check:
        is_authorized = self._is_authorizing and code not in self._unchecked
        # Authorization needs a signature, because nothing else proves who the user is.
        is_signed = is_authorized or code not in self._unsigned
        actions, resources_of = NEEDED.get(code, ((), lambda *_: (SUPER_ONLY,)))

        def check(services: Services, request: Request[Any]) -> None:
            if not is_signed:
                return
            name, account = self._account(request)
            if is_authorized and not account.row.is_super:
                self._authorize(name, account, services, request, actions, resources_of)

        return check

    def _account(self, request: Request[Any]) -> tuple[str, Account]:
        """Return the user that signed a request. Raises RemotingError without a valid signature."""
        host, ext = request.channel.remote_host, request.ext()
        name = ext.get(ACCESS_KEY)
        if not name:
            self.refuse(host, "the request has no AccessKey: it must be signed by a user")
        account = self._users.account(name)
        if account is None:
            self.refuse(host, f"User:{name} does not exist")
        if account.row.user_status != ENABLE:
            self.refuse(host, f"User:{name} is disabled")
        if not account.signer.is_signed(ext, request.body):
            self.refuse(host, f"the signature is not that of User:{name}")
        return name, account

    def _authorize(
        self, name: str, account: Account, services: Services, request: Request[Any], actions: tuple[str, ...],
        resources_of: ResourcesOf,
    ) -> None:  # fmt: skip
        """Raises RemotingError for a resource on which the user's policies allow none of the actions."""
        host, rules = request.channel.remote_host, account.rules
        try:
            for resource in resources_of(services, request):
                if resource == SUPER_ONLY:
                    self.refuse(
                        host, f"User:{name} has no permission for request code {request.code}: it needs a Super user"
                    )
                decision = rules.decision(*resource, actions, host)
                if decision != ALLOW:
                    why = "no policy allows" if decision is None else "a policy denies"
                    what = " or ".join(actions)
                    shown = ":".join(resource)
                    self.refuse(host, f"User:{name} has no permission to access {shown} from {host}: {why} {what}")
        except ValueError as error:
            self.refuse(host, f"body of request code {request.code}: {error}")
