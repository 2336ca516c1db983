"""AuthValidator: 5.x's check. The request must be signed by a user, and the user's policies must allow what it does."""

from typing import TYPE_CHECKING, Any

from pocketmq.broker.access.access_validator import AccessValidator, Check
from pocketmq.broker.access.action_table import NEEDED, SUPER_ONLY, ResourcesOf
from pocketmq.broker.access.auth.policies import ALLOW
from pocketmq.broker.access.auth.users import ENABLE, Account
from pocketmq.broker.config import BrokerConfig, whitelisted_codes
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request
from pocketmq.remoting.signature import ACCESS_KEY

if TYPE_CHECKING:
    from pocketmq.broker.access.auth.users import AuthUsers


class AuthValidator(AccessValidator):
    """Checks requests against users and their policies."""

    REFUSAL_CODE = ResponseCode.NO_PERMISSION

    def __init__(self, users: "AuthUsers", config: BrokerConfig) -> None:
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
