"""Pages about messages, dead letters and delayed messages, as a browser without JavaScript gets them."""

import html
import json
import re
from collections.abc import Iterator

import pytest

from pocketmq.console.bodies import shown as shown_body
from pocketmq.testing import PocketMQ
from tests.console import filled
from tests.console.conftest import Browser, Opened
from tests.interop.wire import Connection


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQ]:
    """A broker with a test clock, so that delayed messages are due when a test wants it."""
    with PocketMQ(tmp_path_factory.mktemp("server")) as running:
        filled.fill(running.namesrv_address, running.broker_address)
        yield running


@pytest.fixture
def connection(server: PocketMQ) -> Iterator[Connection]:
    with Connection(server.broker_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(server: PocketMQ, browser_of: Opened) -> Browser:
    """A browser at a read-only console."""
    return browser_of(server.namesrv_address, console_request_timeout_seconds=30)


def shown(browser: Browser, path: str, **query: str) -> str:
    answer = browser.get(path, params=query or None)
    assert answer.status_code == 200, answer.text
    return answer.text


def links(page: str, to: str) -> list[str]:
    """Return the links of a page that begin with an address."""
    return [html.unescape(found) for found in re.findall(r'href="([^"]+)"', page) if found.startswith(to)]


def orders(page: str) -> list[int]:
    """Return the numbers of the orders that a list shows, in its order."""
    return [int(number) for number in re.findall(r">ORDER(\d+)<", page)]


def message(browser: Browser, msg_id: str, topic: str, **query: str) -> str:
    answer = browser.get("/messages/find", params={"id": msg_id, "topic": topic})
    assert answer.status_code == 200, answer.text
    return browser.get(answer.url, params={**dict(answer.url.params), **query}).text


# --- messages ---------------------------------------------------------------------------------------------------------


def all_pages(browser: Browser, **query: str) -> list[list[int]]:
    page = shown(browser, "/messages", topic=filled.ORDERS, **query)
    pages = [orders(page)]
    while following := re.search(r'rel="next" href="([^"]+)"', page):
        page = shown(browser, html.unescape(following[1]))
        pages.append(orders(page))
    return pages


def test_messages_of_all_queues_are_merged_by_time_page_by_page(reader):
    pages = all_pages(reader)
    assert [len(page) for page in pages[:3]] == [20, 20, 20]
    assert sorted(sum(pages, [])) == list(range(filled.ORDERS_COUNT)), "each message is shown once"
    assert sum(all_pages(reader, order="oldest"), []) != sum(pages, [])
    assert sorted(sum(all_pages(reader, order="oldest", size="50"), [])) == list(range(filled.ORDERS_COUNT))


def test_messages_are_found_by_tag_and_by_queue(reader):
    free = [number for number in range(filled.ORDERS_COUNT) if number % 3 == 0]
    assert sorted(sum(all_pages(reader, tags="free"), [])) == free
    (queue,) = {found for found in re.findall(r"<option>([^<]+:2)<", shown(reader, "/messages", topic=filled.ORDERS))}
    assert {number % 4 for number in sum(all_pages(reader, queue=queue), [])} == {2}


def test_a_time_range_leaves_out_what_was_stored_before_and_after(reader):
    assert all_pages(reader, **{"from": "2100-01-01T00:00:00"}) == [[]]
    assert all_pages(reader, to="2001-01-01T00:00") == [[]]
    assert len(sum(all_pages(reader, **{"from": "2001-01-01T00:00", "to": "2100-01-01T00:00"}), [])) == filled.ORDERS_COUNT


def test_a_message_is_found_by_key_and_by_either_id(reader):
    page = shown(reader, "/messages", topic=filled.ORDERS, key="order-7")
    assert orders(page) == [7]
    found = shown(reader, links(page, "/message?")[0])
    assert "order-7" in found and "&#34;order&#34;: 7" in found
    (offset_id,) = set(re.findall(r">([0-9A-F]{32})<", found))
    assert "ORDER0007" in reader.get("/messages/find", params={"id": offset_id}).text
    assert "ORDER0007" in message(reader, "ORDER0007", filled.ORDERS)


def test_an_id_that_names_another_address_is_not_followed(reader):
    foreign = "0A00000100002A9F0000000000000000"  # 10.0.0.1:10911
    answer = reader.get("/messages/find", params={"id": foreign})
    assert answer.status_code == 502 and "is not a message id of a broker of this cluster" in answer.text


@pytest.mark.parametrize(
    ("msg_id", "form", "text"),
    [
        ("ODD", "text", "&lt;script&gt;window.hacked=1"),
        ("BINARY", "", "00000000  00 01 02 03"),
        ("COMPRESSED", "text", "small small"),
        ("ORDER0003", "json", "{\n  &#34;order&#34;: 3\n}"),
        ("ORDER0003", "hex", "7b 22 6f 72"),
        ("LONG", "text", "Only the beginning is shown."),
    ],
)
def test_a_body_is_shown_as_text_as_json_and_in_hex(reader, msg_id, form, text):
    topic = filled.ORDERS if msg_id.startswith("ORDER") else "Odd"
    page = message(reader, msg_id, topic, **({"as": form} if form else {}))
    assert text in page
    assert len(page) < 120_000


def test_a_deep_document_is_shown_as_text():
    deep = b"[" * 900 + b"1," * 100_000 + b"1" + b"]" * 900
    assert shown_body(deep, "json").form == "text"
    assert shown_body(b"[" * 100_000, "json").form == "text"
    assert shown_body(b'{"a": "\\ud800"}', "json").text == '{\n  "a": "?"\n}'


def test_a_body_is_downloaded_as_it_is(reader):
    answer = reader.get(links(message(reader, "BINARY", "Odd"), "/message/body")[0])
    assert answer.content == bytes(range(256)) * 40
    assert answer.headers["content-disposition"].startswith("attachment") and "html" not in answer.headers["content-type"]


def test_names_and_bodies_are_never_markup(reader):
    for page in (shown(reader, "/messages", topic="Odd"), message(reader, "ODD", "Odd")):
        assert "<img" not in page and "<script>" not in page and "<b>tag" not in page
        assert "&lt;b&gt;tag" in page


def test_consumption_retries_and_trace_of_a_message_are_shown(reader, connection):
    page = message(reader, f"{filled.GROUP}-DEAD-0", "Bought")
    assert ">Shop</a>" in page and "dead letter</a>" in page
    traced = shown(reader, links(shown(reader, "/messages", topic="Traced"), "/message?")[0])
    assert re.search(r">sent</th><td class=\"text\">traced<", traced), traced
    assert "No client has sent trace data" in page


def test_a_message_is_sent_again_with_other_keys(server, browser_of, connection):
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    (link,) = links(shown(browser, "/messages", topic=filled.ORDERS, key="order-9"), "/message?")
    query = dict(re.findall(r"(\w+)=([^&]*)", link))
    form = {**query, "to": "Again", "tags": "second", "keys": "again-9", "body": "edited"}
    answer = browser.submit(link, "/message/send-again", **form)
    assert answer.status_code == 200 and "The message was sent again" in answer.text, answer.text
    assert ">edited<" in answer.text and "again-9" in answer.text


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_dead_letter_is_sent_again_once(server, browser_of, connection):
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    filled.make_dead(connection, "Once", 4, "OnceTopic")
    assert ">Once</a>" in shown(browser, "/dead-letters")
    link = "/dead-letters/group?group=Once"
    page = shown(browser, link)
    assert page.count("dead 0") == 1 and ">OnceTopic<" in page
    (broker,) = set(re.findall(r'name="broker" value="([^"]+)"', page))
    one = {"group": "Once", "broker": broker, "queue": "0", "offset": "1"}
    assert "was sent to its original topic again" in browser.submit(link, "/dead-letters/resend", **one).text
    assert "sent again before" in browser.submit(link, "/dead-letters/resend", **one).text
    assert connection.max_offset("OnceTopic", 0) == 5
    done = browser.submit(link, "/dead-letters/resend-all", group="Once").text
    assert "3 sent again, 1 were sent again before, 0 failed" in done
    done = browser.submit(link, "/dead-letters/resend-all", group="Once").text
    assert "0 sent again, 4 were sent again before, 0 failed" in done
    assert connection.max_offset("OnceTopic", 0) == 8


def test_dead_letters_are_sent_again_in_parts_if_there_are_many(server, browser_of, connection, monkeypatch):
    monkeypatch.setattr("pocketmq.console.pages.dead_letters.RESEND_S", 0.0)
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    filled.make_dead(connection, "Many", 120, "ManyTopic")
    link, at, sent = "/dead-letters/group?group=Many", "", []
    while True:
        done = browser.submit(link, "/dead-letters/resend-all", group="Many", at=at).text
        sent.append(int(re.search(r"(\d+) sent again, 0 were", done)[1]))
        following = re.search(r'name="at" value="([^"]+)"', done)
        if following is None:
            break
        at = following[1]
    assert (len(sent), sum(sent)) == (3, 120)


def test_dead_letters_are_exported_as_json_lines(reader):
    answer = reader.get("/dead-letters/export", params={"group": filled.GROUP})
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["properties"]["KEYS"] for row in rows] == ["dead-0", "dead-1", "dead-2"]
    assert "attachment" in answer.headers["content-disposition"]
    assert reader.get("/dead-letters/export", params={"group": "Unknown"}).status_code == 502


