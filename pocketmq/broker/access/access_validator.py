"""AccessValidator: the check of a request before its handler. There are two: 4.9's rules, and 5.x's users and policies.

With `aclEnable` or `authenticationEnabled` guarded handlers replace the plain ones in the route table; without them requests
take no extra step. What each code needs is in `access_table` and `auth_validator`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, NoReturn

from pocketmq.broker.services import Services
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, Handler, RemotingError, Route
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")

REASON_SIZE_MAX: Final = 200
"""Maximum characters of a refusal's reason, which may quote the peer."""

Check = Callable[[Services, Request[Any]], None]
"""Raises RemotingError for a request that is not admitted."""


def guard(table: dict[int, Route], validator: "AccessValidator") -> dict[int, Route]:
    """Return the routes with handlers that check the access first."""
    return {code: route._replace(handler=_guarded(route.handler, validator.check(code))) for code, route in table.items()}


def _guarded(handler: Handler, check: Check) -> Handler:
    def serve(services: Services, request: Request[Any]) -> Response | Deferred | None:
        check(services, request)
        return handler(services, request)

    return serve


class AccessValidator(ABC):
    """Base of the checks."""

    REFUSAL_CODE: ClassVar[ResponseCode]
    REFUSAL_PREFIX: ClassVar[str] = ""

    def __init__(self) -> None:
        self._refusals = RefusalLog(log)

    @abstractmethod
    def check(self, code: int) -> Check:
        """Return the check of the requests of a code."""

    def refuse(self, host: str, why: str) -> NoReturn:
        """Log a refusal and raise it as RemotingError."""
        why = why[:REASON_SIZE_MAX]
        self._refusals.refused((host, why), f"refused a request from {host}: {why!r}")
        raise RemotingError(self.REFUSAL_CODE, self.REFUSAL_PREFIX + why)


def access_validator(services: Services) -> AccessValidator | None:
    """Return the check of requests, or None without aclEnable and authenticationEnabled.

    The modules of a check are loaded only if it is enabled.
    """
    if services.permissions is not None:
        from pocketmq.broker.access.plain_access_validator import PlainAccessValidator

        return PlainAccessValidator(services.permissions)
    if services.users is not None:
        from pocketmq.broker.access.auth_validator import AuthValidator

        return AuthValidator(services.users, services.config)
    return None
