"""The number of failed sign-ins of an address is limited."""

import logging

from pocketmq.client.access import PLAIN
from pocketmq.console.accounts import Accounts, SignInRefused
from pocketmq.console.console import FAILED_SIGN_IN_INTERVAL_S, FAILED_SIGN_INS_AT_ONCE


def test_a_browser_is_told_to_wait_in_its_language(browser_of, monkeypatch, caplog):
    async def refuse(self, access_key, secret_key):
        raise SignInRefused

    monkeypatch.setattr(Accounts, "sign_in", refuse)
    browser = browser_of("127.0.0.1:1", PLAIN)

    def sign_in():
        return browser.submit("/sign-in", "/sign-in", accessKey="root", secretKey="wrong", then="/topics")

    with caplog.at_level(logging.WARNING, "console"):
        answers = [sign_in() for _ in range(FAILED_SIGN_INS_AT_ONCE + 1)]
    assert [answer.status_code for answer in answers] == [403] * FAILED_SIGN_INS_AT_ONCE + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= FAILED_SIGN_IN_INTERVAL_S
    assert "Too many sign-ins from your address failed." in answers[-1].text
    assert "refused a sign-in from 127.0.0.1: too many failed before" in caplog.text
    browser.cookies.set("language", "zh")
    assert "登录失败次数过多" in sign_in().text
