"""The number of failed sign-ins of an address is limited."""

import logging

from pocketmq.client.access import PLAIN
from pocketmq.console import attempts
from pocketmq.console.accounts import Accounts, SignInRefused
from pocketmq.console.attempts import FailedAttempts


class Now:
    """A clock that a test sets."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def fail(limit: FailedAttempts, address: str, times: int) -> list[int]:
    return [limit.begin(address) for _ in range(times)]


def test_five_sign_ins_may_fail_at_once_and_then_one_each_interval():
    limit = FailedAttempts(now := Now())
    assert fail(limit, "10.0.0.1", 7) == [0, 0, 0, 0, 0, 5, 5]
    assert limit.begin("10.0.0.2") == 0
    now.now_s += 3
    assert limit.begin("10.0.0.1") == 2
    now.now_s += 2
    assert fail(limit, "10.0.0.1", 2) == [0, 5]
    now.now_s += 3600
    assert fail(limit, "10.0.0.1", 6) == [0, 0, 0, 0, 0, 5]


def test_sign_ins_that_succeed_are_not_limited():
    limit = FailedAttempts(Now())
    for _ in range(20):
        assert limit.begin("10.0.0.1") == 0
        limit.give_back("10.0.0.1")


def test_a_network_of_ipv6_is_one_client():
    limit = FailedAttempts(Now())
    assert [limit.begin(f"2001:db8::{number}") for number in range(1, 7)] == [0, 0, 0, 0, 0, 5]
    assert limit.begin("2001:db8:0:1::1") == 0


def test_only_the_latest_addresses_are_remembered():
    limit = FailedAttempts(Now())
    for number in range(attempts.ADDRESSES_MAX + 10):
        limit.begin(f"10.0.{number // 256}.{number % 256}")
    assert limit.count == attempts.ADDRESSES_MAX


def test_a_browser_is_told_to_wait_in_its_language(browser_of, monkeypatch, caplog):
    async def refuse(self, access_key, secret_key):
        raise SignInRefused

    monkeypatch.setattr(Accounts, "sign_in", refuse)
    browser = browser_of("127.0.0.1:1", PLAIN)

    def sign_in():
        return browser.submit("/sign-in", "/sign-in", accessKey="root", secretKey="wrong", then="/topics")

    with caplog.at_level(logging.WARNING, "console"):
        answers = [sign_in() for _ in range(attempts.AT_ONCE + 1)]
    assert [answer.status_code for answer in answers] == [403] * attempts.AT_ONCE + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= attempts.INTERVAL_S
    assert "Too many sign-ins from your address failed." in answers[-1].text
    assert "refused a sign-in from 127.0.0.1: too many failed before" in caplog.text
    browser.cookies.set("language", "zh")
    assert "登录失败次数过多" in sign_in().text
