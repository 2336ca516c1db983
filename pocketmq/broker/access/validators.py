"""Selects the access check that the broker's settings enable. The modules of a check are loaded only if it is enabled."""

from pocketmq.broker.access.access_validator import AccessValidator
from pocketmq.broker.services import Services


def access_validator(services: Services) -> AccessValidator | None:
    """Return the check of requests, or None without aclEnable and authenticationEnabled."""
    if services.permissions is not None:
        from pocketmq.broker.access.plain_access_validator import PlainAccessValidator

        return PlainAccessValidator(services.permissions)
    if services.users is not None:
        from pocketmq.broker.access.auth_validator import AuthValidator

        return AuthValidator(services.users, services.config)
    return None
