"""5.x's users and ACLs: codes 3001 to 3010."""

from pocketmq.remoting.header import CommandHeader


class UserRequestHeader(CommandHeader):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(CommandHeader):
    """AUTH_LIST_USER. `filter`: part of the names."""

    filter: str | None = None


class AclRequestHeader(CommandHeader):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL. `subject`: such as `User:alice`."""

    subject: str | None = None


class DeleteAclRequestHeader(CommandHeader):
    """AUTH_DELETE_ACL. Without a resource: all of the subject's policies."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(CommandHeader):
    """AUTH_LIST_ACL. Both filters are parts of names."""

    subject_filter: str | None = None
    resource_filter: str | None = None