# --- delayed messages -------------------------------------------------------------------------------------------------


def delayed_ids(page: str) -> list[str]:
    return re.findall(r">((?:LEVEL|TIMER)-\d+)<", page)


def test_delayed_messages_are_listed_by_due_time_page_by_page(reader):
    page = shown(reader, "/delayed", size="20")
    assert "<svg" in page and "Level 3: 2" in page and "Level 16: 1" in page
    found = delayed_ids(page)
    assert found[:5] == [f"LEVEL-{number}" for number in range(5)] and len(found) == 20
    (following,) = [link for link in links(page, "/delayed?") if "at=" in link]
    assert delayed_ids(shown(reader, following)) == [f"TIMER-{number}" for number in range(15, 30)]
    assert delayed_ids(shown(reader, "/delayed", topic="Orders")) == []
    assert "TIMER-3" in message_of_delayed(reader, "TIMER-3")


def message_of_delayed(browser: Browser, msg_id: str) -> str:
    page = shown(browser, "/delayed", size="100")
    (link,) = re.findall(rf'href="(/delayed/message[^"]+)">{msg_id}<', page)
    return shown(browser, html.unescape(link))


def test_a_delayed_message_is_cancelled_delivered_and_awaited(server, browser_of, connection):
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)

    def change(msg_id: str, path: str, **fields: str) -> str:
        page = message_of_delayed(browser, msg_id)
        hidden = dict(re.findall(r'name="(broker|physicalOffset)" value="([^"]+)"', page))
        return browser.submit("/delayed", path, **hidden, id=msg_id, **fields).text

    assert "was not typed to confirm it" in change("TIMER-0", "/delayed/cancel", confirm="yes")
    assert "it is never delivered" in change("TIMER-0", "/delayed/cancel", confirm="TIMER-0")
    assert "The message was delivered" in change("TIMER-20", "/delayed/deliver")
    assert connection.max_offset("Later", 0) == 1
    assert browser.submit("/delayed", "/delayed/advance", amount="0", unit="hours").status_code == 400
    done = browser.submit("/delayed", "/delayed/advance", amount="5", unit="hours").text
    assert "The clock was advanced" in done
    assert connection.max_offset("Later", 0) == 8, "five of levels, the one delivered before, TIMER-1 and TIMER-2"
    assert not {"TIMER-0", "TIMER-1", "TIMER-2", "TIMER-20"} & set(delayed_ids(shown(browser, "/delayed", size="100")))


