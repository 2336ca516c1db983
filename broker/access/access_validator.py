"""AccessValidator: admits a request from a white address, or with a signature and the permissions that its code needs.

With `aclEnable` guarded handlers replace the plain ones in the route table; without it requests take no extra step. The
permissions of each code are in `access_table`.
"""

import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pocketmq.broker.access.access_table import ADMIN_CODES, RESOURCES, SIGNED_CODES, ResourcesOf, needs_admin
from pocketmq.broker.acl.access_rules import PUB, Account
from pocketmq.broker.names import RETRY_PREFIX, TRACE_TOPIC
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Handler, RemotingError, Route
from pocketmq.remoting.signature import ACCESS_KEY
from pocketmq.runtime.refusal_log import RefusalLog

if TYPE_CHECKING:
    from pocketmq.broker.acl.plain_permission import PlainPermissionManager

__all__ = ["ADMIN_CODES", "RESOURCES", "SIGNED_CODES", "AccessValidator", "guard"]

log = logging.getLogger("broker")

REASON_SIZE_MAX: Final = 200
"""Maximum characters of a refusal's reason, which may quote the peer."""


def guard(table: dict[int, Route], manager: "PlainPermissionManager") -> dict[int, Route]:
    """Return the routes with handlers that check the access rules first."""
    validator = AccessValidator(manager)
    return {code: route._replace(handler=validator.guarded(route)) for code, route in table.items()}


class AccessValidator:
    """Checks requests against the rules of `manager`."""

    def __init__(self, manager: "PlainPermissionManager") -> None:
        self._manager = manager
        self._refusals = RefusalLog(log)

    def guarded(self, route: Route) -> Handler:
        """Return the route's handler with the access check in front."""
        handler, resources_of, is_admins = route.handler, RESOURCES.get(route.code), needs_admin(route.code)

        def serve(services: Services, request: Request[Any]) -> Response | Deferred | None:
            account = self._account(request, is_admins)
            if account is not None and resources_of is not None:
                self._check(account, services, request, resources_of)
            return handler(services, request)

        return serve

    def _account(self, request: Request[Any], is_admins: bool) -> Account | None:
        """Return the account of a request, None for a white address. Raises RemotingError without a valid signature."""
        rules, host = self._manager.rules, request.channel.remote_host
        if rules.is_white(host):
            return None
        ext = request.ext()
        access_key = ext.get(ACCESS_KEY)
        if access_key is None:
            self._refuse(host, "No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            self._refuse(host, f"No acl config for {access_key}")
        if account.is_white(host):
            return None
        if not account.signer.is_signed(ext, request.body):
            self._refuse(host, f"Check signature failed for accessKey={access_key}")
        if is_admins and not account.is_admin:
            self._refuse(host, f"Need admin permission for request code={request.code}, but accessKey={access_key} is not")
        return account

    def _check(self, account: Account, services: Services, request: Request[Any], resources_of: ResourcesOf) -> None:
        """Raises RemotingError for a topic or group for which the account lacks the permission."""
        host = request.channel.remote_host
        try:
            # Every account may send message traces.
            denied = account.denied(one for one in resources_of(services, request) if one != (TRACE_TOPIC, PUB))
        except ValueError as error:
            self._refuse(host, f"body of request code {request.code}: {error}")
        if denied is not None:
            is_group = denied.startswith(RETRY_PREFIX)
            name = denied.removeprefix(RETRY_PREFIX)
            self._refuse(host, f"No default permission for {'group' if is_group else 'topic'}:{name}")

    def _refuse(self, host: str, why: str) -> NoReturn:
        why = why[:REASON_SIZE_MAX]
        self._refusals.refused((host, why), f"refused a request from {host}: {why!r}")
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {why}")
