"""Bodies of 5.x's access administration: users and ACLs (codes 3001 to 3010)."""

from pocketmq.remoting.bodies import Body


class UserInfo(Body):
    """A user. An update does not change fields that are None. user_type: Super, Normal; user_status: enable, disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r})"  # without the password, because tracebacks may show it


class PolicyEntryInfo(Body):
    """The decision of a policy about one resource. source_ips: addresses and CIDR networks; none: all addresses."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """One of a subject's policies. policy_type: Custom (also if it is None) or Default, which is evaluated second."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """The policies of a subject, such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
