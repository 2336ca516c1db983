"""Queries and changes of the access rules: request codes 50 to 54."""

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pocketmq.broker.access.acl.access_rules import is_admin, text_of
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import RemotingError, Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

if TYPE_CHECKING:
    from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager

log = logging.getLogger("broker")

_COMMA_OR_BRACE = re.compile("[,{}]")


def update_and_create_acl_config(services: Services, request: Request[CreateAccessConfigRequestHeader]) -> Response:
    """Create an account, or change the fields that the header has; `admin` is always set."""
    header = request.header
    fields: dict[str, Any] = {
        "accessKey": header.access_key,
        "secretKey": header.secret_key,
        "whiteRemoteAddress": header.white_remote_address,
        "admin": header.admin,
        "defaultTopicPerm": header.default_topic_perm or None,
        "defaultGroupPerm": header.default_group_perm or None,
        "topicPerms": header.topic_perms.split(",") if header.topic_perms else None,
        "groupPerms": header.group_perms.split(",") if header.group_perms else None,
    }
    config = {name: value for name, value in fields.items() if value is not None}
    failure = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    return _change(services, request, failure, lambda manager: manager.update_account(config))


def delete_acl_config(services: Services, request: Request[DeleteAccessConfigRequestHeader]) -> Response:
    """Delete an account."""
    access_key = request.header.access_key
    failure = ResponseCode.DELETE_ACL_CONFIG_FAILED
    return _change(services, request, failure, lambda manager: manager.delete_account(access_key))


def update_global_white_addrs_config(
    services: Services, request: Request[UpdateGlobalWhiteAddrsConfigRequestHeader]
) -> Response:
    """Replace the global white list of a file."""
    header, failure = request.header, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    if not header.global_white_addrs:
        raise RemotingError(failure, "globalWhiteAddrs is empty; to delete the list, edit the file")
    addresses = _split_outside_braces(header.global_white_addrs)
    path = header.acl_file_full_path
    return _change(services, request, failure, lambda manager: manager.update_global_white_addresses(addresses, path))


def _split_outside_braces(text: str) -> list[str]:
    """Split at the commas outside braces: those after which the next brace, if any, is an opening one."""
    parts: list[str] = []
    end, brace = len(text), ""
    for match in reversed(list(_COMMA_OR_BRACE.finditer(text))):
        if match[0] != ",":
            brace = match[0]
        elif brace != "}":
            parts.append(text[match.end() : end])
            end = match.start()
    return [text[:end], *reversed(parts)]


def get_broker_cluster_acl_info(services: Services, request: Request[NoHeader]) -> Response:
    """Return the versions of the ACL files."""
    manager, config = _manager(services, ResponseCode.SYSTEM_ERROR), services.config
    return Response(
        0,
        GetBrokerAclConfigResponseHeader(
            encode_body(manager.version()).decode(), config.broker_name, services.broker_address,
            config.broker_cluster_name, encode_body(manager.versions()).decode(),
        ),
    )  # fmt: skip


def get_broker_cluster_acl_config(services: Services, request: Request[NoHeader]) -> Response:
    """Return all rules including secrets, because tools show and edit them."""
    manager = _manager(services, ResponseCode.SYSTEM_ERROR)
    names = ("accessKey", "secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
    accounts = [
        {name: text_of(entry.get(name)) for name in names}
        | {"admin": is_admin(entry)}
        | {name: entry.get(name) for name in ("topicPerms", "groupPerms")}
        for entry in manager.accounts()
    ]
    return Response(body=encode_body({"globalWhiteAddrs": manager.global_white_addresses(), "plainAccessConfigs": accounts}))


def _manager(services: Services, failure: int) -> "PlainPermissionManager":
    return existing(services.permissions, failure, "there are no access rules: aclEnable=false")


def _change(
    services: Services, request: Request[Any], failure: int, change: "Callable[[PlainPermissionManager], None]"
) -> Response:
    with refused_as(failure, kind=(ValueError, OSError)):
        change(_manager(services, failure))
    log.info("access rules changed by %s: request code %d", request.channel.remote_address, request.code)
    return Response()


ROUTES = routes(
    Route(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, CreateAccessConfigRequestHeader, update_and_create_acl_config),
    Route(RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequestHeader, delete_acl_config),
    Route(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, NoHeader, get_broker_cluster_acl_info),
    Route(
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        UpdateGlobalWhiteAddrsConfigRequestHeader,
        update_global_white_addrs_config,
    ),
    Route(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, NoHeader, get_broker_cluster_acl_config),
)
