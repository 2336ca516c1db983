"""5.x's users and ACLs: request codes 3001 to 3010.

They are served with authenticationEnabled only: without it the sender of a request is unknown, and anybody could create a
user that is valid once it is enabled. A change is answered once it is on disk.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pocketmq.broker.access.auth.policies import CUSTOM, DEFAULT, AuthError, checked_policies, checked_resource, one_of
from pocketmq.broker.access.auth.users import SUBJECT_PREFIX, SUPER, User, user_of_subject
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import AclInfo, UserInfo, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from pocketmq.remoting.signature import ACCESS_KEY
from pocketmq.runtime.peer_text import clipped

if TYPE_CHECKING:
    from pocketmq.broker.access.auth.users import AuthUsers

log = logging.getLogger("broker")

# --- users ----------------------------------------------------------------------------------------------------------


def create_user(services: Services, request: Request[UserRequestHeader]) -> Response | Deferred:
    """Create a user; only a Super user may create a Super user."""
    info = _user_info(request)
    if _means_super(info):
        _need_super(services, request)
    return _change(services, request, _username(request), lambda users: users.create(info))


def update_user(services: Services, request: Request[UserRequestHeader]) -> Response | Deferred:
    """Change a user; only a Super user may change a Super user, or turn a user into one."""
    info, name = _user_info(request), _username(request)
    if _means_super(info) or _users(services).is_super(name):
        _need_super(services, request)
    return _change(services, request, name, lambda users: users.update(info))


def delete_user(services: Services, request: Request[UserRequestHeader]) -> Response | Deferred:
    """Delete a user with its ACL; only a Super user may delete a Super user."""
    name = _username(request)
    if _users(services).is_super(name):
        _need_super(services, request)
    return _change(services, request, name, lambda users: users.delete(name))


def get_user(services: Services, request: Request[UserRequestHeader]) -> Response:
    """Return a user; a body only if it exists."""
    name, users = _username(request), _users(services)
    row = users.table.get(name)
    if row is None:
        return Response()
    return Response(body=encode_body(_shown(name, row, _is_super(services, request))))


def list_users(services: Services, request: Request[ListUsersRequestHeader]) -> Response:
    """Return the users whose names contain the filter; a body only if there are any."""
    is_super = _is_super(services, request)
    found = [_shown(name, row, is_super) for name, row in _users(services).named_like(request.header.filter)]
    return Response(body=encode_body(found)) if found else Response()


def _shown(name: str, row: User, for_super: bool) -> UserInfo:
    """Return a user in the form used in answers, as in Apache with its password; a Super user's only for Super users."""
    password = row.password if for_super or not row.is_super else None
    return UserInfo(name, password, row.user_type, row.user_status)


def _username(request: Request[UserRequestHeader]) -> str:
    name = request.header.username
    if name is None or not name.strip():
        raise RemotingError(ResponseCode.INVALID_PARAMETER, "username is empty: expected a name")
    return name


def _user_info(request: Request[UserRequestHeader]) -> UserInfo:
    info = request_body(request, UserInfo)
    info.username = _username(request)
    return info


def _means_super(info: UserInfo) -> bool:
    return (info.user_type or "").lower() == SUPER.lower()


def _is_super(services: Services, request: Request[Any]) -> bool:
    """Whether a Super user sent the request. These codes are never served unsigned, so the access key is authentic."""
    return _users(services).is_super(request.ext().get(ACCESS_KEY))


def _need_super(services: Services, request: Request[Any]) -> None:
    if not _is_super(services, request):
        raise RemotingError(ResponseCode.NO_PERMISSION, "only a Super user may create, change or delete a Super user")


# --- ACLs -----------------------------------------------------------------------------------------------------------


def create_acl(services: Services, request: Request[AclRequestHeader]) -> Response | Deferred:
    """Add entries to a user's policies, in place of those for the same resources. Also AUTH_UPDATE_ACL, as in Apache."""
    body = request_body(request, AclInfo)
    if body.subject and request.header.subject and body.subject != request.header.subject:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, "subject differs between header and body")
    name = _subject(services, body.subject or request.header.subject)
    return _change(services, request, name, lambda users: users.set_policies(name, checked_policies(body.policies)))


def delete_acl(services: Services, request: Request[DeleteAclRequestHeader]) -> Response | Deferred:
    """Delete a resource's entry in a user's policy, or all of its policies."""
    header = request.header
    name = _subject(services, header.subject)

    def delete(users: "AuthUsers") -> None:
        kind = one_of("policyType", header.policy_type, (CUSTOM, DEFAULT)) if header.policy_type else CUSTOM
        users.delete_policies(name, kind, checked_resource(header.resource) if header.resource else None)

    return _change(services, request, name, delete)


def get_acl(services: Services, request: Request[AclRequestHeader]) -> Response:
    """Return a user's policies; a body only if there are any."""
    name = _subject(services, request.header.subject)
    with refused_as(ResponseCode.NO_PERMISSION):
        policies = _users(services).policies(name)
    if not policies:
        return Response()
    return Response(body=encode_body(AclInfo(SUBJECT_PREFIX + name, [policy.info() for policy in policies])))


def list_acls(services: Services, request: Request[ListAclsRequestHeader]) -> Response:
    """Return the policies of all users that the filters select; a body only if there are any."""
    header = request.header
    found = [
        AclInfo(subject, [policy.info() for policy in policies])
        for subject, policies in _users(services).acls(header.subject_filter, header.resource_filter)
    ]
    return Response(body=encode_body(found)) if found else Response()


def _subject(services: Services, subject: str | None) -> str:
    """Return the name of the user that a subject names."""
    _users(services)
    with refused_as(ResponseCode.NO_PERMISSION):
        return user_of_subject(subject)


# --------------------------------------------------------------------------------------------------------------------


def _users(services: Services) -> "AuthUsers":
    return existing(services.users, ResponseCode.SYSTEM_ERROR, "there are no users: authenticationEnabled=false")


def _change(
    services: Services, request: Request[Any], name: str, change: "Callable[[AuthUsers], None]"
) -> Response | Deferred:
    """Make a change of a user, or of its policies."""
    users = _users(services)
    with refused_as(ResponseCode.NO_PERMISSION, kind=AuthError):
        change(users)
    peer = request.channel.remote_address
    log.info("user %s changed by %s from %s: code %d", clipped(name), request.ext().get(ACCESS_KEY), peer, request.code)
    return services.gate.when_done(Response(), written=(users.unwritten(name),))


ROUTES = routes(
    Route(RequestCode.AUTH_CREATE_USER, UserRequestHeader, create_user),
    Route(RequestCode.AUTH_UPDATE_USER, UserRequestHeader, update_user),
    Route(RequestCode.AUTH_DELETE_USER, UserRequestHeader, delete_user),
    Route(RequestCode.AUTH_GET_USER, UserRequestHeader, get_user),
    Route(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader, list_users),
    Route(RequestCode.AUTH_CREATE_ACL, AclRequestHeader, create_acl),
    Route(RequestCode.AUTH_UPDATE_ACL, AclRequestHeader, create_acl),
    Route(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader, delete_acl),
    Route(RequestCode.AUTH_GET_ACL, AclRequestHeader, get_acl),
    Route(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader, list_acls),
)
