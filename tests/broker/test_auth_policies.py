"""Authorization policies of 5.x: which entry decides about a request, and which policies are refused."""

import pytest

from pocketmq.broker.access.auth.policies import (
    ALLOW,
    DENY,
    NAME_SIZE_MAX,
    SOURCE_IPS_MAX,
    AuthError,
    Rules,
    checked_policies,
    checked_resource,
    containing,
    merged,
    without,
)
from pocketmq.broker.access.auth_validator import NEEDED
from pocketmq.remoting.bodies import PolicyEntryInfo, PolicyInfo

HOME, AWAY = "10.1.2.3", "192.0.2.9"


def policy(*entries, kind=None):
    return PolicyInfo(
        kind, [PolicyEntryInfo(resource, actions.split(), list(ips), word) for resource, actions, word, *ips in entries]
    )


def rules(*entries, default=()):
    given = [policy(*entries)] if entries else []
    return Rules(checked_policies([*given, *([policy(*default, kind="Default")] if default else [])]))


@pytest.mark.parametrize(
    ("entries", "asked", "decision"),
    [
        ([("Topic:a", "Pub", ALLOW)], ("Topic", "a", ["Pub"]), ALLOW),
        ([("Topic:a", "Pub", ALLOW)], ("Topic", "a", ["Sub"]), None),
        ([("Topic:a", "Pub", ALLOW)], ("Topic", "ab", ["Pub"]), None),
        ([("Topic:a", "Pub", ALLOW)], ("Group", "a", ["Pub"]), None),
        ([("Topic:a", "Pub", ALLOW)], ("Topic", "a", ["Pub", "Sub", "Get"]), ALLOW),
        ([("Topic:a", "All", ALLOW)], ("Topic", "a", ["Delete"]), ALLOW),
        ([("Topic:a*", "Pub", ALLOW)], ("Topic", "abc", ["Pub"]), ALLOW),
        ([("Topic:a*", "Pub", ALLOW)], ("Topic", "b", ["Pub"]), None),
        ([("Topic:*", "Pub", ALLOW)], ("Topic", "b", ["Pub"]), ALLOW),
        ([("Topic:*", "Pub", ALLOW)], ("Group", "b", ["Pub"]), None),
        ([("*", "Pub", ALLOW)], ("Cluster", "c", ["Pub"]), ALLOW),
        # The most specific resource decides, whatever the order and the decision.
        ([("Topic:*", "Pub", ALLOW), ("Topic:a", "Pub", DENY)], ("Topic", "a", ["Pub"]), DENY),
        ([("Topic:*", "Pub", DENY), ("Topic:a", "Pub", ALLOW)], ("Topic", "a", ["Pub"]), ALLOW),
        ([("Topic:a*", "Pub", ALLOW), ("Topic:ab*", "Pub", DENY)], ("Topic", "abc", ["Pub"]), DENY),
        ([("Topic:ab*", "Pub", ALLOW), ("Topic:a*", "Pub", DENY)], ("Topic", "abc", ["Pub"]), ALLOW),
        ([("*", "All", DENY), ("Topic:*", "Pub", ALLOW)], ("Topic", "a", ["Pub"]), ALLOW),
        ([("*", "All", DENY), ("Topic:*", "Pub", ALLOW)], ("Topic", "a", ["Sub"]), DENY),
        # An entry that does not match the action is skipped.
        ([("Topic:a", "Sub", DENY), ("Topic:*", "Pub", ALLOW)], ("Topic", "a", ["Pub"]), ALLOW),
    ],
)
def test_the_most_specific_entry_decides(entries, asked, decision):
    assert rules(*entries).decision(*asked, HOME) == decision
    assert rules(*reversed(entries)).decision(*asked, HOME) == decision


@pytest.mark.parametrize(
    ("ips", "host", "decision"),
    [
        ((), AWAY, ALLOW),
        (("10.1.2.3",), HOME, ALLOW),
        (("10.1.2.3",), AWAY, None),
        (("10.1.0.0/16", "192.0.2.0/24"), AWAY, ALLOW),
        (("10.1.0.0/16",), "::ffff:10.1.9.9", ALLOW),
        (("2001:db8::/32",), "2001:db8::1", ALLOW),
        (("2001:db8::/32",), HOME, None),
        (("10.1.0.0/16",), "no address", None),
    ],
)
def test_entry_applies_only_to_its_source_addresses(ips, host, decision):
    assert rules(("Topic:a", "Pub", ALLOW, *ips)).decision("Topic", "a", ["Pub"], host) == decision


