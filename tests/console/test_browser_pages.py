"""The console in headless Chromium: what people do, without a mouse as well, and what attackers try.

One cluster and one browser serve all tests. axe-core checks the pages in both languages, light and dark, wide and narrow.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from pocketmq.testing import PocketMQ
from tests.console import filled
from tests.console.browsing import NARROW, Visitor, module_browser, served  # noqa: F401
from tests.interop.wire import Connection


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQ]:
    with PocketMQ(tmp_path_factory.mktemp("server")) as running:
        filled.fill(running.namesrv_address, running.broker_address)
        yield running


@pytest.fixture(scope="module")
def console(server: PocketMQ) -> Iterator[str]:
    """Address of a console that may change things."""
    with served(server.namesrv_address) as url:
        yield url


@pytest.fixture
def visitor(browser: Browser, console: str) -> Iterator[Visitor]:
    visiting = Visitor(browser, console)
    yield visiting
    visiting.close()
    assert visiting.problems == [], "no script fails, and nothing is loaded that the policy forbids"


def pages() -> list[str]:
    """Return a link to each kind of page."""
    place = "broker=broker-a&queue=0&offset=0"
    return [
        "/messages",
        "/dead-letters",
        "/delayed",
        f"/messages?topic={filled.ORDERS}",
        "/messages?topic=Odd",
        f"/message?topic=Odd&{place}",
        f"/message?topic=Traced&{place}",
        f"/dead-letters/group?group={filled.GROUP}",
    ]


# --- what people do ---------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_its_key_and_its_trace_is_followed(visitor):
    visitor.open("/messages")
    visitor.page.get_by_label("Topic", exact=True).first.fill("Traced")
    visitor.page.get_by_label("Key", exact=True).fill("traced-1")
    visitor.press("Search")
    visitor.page.get_by_role("rowheader").get_by_role("link").click()
    visitor.sees("look at my trace")
    visitor.sees("Message trace")
    assert visitor.page.get_by_role("rowheader", name="sent").count() == 1


def test_a_message_is_sent_and_a_group_is_reset(visitor, server):
    with Connection(server.broker_address) as connection:
        connection.create_topic("Sent", 1)
        connection.subscribe("Reader", "Sent")
        connection.send("Sent", 0, b"read")
        connection.commit("Reader", "Sent", 0, 1)
        visitor.open("/topics")
        visitor.follow(re.compile("^Sent$"))
        visitor.page.locator("summary", has_text="Send a message").click()
        visitor.page.get_by_label("Body").fill("typed by a person")
        visitor.press("Send a message")
        visitor.page.wait_for_url("**/topic/sent**")
        assert [one.body for one in connection.read_queue("Sent", 0, "Reader")] == [b"read", b"typed by a person"]
        visitor.open("/groups")
        visitor.follow(re.compile("^Reader$"))
        visitor.page.locator("summary", has_text="Reset").click()
        form = visitor.page.locator("form[action='/group/reset']")
        form.locator("[name=to]").select_option("earliest")
        form.get_by_label("Type Reader to confirm").fill("Reader")
        form.get_by_role("button").click()
        visitor.page.wait_for_url("**done=group_reset**")
        assert connection.consumer_offset("Reader", "Sent", 0) == 0


def test_a_message_is_sent_again(visitor, server):
    visitor.open(f"/messages?topic={filled.ORDERS}&key=order-11")
    visitor.follow("ORDER0011")
    visitor.page.get_by_label("Keys").fill("from-the-browser")
    visitor.press("Send again")
    visitor.sees("The message was sent again")
    with Connection(server.broker_address) as connection:
        assert [one.body for one in connection.query(filled.ORDERS, "from-the-browser")] == [b'{"order": 11}']


def test_a_dead_letter_is_sent_again(visitor, server):
    visitor.open("/dead-letters")
    visitor.follow(filled.GROUP)
    visitor.press("Send Shop-DEAD-1 again")
    visitor.sees("was sent to its original topic again")
    with Connection(server.broker_address) as connection:
        assert connection.max_offset("Bought", 0) == 4


def test_a_delayed_message_is_cancelled_only_by_its_name(visitor):
    visitor.open("/delayed?size=100")
    visitor.follow(re.compile("^TIMER-9$"))
    button = visitor.page.get_by_role("button", name="Cancel the message")
    assert button.is_disabled()
    visitor.page.get_by_label("Type TIMER-9 to confirm").fill("TIMER-9")
    button.click()
    visitor.sees("The message is cancelled")
    assert visitor.page.get_by_role("link", name="TIMER-9", exact=True).count() == 0


def test_the_clock_is_advanced(visitor, server):
    visitor.open("/delayed")
    visitor.page.get_by_label("Amount").fill("1")
    visitor.page.get_by_label("Unit").select_option(label="minutes")
    visitor.press("Advance the test clock")
    visitor.sees("The clock was advanced")
    with Connection(server.broker_address) as connection:
        assert connection.max_offset("Later", 0) == 2, "those of level 3 are delivered"


def test_pages_of_a_list_follow_each_other(visitor):
    visitor.open(f"/messages?topic={filled.ORDERS}")
    first = visitor.page.get_by_role("rowheader").all_text_contents()
    visitor.follow("Next page")
    second = visitor.page.get_by_role("rowheader").all_text_contents()
    assert len(first) == len(second) == 20 and not set(first) & set(second)
    visitor.follow("First page")
    assert visitor.page.get_by_role("rowheader").all_text_contents() == first


# --- access for all ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "viewport", "locale"),
    [
        pytest.param("light", None, "en-US", id="light", marks=pytest.mark.long),
        pytest.param("dark", NARROW, "zh-CN", id="dark-narrow-Chinese"),
    ],
)
def test_each_page_has_no_serious_barrier(browser, console, scheme, viewport, locale):
    visitor = Visitor(
        browser, console, color_scheme=scheme, locale=locale, bypass_csp=True, **({"viewport": viewport} if viewport else {})
    )
    found = []
    for link in pages():
        visitor.open(link)
        found += visitor.barriers()
        width = visitor.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, f"{link} is wider than its window by {width}"
    visitor.close()
    assert found == []


def test_the_keyboard_alone_finds_a_message_and_sends_it_again(visitor):
    visitor.open("/messages")
    visitor.page.keyboard.press("Tab")
    assert "Skip to the content" in visitor.page.evaluate("document.activeElement.textContent")
    visitor.page.keyboard.press("Enter")
    visitor.tab_to("Topic")
    visitor.page.keyboard.type(filled.ORDERS)
    visitor.tab_to("Key")
    visitor.page.keyboard.type("order-13")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url("**key=order-13**")
    visitor.tab_to("ORDER0013")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url("**/message?**")
    visitor.tab_to("Keys")
    visitor.page.keyboard.type("-by-keyboard")
    visitor.tab_to("Send again")
    visitor.page.keyboard.press("Enter")
    visitor.sees("The message was sent again")


# --- attacks ----------------------------------------------------------------------------------------------------------


def test_text_from_clients_never_runs(visitor):
    for link in ("/messages?topic=Odd", f"/messages?topic={filled.ATTACK}", f"/message?id={filled.ATTACK}"):
        visitor.open(link)
        assert not visitor.is_attacked(), link
    visitor.problems = [one for one in visitor.problems if "Failed to load resource" not in one]  # pages of errors
    visitor.open("/messages?topic=Odd")
    for name in ("ODD", "COMPRESSED"):
        visitor.follow(name)
        assert not visitor.is_attacked(), name
        visitor.page.go_back()


def test_another_site_cannot_change_anything(browser, console, server):
    """A page of another origin posts a form in the name of the visitor, who has the console open."""
    visitor = Visitor(browser, console)
    visitor.open("/delayed")
    fields = '<input name="amount" value="9"><input name="unit" value="days">'
    form = f'<form method="post" action="{console}delayed/advance">{fields}</form>'
    visitor.page.route("http://evil.test/", lambda route: route.fulfill(body=form, content_type="text/html"))
    before = server.now_ms
    visitor.open("http://evil.test/")
    visitor.page.evaluate("document.forms[0].submit()")
    visitor.sees("The request came from another site.")
    assert server.now_ms == before
    visitor.close()


def test_a_broker_that_hangs_is_named_and_costs_seconds(browser, server):
    with served(server.namesrv_address, timeout_s=1) as url:
        visitor = Visitor(browser, url)
        server.pause()
        try:
            for link in ("/messages?topic=Orders", "/dead-letters", "/delayed"):
                visitor.open(link)
                assert re.search(r"does not answer", visitor.page.content()), link
        finally:
            server.resume()
            visitor.close()
