"""adminAllow and registerAllow restrict request codes to addresses."""

import logging
from types import SimpleNamespace

import pytest

from pocketmq.remoting.allow_list import networks, restricted
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import RemotingError, Route
from pocketmq.remoting.header import NoHeader
from pocketmq.runtime.lifecycle import StartError

log = logging.getLogger("test")
TABLE = {code: Route(code, NoHeader, lambda services, request: Response()) for code in (25, 34)}


def served(table, code, host):
    try:
        return table[code].handler(None, SimpleNamespace(channel=SimpleNamespace(remote_host=host))).code
    except RemotingError as error:
        return error.code


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("10.1.0.0/16", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "::1", "::ffff:a01:1"]),
        ("10.1.2.3/16", ["10.1.9.9"], ["10.2.0.0"]),
        (" 127.0.0.1 , ::1 ", ["127.0.0.1", "::1"], ["127.0.0.2", "::2"]),
        ("2001:db8::/32", ["2001:db8::1", "2001:db8:ffff::"], ["2001:db9::", "10.0.0.1"]),
        ("0.0.0.0/0", ["10.0.0.1"], ["::1"]),
    ],
)
def test_addresses_and_networks_are_allowed(text, allowed, refused):
    table = restricted(TABLE, [25], "adminAllow", text, log)
    assert [served(table, 25, host) for host in allowed] == [0] * len(allowed)
    assert [served(table, 25, host) for host in refused] == [ResponseCode.NO_PERMISSION] * len(refused)
    assert all(served(table, 34, host) == 0 for host in (*allowed, *refused)), "only the listed codes are restricted"


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_empty_list_changes_no_route(text):
    assert restricted(TABLE, [25], "adminAllow", text, log) is TABLE


@pytest.mark.parametrize("text", ["junk", "10.0.0.0/33", "10.0.0.1-9", "::1/129", "10.0.0.1;10.0.0.2", "x" * 10_000])
def test_invalid_address_is_named_in_the_error(text):
    with pytest.raises(StartError, match="adminAllow=") as refused:
        networks("adminAllow", f"10.0.0.1,{text}")
    assert len(str(refused.value)) < 400


def test_refusal_names_code_and_key_and_is_logged_once(caplog):
    table = restricted(TABLE, [25], "adminAllow", "10.0.0.1", log)
    for _ in range(100):
        served(table, 25, "10.0.0.2")
    assert [record.message for record in caplog.records] == [
        "refused: request code 25 is not served to 10.0.0.2: it is not in adminAllow"
    ]
