"""PlainAccessValidator: 4.9's check. It admits white-listed addresses, and signed requests with the needed permissions."""

from typing import Any

from pocketmq.broker.access.access_table import RESOURCES, ResourcesOf, needs_admin
from pocketmq.broker.access.access_validator import AccessValidator, Check
from pocketmq.broker.access.acl.access_rules import PUB, Account
from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager
from pocketmq.broker.names import RETRY_PREFIX, TRACE_TOPIC
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request
from pocketmq.remoting.signature import ACCESS_KEY


class PlainAccessValidator(AccessValidator):
    """Checks requests against the rules of `manager`."""

    REFUSAL_CODE = ResponseCode.SYSTEM_ERROR
    REFUSAL_PREFIX = "org.apache.rocketmq.acl.common.AclException: "

    def __init__(self, manager: PlainPermissionManager) -> None:
        super().__init__()
        self._manager = manager

    def check(self, code: int) -> Check:
        resources_of, is_admins = RESOURCES.get(code), needs_admin(code)

        def check(services: Services, request: Request[Any]) -> None:
            account = self._account(request, is_admins)
            if account is not None and resources_of is not None:
                self._check(account, services, request, resources_of)

        return check

    def _account(self, request: Request[Any], is_admins: bool) -> Account | None:
        """Return the account of a request, None for a white-listed address. Raises RemotingError if it may not be served."""
        rules, host = self._manager.rules, request.channel.remote_host
        if rules.is_white(host):
            return None
        ext = request.ext()
        access_key = ext.get(ACCESS_KEY)
        if access_key is None:
            self.refuse(host, "No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            self.refuse(host, f"No acl config for {access_key}")
        if account.is_white(host):
            return None
        if not account.signer.is_signed(ext, request.body):
            self.refuse(host, f"Check signature failed for accessKey={access_key}")
        if is_admins and not account.is_admin:
            self.refuse(host, f"Need admin permission for request code={request.code}, but accessKey={access_key} is not")
        return account

    def _check(self, account: Account, services: Services, request: Request[Any], resources_of: ResourcesOf) -> None:
        """Raises RemotingError for a topic or group for which the account lacks the permission."""
        host = request.channel.remote_host
        try:
            # Every account may send message traces.
            denied = account.denied(one for one in resources_of(services, request) if one != (TRACE_TOPIC, PUB))
        except ValueError as error:
            self.refuse(host, f"body of request code {request.code}: {error}")
        if denied is not None:
            is_group = denied.startswith(RETRY_PREFIX)
            name = denied.removeprefix(RETRY_PREFIX)
            self.refuse(host, f"No default permission for {'group' if is_group else 'topic'}:{name}")
