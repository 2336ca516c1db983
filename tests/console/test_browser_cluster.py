"""Pages about topics, groups and figures in headless Chromium: by keyboard only, without JavaScript, at a phone's width."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.console import browsing
from tests.support.amount import cases

PHONE = {"width": 360, "height": 740}
EVIL = "<img src=x onerror=document.title='evil'>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsing.chromium() as running:
        yield running


@pytest.fixture(scope="module")
def url(browser) -> str:
    return str(browser.base_url).rstrip("/")


@pytest.fixture
def page(chromium, url) -> Iterator[Page]:
    """A page whose complaints, such as of the content security policy, fail the test."""
    opened = chromium.new_page(base_url=url)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert complaints == []


def is_wider_than_the_screen(page: Page) -> bool:
    found: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return found


def test_each_page_is_accessible_and_fits_a_phone(chromium, url, server):
    topic = server.create_topic()
    key = "/configuration/key?broker=broker-a&key=fileReservedTime"
    links = ["/topics", f"/topic?name={topic}", f"/group?name={topic}", key, "/charts", "/no-such-page"]
    found = []
    for scheme in cases(("light",), ("light", "dark")):  # the pages of messages are checked in the dark
        page = chromium.new_page(base_url=url, color_scheme=scheme, viewport=PHONE)
        for link in links:
            page.goto(link)
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            if is_wider_than_the_screen(page):
                found.append(f"{link} is wider than a phone")
            for one in Axe().run(page).response["violations"]:
                if one["impact"] in browsing.SERIOUS:
                    found.append(f"{scheme} {link}: {one['id']}: {one['nodes'][0]['html'][:200]}")
        page.close()
    assert found == []


def test_a_topic_is_created_sent_to_and_deleted_with_the_keyboard_alone(page):
    page.goto("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    to_element(page, "summary")
    page.keyboard.press("Enter")
    to_element(page, "#create-name")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topic?name=by-keyboard&done=topic_created")
    to_element(page, "summary")
    page.keyboard.press("Enter")
    to_element(page, "#send-body")
    page.keyboard.type(EVIL)
    to_element(page, "form[action='/topic/send'] button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topic/sent?*")
    page.goto("/topic?name=by-keyboard")
    assert "messages: 1" in page.inner_text("main")
    for _ in range(3):
        to_element(page, "summary")
    page.keyboard.press("Enter")
    to_element(page, "#delete-confirm")
    button = page.locator("form[action='/topic/delete'] button")
    page.keyboard.type("by-keyboar")
    assert button.is_disabled()
    page.keyboard.type("d")
    assert button.is_enabled()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?done=topic_deleted")


def to_element(page: Page, selector: str) -> None:
    """Press Tab until an element of the selector has the focus, and check that this can be seen."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError(f"{selector} is not reached by Tab")


def test_charts_are_drawn_and_have_a_table(page):
    page.goto("/charts")
    page.wait_for_selector(".charts polyline.series", state="attached")
    assert page.locator(".charts svg").count() == 3
    assert page.locator(".charts svg").first.get_attribute("aria-label")
    page.click("summary")
    assert page.locator("tbody tr").count() >= 1


def test_a_page_refreshes_if_its_user_wants_it(page, server):
    page.clock.install()
    page.goto("/topics")
    page.check("#refresh")
    page.evaluate("document.activeElement.blur()")
    topic = server.create_topic()
    page.clock.run_for(11_000)
    page.wait_for_selector(f"text={topic}")


def test_pages_work_without_javascript(chromium, url):
    page = chromium.new_context(java_script_enabled=False, base_url=url).new_page()
    page.goto("/topics")
    page.click("summary")
    page.fill("#create-name", "without-script")
    page.click("form[action='/topics/create'] button")
    assert page.url.endswith("/topic?name=without-script&done=topic_created")
    page.click("summary:has-text('Delete')")
    page.fill("#delete-confirm", "wrong")
    page.click("form[action='/topic/delete'] button")
    assert "Nothing was changed" in page.inner_text("main")
    page.context.close()
