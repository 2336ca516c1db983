"""Patterns of addresses. The results are those of Apache 4.9.4, unless a test says otherwise."""

import pytest

from pocketmq.broker.access.acl.remote_address import any_of, remote_address_strategy

HOSTS = [
    "127.0.0.1", "127.0.0.2", "127.0.1.1", "192.168.0.5", "192.168.1.5", "192.168.5.5", "192.168.150.15",
    "192.168.150.25", "192.169.1.5", "10.0.0.1", "2001:db8::5", "2001:db8::6", "2001:db8:1::9", "2001:db8:1:5:6:7:8:9",
    "2001::5:78:100:7", "2001::5:78:100", "2001::5:78:201", "2001:db8::7:1", "2001:db8::7:ff",
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("", ""),
        ("  ", ""),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1,127.0.0.2", "127.0.0.1 127.0.0.2"),
        ("127.0.0.{1,2}", "127.0.0.1 127.0.0.2"),
        ("192.168.*.*", "192.168.0.5 192.168.1.5 192.168.5.5 192.168.150.15 192.168.150.25"),
        ("192.168.0.*", "192.168.0.5"),
        ("192.168.1-10.*", "192.168.1.5 192.168.5.5"),
        ("192.168.1.5-9", "192.168.1.5"),
        ("2001:db8::5", "2001:db8::5"),
        ("2001:DB8:0:0:0:0:0:5", "2001:db8::5"),
        ("2001:db8::{5,6}", "2001:db8::5 2001:db8::6"),
        ("2001:db8:1:*", "2001:db8:1::9 2001:db8:1:5:6:7:8:9"),
        ("2001::5:78:1-200:*", "2001::5:78:100:7"),
        ("2001::5:78:1-200", "2001::5:78:100"),
        ("2001:db8:0:0:0:0:7:1-20", "2001:db8::7:1"),
        # Apache ignores everything after the first range, and treats `::` before a range as one part.
        ("192.168.*.5", "192.168.0.5 192.168.1.5 192.168.5.5"),
        ("192.168.100-200.10-20", "192.168.150.15"),
        ("2001:db8::1-5", "2001:db8::5"),
    ],
)
def test_patterns_match_the_expected_addresses(pattern, meant):
    matches = remote_address_strategy(pattern)
    assert [host for host in HOSTS if matches(host)] == meant.split()


@pytest.mark.parametrize("pattern", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_patterns_that_match_every_address(pattern):
    assert all(map(remote_address_strategy(pattern), HOSTS))


@pytest.mark.parametrize(
    "pattern",
    [
        "localhost", "127.0.0.", "127.0.0.256", "127.0.0.1,x", "127.0.{1,2}.1", "127.0.0.{1,256}", "127.0.0{1}", "{1}",
        "192.168.*", "192.168.1.9-5", "192.168.1.0-300", "192.168.1.-5", "300.168.0.*", "*.168.1.1", "1-5.1.1.1",
        "2001:db8:*:5", "2001:1-5:3:*", "*:db8", "2001:db8:0:0:0:0:1-200:*:5", "2001::db8::*", "1:2:3:4:5:6:7:8:*",
        "2001:db8::g-h",
    ],
)  # fmt: skip
def test_invalid_pattern_is_refused_naming_it(pattern):
    with pytest.raises(ValueError, match="remote address") as caught:
        remote_address_strategy(pattern)
    assert pattern in str(caught.value)


def test_any_of_several_patterns():
    matches = any_of(["10.0.0.*", "127.0.0.1"])
    assert [host for host in HOSTS if matches(host)] == ["127.0.0.1", "10.0.0.1"]
    assert not any(map(any_of([]), HOSTS))
