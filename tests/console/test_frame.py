"""Each page of the console: what protects it in a browser, its language, and what a read-only console refuses."""

import re

import pytest


def test_the_first_page_shows_the_broker(browser):
    answer = browser.get("/")
    assert answer.status_code == 200
    assert "master" in answer.text


def test_a_page_may_load_nothing_but_the_consoles_files(browser):
    answer = browser.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! type=\"module\" src=)|<style| style=| on\w+=", answer.text)
