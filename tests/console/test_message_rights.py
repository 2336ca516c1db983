"""With access rules each change acts by the rights of the account that is signed in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.testing import PocketMQ
from tests.console import filled
from tests.console.conftest import Browser, Opened
from tests.interop.wire import Connection

RULES = """\
accounts:
- accessKey: operator
  secretKey: "12345678"
  admin: true
- accessKey: visitor
  secretKey: "87654321"
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""
SECRETS = {"operator": "12345678", "visitor": "87654321"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQ]:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(RULES)
    settings = {"aclEnable": "true", "rocketmqHome": str(home)}
    with PocketMQ(tmp_path_factory.mktemp("server"), settings=settings) as running:
        with Connection(running.broker_address, signed_as=("operator", "12345678")) as connection:
            filled.make_dead(connection, filled.GROUP, 2)
            filled.by_level(connection)
            filled.by_timer(connection)
        yield running


@pytest.fixture
def connection(server: PocketMQ) -> Iterator[Connection]:
    with Connection(server.broker_address, signed_as=("operator", "12345678")) as opened:
        yield opened


def signed_in(browser_of: Opened, server: PocketMQ, name: str) -> Browser:
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    answer = browser.submit("/sign-in", "/sign-in", accessKey=name, secretKey=SECRETS[name])
    assert answer.status_code == 200, answer.text
    return browser


def changes(connection: Connection) -> dict[str, dict[str, str]]:
    """Return the form of each change."""
    (pending,) = connection.query("rmq_sys_wheel_timer", "TIMER-5")
    one = {"broker": "broker-a", "queue": "0", "offset": "0"}
    timer = {"broker": "broker-a", "id": "TIMER-5", "confirm": "TIMER-5", "physicalOffset": str(pending.physical_offset)}
    return {
        "/message/send-again": {**one, "topic": "Bought", "to": "Bought", "body": "x"},
        "/dead-letters/resend": {**one, "group": filled.GROUP},
        "/dead-letters/resend-all": {"group": filled.GROUP},
        "/delayed/deliver": timer,
        "/delayed/cancel": timer,
        "/delayed/advance": {"amount": "1", "unit": "days"},
    }


def test_an_account_without_the_right_changes_nothing(server, browser_of, connection):
    before = {topic: connection.max_offset(topic, 0) for topic in ("Bought", "Later")}
    visitor = signed_in(browser_of, server, "visitor")
    for path, form in changes(connection).items():
        answer = visitor.submit("/sign-in", path, **form)
        refused = answer.status_code == 403 or "2 failed" in answer.text
        assert refused, (path, answer.status_code, answer.text)
    assert {topic: connection.max_offset(topic, 0) for topic in before} == before


def test_who_is_not_signed_in_is_asked_to(server, browser_of, connection):
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    for path, form in changes(connection).items():
        answer = browser.submit("/sign-in", path, **form)
        assert "Access key" in answer.text or answer.status_code == 403 or "2 failed" in answer.text, (path, answer.text)
    assert connection.max_offset("Bought", 0) == 2


def test_an_account_with_the_right_makes_each_change(server, browser_of, connection):
    operator = signed_in(browser_of, server, "operator")
    for path, form in changes(connection).items():
        answer = operator.submit("/sign-in", path, **form)
        if path == "/delayed/cancel":
            assert "no message is pending" in answer.text, "it was delivered before"
        else:
            assert answer.status_code == 200, (path, answer.text)
    assert connection.max_offset("Bought", 0) == 5, "two of before, one sent again, two dead letters"
