"""Each page of the console: what protects it in a browser, its language, and what a read-only console refuses."""

import re

import pytest

from pocketmq.console.pages import MENU, ROUTES

PAGES = [link for link, _ in MENU]
ACTIONS = [route.path for route in ROUTES if "POST" in route.methods and not route.path.startswith("/sign-")]


@pytest.fixture(scope="module")
def reader(server, browser_of):
    """A browser at a read-only console."""
    return browser_of(server.namesrv_address)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_may_load_nothing_but_the_consoles_files(browser, page):
    answer = browser.get(page)
    assert answer.status_code == 200
    assert "Not everything on this page is known" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! type=\"module\" src=)|<style| style=| on\w+=", answer.text)
    assert re.search(f'href="{page}" aria-current="page"', answer.text)


@pytest.mark.parametrize("path", ["/static/console.css", "/static/console.js", "/static/charts.js", "/static/icon.svg"])
def test_files_of_the_console_are_served(browser, path):
    answer = browser.get(path)
    assert answer.status_code == 200 and answer.content


def test_a_page_is_in_the_language_that_the_browser_accepts_until_another_is_chosen(server, browser_of):
    browser = browser_of(server.namesrv_address)
    assert "集群" in browser.get("/", headers={"accept-language": "fr;q=0.9, zh-CN, en;q=0.8"}).text
    assert "集群" not in browser.get("/", headers={"accept-language": "fr, *"}).text
    chosen = browser.get("/language?to=zh&then=/topics%3Fq%3Da")
    assert str(chosen.url).endswith("/topics?q=a")
    assert 'lang="zh"' in chosen.text
    assert 'lang="zh"' in browser.get("/", headers={"accept-language": "en"}).text


@pytest.mark.parametrize("then", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"])
def test_no_link_leads_to_another_site(browser, then):
    answer = browser.get("/language", params={"to": "en", "then": then}, follow_redirects=False)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8088", "127.0.0.1.evil.example", ""])
def test_a_name_that_another_site_resolves_to_this_machine_is_refused(browser, host):
    assert browser.get("/", headers={"host": host}).status_code == 421


def test_a_host_name_of_the_configuration_is_served(server, browser_of):
    browser = browser_of(server.namesrv_address, console_hosts="console.example; other.example")
    assert browser.get("/", headers={"host": "console.example:8088"}).status_code == 200


@pytest.mark.parametrize("path", ACTIONS)
def test_a_read_only_console_refuses_each_change(reader, path):
    answer = reader.post(path, data={"name": "a", "csrf": "b"})
    assert answer.status_code == 403
    assert "read-only" in answer.text


@pytest.mark.parametrize("page", PAGES)
def test_a_read_only_console_has_no_form_that_changes_anything(reader, page):
    assert 'method="post"' not in reader.get(page).text


@pytest.mark.parametrize("path", ACTIONS)
def test_a_change_needs_the_token_of_a_page(browser, path):
    browser.get("/topics")
    for fields in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "é"}):
        answer = browser.post(path, data={"name": "a", **fields})
        assert answer.status_code == 403
        assert "not from this console" in answer.text


def test_the_token_of_another_browser_is_refused(server, browser, browser_of):
    other = browser_of(server.namesrv_address, console_write=True)
    assert browser.post("/topics/create", data={"csrf": other.token("/topics"), "name": "a"}).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_a_change_that_another_site_causes_is_refused(browser, headers):
    token = browser.token("/topics")
    answer = browser.post("/topics/create", data={"csrf": token, "name": "a"}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text


def test_cookies_are_kept_from_scripts_and_other_sites(server, browser_of):
    browser = browser_of(server.namesrv_address, console_write=True)
    cookie = browser.get("/topics").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize(
    ("body", "kind"), [(b"a=%FF", ""), (b"{}", "application/json"), (b"a=b&" * 300, ""), (b"x" * 6_000_000, "")]
)
def test_a_form_that_cannot_be_read_is_refused(browser, body, kind):
    answer = browser.post(
        "/topics/create", content=body, headers={"content-type": kind or "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 400


def test_an_unknown_page_and_a_wrong_method_have_a_page_of_their_own(browser):
    missing, wrong = browser.get("/no-such-page"), browser.post("/charts")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert "<nav" in missing.text and "<nav" in wrong.text
    assert "content-security-policy" in missing.headers
