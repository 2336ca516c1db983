"""Names, bodies and settings are data: none of them becomes markup, and none breaks a page."""

import asyncio
import html
from urllib.parse import quote

import pytest

from tests.console.conftest import connected_producer

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}%RETRY%"


@pytest.mark.parametrize(
    "link",
    [
        "/topics?q={}", "/topics?kind={}", "/topic?name={}", "/group?name={}", "/client?group={}&id={}&broker={}",
        "/broker?address={}", "/producers?topic={}", "/producers?topic={}&group={}", "/user?name={}&generation={}",
        "/configuration?broker={}", "/configuration/key?broker={}&key={}", "/topic/sent?topic={}&broker={}&queue={}&id={}",
        "/sign-in?then={}", "/topics?done={}", "/topics?{}=1&sort={}", "/language?to={}&then={}", "/{}",
    ],
)  # fmt: skip
def test_a_query_is_not_markup(browser, link):
    answer = browser.get(link.replace("{}", quote(EVIL)))
    assert answer.status_code in (200, 400, 404, 502, 504)
    assert_harmless(answer.text)


@pytest.mark.parametrize("path", ["/topics/create", "/topic/delete", "/topic/send", "/group/reset", "/user/save"])
def test_a_form_is_not_markup(browser, path):
    fields = dict.fromkeys(("name", "topic", "queues", "kind", "confirm", "to", "time", "body", "properties", "type"), EVIL)
    answer = browser.submit("/topics", path, **fields)
    assert answer.status_code in (400, 502)
    assert_harmless(answer.text)


def assert_harmless(page: str) -> None:
    assert "<script>" not in page and "<img" not in page
    assert "{{7*7}}" in page or "7*7" not in page


async def test_names_of_clients_and_groups_are_not_markup(server, browser):
    async with connected_producer(server.namesrv_address, "<script>alert(3)</script>", "<i>producers"):
        page = (await asyncio.to_thread(browser.get, "/producers")).text
    assert html.escape("<script>alert(3)</script>") in page
    assert html.escape("<i>producers") in page
    assert_harmless(page)
