"""Policies of 5.x: which actions a user may perform on which resources, from which addresses.

    resource   Topic:orders   Group:billing   Cluster:DefaultCluster   one
               Topic:orders*                                           all topics whose name starts with `orders`
               Topic:*                                                 all topics
               *                                                       everything

Of the entries that match resource, action and address the one with the most specific resource decides. Entries of the
Default policy count only if none of the Custom policy matches. Without a match the request is denied.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from pocketmq.remoting.bodies import PolicyEntryInfo, PolicyInfo
from pocketmq.runtime.peer_text import clipped

EVERYTHING: Final = "*"
TOPIC, GROUP, CLUSTER = "Topic", "Group", "Cluster"
PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"
ALL: Final = "All"
ALLOW, DENY = "Allow", "Deny"
CUSTOM, DEFAULT = "Custom", "Default"

NAME_SIZE_MAX: Final = 255
"""Maximum characters of a user's name and password, and of a resource."""
SOURCE_IPS_MAX: Final = 64
"""Maximum number of addresses and networks of one entry."""
_RESOURCE_TYPES: Final = (TOPIC, GROUP, CLUSTER, "Namespace")
_ANY_OF_DASHBOARD: Final = "any:*"
"""How Apache's dashboard writes `*`."""
_ACTIONS: Final = (ALL, PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST)


class AuthError(ValueError):
    """Invalid user or policy; the text names field and value, but no password."""


class Entry(msgspec.Struct, rename="camel", frozen=True):
    """A checked entry of a policy."""

    resource: str
    actions: tuple[str, ...]
    decision: str
    source_ips: tuple[str, ...] = ()

    def info(self) -> PolicyEntryInfo:
        """Return the entry in the form used in answers.

        Without addresses it has an empty list. Apache's broker leaves the list out, and then the page of Apache's dashboard
        shows nothing but an error.
        """
        return PolicyEntryInfo(self.resource, list(self.actions), list(self.source_ips), self.decision)


class Policy(msgspec.Struct, rename="camel", frozen=True):
    """A checked policy, with each resource once."""

    policy_type: str
    entries: tuple[Entry, ...]

    def info(self) -> PolicyInfo:
        """Return the policy in the form used in answers."""
        return PolicyInfo(self.policy_type, [entry.info() for entry in self.entries])


def one_of(name: str, given: str | None, known: Iterable[str]) -> str:
    """Return the member of `known` that equals `given` regardless of case. Raises AuthError naming the field."""
    for one in known:
        if given is not None and one.lower() == given.lower():
            return one
    raise AuthError(f"{name}={clipped(given)}: expected one of {', '.join(known)}")


def check_name(name: str, given: str | None, what: str) -> str:
    """Return a name. Raises AuthError naming the field if it is blank, too long or cannot be printed."""
    if given is None or not given.strip():
        raise AuthError(f"{name} is empty: expected {what}")
    if len(given) > NAME_SIZE_MAX:
        raise AuthError(f"{name} has {len(given)} characters, the limit is {NAME_SIZE_MAX}")
    if not given.isprintable():
        raise AuthError(f"{name} has a character that cannot be printed")
    return given


def checked_resource(given: str | None) -> str:
    """Return the resource in its usual form. Raises AuthError."""
    resource = check_name("resource", given, "TYPE:NAME, such as Topic:orders, or *")
    if resource == EVERYTHING or resource.lower() == _ANY_OF_DASHBOARD:
        return EVERYTHING
    kind, colon, name = resource.partition(":")
    if not colon or not name:
        raise AuthError(f"resource={clipped(resource)}: expected TYPE:NAME, such as Topic:orders, or *")
    if "*" in name[:-1]:
        raise AuthError(f"resource={clipped(resource)}: an asterisk may only be the last character")
    return f"{one_of('resource type', kind, _RESOURCE_TYPES)}:{name}"


def checked_policies(given: Iterable[PolicyInfo] | None) -> list[Policy]:
    """Return the policies of a request. Raises AuthError naming the invalid field."""
    policies = []
    for info in given or ():
        if not info.entries:
            raise AuthError("entries is empty: expected at least one entry with resource, actions and decision")
        kind = one_of("policyType", info.policy_type, (CUSTOM, DEFAULT)) if info.policy_type else CUSTOM
        policies.append(Policy(kind, tuple(_checked_entry(entry) for entry in info.entries)))
    if not policies:
        raise AuthError("policies is empty: expected at least one policy with entries")
    return policies


