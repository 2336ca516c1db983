"""The console in headless Chromium at Apache's servers of 4.9.4 and 5.5.0: only with POCKETMQ_LONG=true."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console import filled
from tests.console.browsing import Visitor, module_browser, served  # noqa: F401
from tests.interop.conftest import apache_cluster
from tests.interop.servers import Cluster
from tests.interop.wire import Connection

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(1200),
    pytest.mark.long,
]


@pytest.fixture(scope="module", params=["4.9.4", "5.5.0"])
def apaches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with apache_cluster(tmp_path_factory.mktemp(f"console-{request.param}"), request.param) as running:
        with Connection(running.broker_address) as connection:
            filled.messages(connection)
            filled.by_level(connection)
        filled.send_traced(running.namesrv_address)
        yield running


@pytest.fixture
def visitor(browser: Browser, apaches: Cluster) -> Iterator[Visitor]:
    with served(apaches.namesrv_address) as url:
        visiting = Visitor(browser, url)
        yield visiting
        visiting.close()


def test_a_message_is_found_by_key_and_sent_again(visitor, apaches):
    visitor.open(f"/messages?topic={filled.ORDERS}&key=order-7")
    visitor.follow("ORDER0007")
    visitor.page.get_by_label("Keys").fill("from-the-browser")
    visitor.press("Send again")
    visitor.sees("The message was sent again")
    with Connection(apaches.broker_address) as connection:
        assert [one.body for one in connection.query(filled.ORDERS, "from-the-browser")] == [b'{"order": 7}']


def test_all_messages_are_listed_page_by_page(visitor):
    for order in ("newest", "oldest"):
        visitor.open(f"/messages?topic={filled.ORDERS}&order={order}&to=2100-01-01T00:00")
        found = visitor.page.get_by_role("rowheader").all_text_contents()
        while visitor.page.get_by_role("link", name="Next page").count():
            visitor.follow("Next page")
            found += visitor.page.get_by_role("rowheader").all_text_contents()
        assert {f"ORDER{number:04d}" for number in range(filled.ORDERS_COUNT)} <= {one.strip() for one in found}


def test_a_trace_is_followed(visitor):
    visitor.open("/messages?topic=Traced&key=traced-1")
    visitor.page.get_by_role("rowheader").get_by_role("link").click()
    visitor.sees("look at my trace")
    assert visitor.page.get_by_role("rowheader", name="sent").count() == 1


def test_a_dead_letter_is_sent_again_once(visitor, apaches):
    visitor.open("/dead-letters")
    visitor.follow(filled.GROUP)
    visitor.press("Send Shop-DEAD-1 again")
    visitor.sees("was sent to its original topic again")
    visitor.press("Send Shop-DEAD-1 again")
    visitor.sees("was sent again before")
    with Connection(apaches.broker_address) as connection:
        connection.wait_for_max_offset("Bought", 0, 4)
        assert connection.max_offset("Bought", 0) == 4


def test_the_delayed_page_shows_what_apache_tells_and_says_what_it_does_not(visitor):
    visitor.open("/delayed")
    visitor.sees("They cannot list them by due time")
    shown = visitor.page.locator("main").text_content() or ""
    assert "Level 18: 2" in shown
    visitor.follow("Records that wait at delay levels")
    visitor.sees("LEVEL-0")