def test_default_policy_applies_only_if_no_custom_entry_matches():
    both = rules(("Topic:a*", "Pub", DENY), default=[("Topic:abc", "All", ALLOW)])
    assert both.decision("Topic", "abc", ["Pub"], HOME) == DENY
    assert both.decision("Topic", "abc", ["Sub"], HOME) == ALLOW
    assert rules(default=[("*", "All", ALLOW)]).decision("Group", "g", ["Sub"], HOME) == ALLOW


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"resource": None}, "resource is empty"),
        ({"resource": "Topic"}, "resource=Topic: expected TYPE:NAME"),
        ({"resource": "Topic:"}, "resource=Topic:: expected TYPE:NAME"),
        ({"resource": "Queue:a"}, "resource type=Queue"),
        ({"resource": "Topic:a*b"}, "resource=Topic:a\\*b: an asterisk"),
        ({"resource": "Topic:" + "a" * NAME_SIZE_MAX}, "resource has 261 characters, the limit is 255"),
        ({"resource": "Topic:a\nb"}, "resource has a character that cannot be printed"),
        ({"actions": None}, "actions of Topic:a"),
        ({"actions": []}, "actions of Topic:a"),
        ({"actions": ["Pub"] * 9}, "actions of Topic:a: 9"),
        ({"actions": ["Any"]}, "action=Any: expected one of All, Pub"),
        ({"source_ips": ["10.1"]}, "sourceIp=10.1: expected an address"),
        ({"source_ips": [""]}, "sourceIp=: expected an address"),
        ({"source_ips": ["10.0.0.1"] * (SOURCE_IPS_MAX + 1)}, "sourceIps of Topic:a: 65 addresses, the limit is 64"),
        ({"decision": None}, "decision=None: expected one of Allow, Deny"),
        ({"decision": "Maybe"}, "decision=Maybe"),
    ],
)
def test_invalid_entry_is_refused_naming_its_field(changes, told):
    entry = PolicyEntryInfo("Topic:a", ["Pub"], None, "Allow")
    for name, value in changes.items():
        setattr(entry, name, value)
    with pytest.raises(AuthError, match=told):
        checked_policies([PolicyInfo(None, [entry])])


def test_a_policy_needs_a_known_type_and_entries():
    with pytest.raises(AuthError, match="policies is empty"):
        checked_policies(None)
    with pytest.raises(AuthError, match="entries is empty"):
        checked_policies([PolicyInfo("Custom", [])])
    with pytest.raises(AuthError, match="policyType=Other"):
        checked_policies([policy(("Topic:a", "Pub", ALLOW), kind="Other")])


def test_resource_any_of_the_dashboard_is_accepted():
    """The type ANY with a name is refused, because the name would restrict nothing; Apache accepts and ignores it."""
    assert checked_resource("ANY:*") == "*"
    with pytest.raises(AuthError, match="resource type=ANY"):
        checked_resource("ANY:orders")


def test_words_are_accepted_in_any_case_and_answered_in_apaches_case():
    (one,) = checked_policies([policy(("topic:a*", "PUB pub all", "allow", "::1"), kind="default")])
    assert (one.policy_type, one.info().entries) == (
        "Default", [PolicyEntryInfo("Topic:a*", ["Pub", "All"], ["::1"], "Allow")],
    )  # fmt: skip


def test_entries_of_the_same_resource_are_replaced():
    old = merged((), checked_policies([policy(("Topic:a", "Pub", ALLOW), ("Topic:b", "Pub", ALLOW))]))
    new = merged(
        old, checked_policies([policy(("Topic:a", "Sub", DENY)), policy(("Topic:a", "Get", ALLOW), kind="Default")])
    )
    assert [(one.policy_type, [(e.resource, e.actions, e.decision) for e in one.entries]) for one in new] == [
        ("Custom", [("Topic:a", ("Sub",), DENY), ("Topic:b", ("Pub",), ALLOW)]),
        ("Default", [("Topic:a", ("Get",), ALLOW)]),
    ]
    assert [one.policy_type for one in without(new, "Default", "Topic:a")] == ["Custom"]
    assert [len(one.entries) for one in without(new, "Custom", "Topic:a")] == [1, 1]
    assert [(one.policy_type, len(one.entries)) for one in containing(new, "c:a")] == [("Custom", 1), ("Default", 1)]


ACTIONS_OF_5_5_0 = {
    "Pub": (10, 37, 310, 320, 370),
    "Sub": (11, 34, 35, 36, 41, 42, 309, 200050, 200051, 200052, 200053, 200054),
    "Sub Get": (12, 14, 38),
    "Sub Update": (15,),
    "Get": (29, 30, 31, 32, 33, 202, 203, 204, 208, 223, 300, 303, 307, 315, 317, 321, 328, 343, 345, 351, 352, 200055),
    "Update": (222, 314, 323, 905, 906),
    "Create": (17,),
    "Delete": (207, 215),
}
"""Actions of which a 5.5.0 broker requires any one -> request codes. Recorded with users that have one action each."""


def test_each_code_needs_the_same_actions_as_in_5_5_0():
    recorded = {code: actions for actions, codes in ACTIONS_OF_5_5_0.items() for code in codes}
    assert {code: " ".join(NEEDED[code][0]) for code in recorded} == recorded