def _checked_entry(info: PolicyEntryInfo) -> Entry:
    resource = checked_resource(info.resource)
    given = info.actions or ()
    if not 0 < len(given) <= len(_ACTIONS):
        expected = f"expected 1 to {len(_ACTIONS)} of {', '.join(_ACTIONS)}"
        raise AuthError(f"actions of {clipped(resource)}: {len(given)} actions, {expected}")
    actions = tuple(dict.fromkeys(one_of("action", action, _ACTIONS) for action in given))
    source_ips = tuple(info.source_ips or ())
    if len(source_ips) > SOURCE_IPS_MAX:
        raise AuthError(f"sourceIps of {clipped(resource)}: {len(source_ips)} addresses, the limit is {SOURCE_IPS_MAX}")
    for source_ip in source_ips:
        _network(source_ip)
    return Entry(resource, actions, one_of("decision", info.decision, (ALLOW, DENY)), source_ips)


def _network(source_ip: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(source_ip, strict=False)
    except ValueError:
        raise AuthError(
            f"sourceIp={clipped(source_ip)}: expected an address or a CIDR network such as 10.1.0.0/16"
        ) from None


# --- changes ----------------------------------------------------------------------------------------------------------


def merged(present: Iterable[Policy], given: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the policies with the given entries in place of those for the same resources."""
    by_kind = {policy.policy_type: {entry.resource: entry for entry in policy.entries} for policy in present}
    for policy in given:
        by_kind.setdefault(policy.policy_type, {}).update({entry.resource: entry for entry in policy.entries})
    return tuple(Policy(kind, tuple(entries.values())) for kind, entries in by_kind.items())


def without(present: Iterable[Policy], policy_type: str, resource: str) -> tuple[Policy, ...]:
    """Return the policies without the entry of `resource` in the policy of type `policy_type`."""
    return _kept(present, lambda kind, entry: kind != policy_type or entry.resource != resource)


def containing(present: Iterable[Policy], part: str) -> tuple[Policy, ...]:
    """Return the entries whose resource contains `part`."""
    return _kept(present, lambda _, entry: part in entry.resource)


def _kept(present: Iterable[Policy], is_kept: Callable[[str, Entry], bool]) -> tuple[Policy, ...]:
    kept = (
        Policy(policy.policy_type, tuple(entry for entry in policy.entries if is_kept(policy.policy_type, entry)))
        for policy in present
    )
    return tuple(policy for policy in kept if policy.entries)


# --- evaluation -------------------------------------------------------------------------------------------------------


class Rules:
    """The policies of one user, arranged for look-ups."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        by_kind = {policy.policy_type: _Arranged(policy.entries) for policy in policies}
        self._arranged = [by_kind[kind] for kind in (CUSTOM, DEFAULT) if kind in by_kind]

    def decision(self, kind: str, name: str, actions: Iterable[str], host: str) -> str | None:
        """Return the decision about a resource for a peer at `host` that needs one of `actions`; None without a match."""
        for arranged in self._arranged:
            for entry, asked, networks in arranged.about(kind, name):
                if (ALL in asked or not asked.isdisjoint(actions)) and (not networks or _is_within(host, networks)):
                    return entry.decision
        return None


_Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
_Prepared = tuple[Entry, frozenset[str], _Networks]


class _Arranged:
    """The entries of one policy: those of exact names, then those of name prefixes, the longest first."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._exact: dict[str, _Prepared] = {}
        self._beginnings: list[tuple[str, _Prepared]] = []
        self._everything: list[_Prepared] = []
        for entry in entries:
            prepared = entry, frozenset(entry.actions), tuple(_network(source_ip) for source_ip in entry.source_ips)
            if entry.resource == EVERYTHING:
                self._everything.append(prepared)
            elif entry.resource.endswith("*"):
                self._beginnings.append((entry.resource[:-1], prepared))
            else:
                self._exact[entry.resource] = prepared
        self._beginnings.sort(key=lambda one: -len(one[0]))

    def about(self, kind: str, name: str) -> Iterator[_Prepared]:
        """Return the entries that match a resource, the most specific first."""
        resource = f"{kind}:{name}"
        exact = self._exact.get(resource)
        if exact is not None:
            yield exact
        for beginning, prepared in self._beginnings:
            if resource.startswith(beginning):
                yield prepared
        yield from self._everything


def _is_within(host: str, networks: _Networks) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