# --- refusals ---------------------------------------------------------------------------------------------------------

ACTIONS = (
    "/message/send-again",
    "/dead-letters/resend",
    "/dead-letters/resend-all",
    "/delayed/cancel",
    "/delayed/deliver",
    "/delayed/advance",
)


@pytest.mark.parametrize("path", ACTIONS)
def test_a_change_needs_a_console_that_writes_and_its_own_form(server, reader, browser_of, path):
    assert "read-only" in reader.post(path, data={"csrf": "x"}).text
    browser = browser_of(server.namesrv_address, console_request_timeout_seconds=30, console_write=True)
    browser.get("/delayed")
    assert browser.post(path, data={"csrf": "x"}).status_code == 403
    foreign = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    token = browser.token("/delayed")
    assert browser.post(path, data={"csrf": token}, headers=foreign).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/messages?topic=Orders&at=x",
        "/messages?topic=Orders&from=yesterday",
        "/message?topic=Orders&broker=b&queue=x&offset=1",
        "/delayed?from=x",
        f"/delayed?at=pocketmq:{'1' * 70}",
    ],
)
def test_a_link_that_is_wrong_is_refused(reader, path):
    assert reader.get(path).status_code == 400


def test_what_does_not_exist_is_said(reader):
    assert reader.get("/messages?topic=Nothing").status_code == 404
    assert reader.get("/message?topic=Orders&broker=unknown&queue=0&offset=0").status_code == 502
    assert reader.get("/delayed/message?broker=unknown&id=1").status_code == 502
