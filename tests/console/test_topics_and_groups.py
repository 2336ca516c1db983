"""Topics and groups as a person looks after them: create, send, read, change, reset, delete."""

import asyncio
import html
import re
from datetime import datetime

import pytest

from pocketmq.client.consumer import PushConsumer
from pocketmq.sync import Producer
from tests.console.conftest import connected_producer


@pytest.fixture
def topic(server):
    return server.create_topic(queues=2)


def cells(page: str, first: str) -> list[str]:
    """Return the texts of the table row whose heading is `first`."""
    for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL):
        texts = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        if texts and texts[0] == first:
            return texts
    raise AssertionError(f"no row {first!r}")


def link_of(page: str, text: str) -> str:
    """Return the address of a link by its text."""
    return html.unescape(re.search(f'<a href="([^"]+)">{text}</a>', page)[1])


def test_a_topic_is_created_and_is_in_the_list(browser):
    answer = browser.submit("/topics", "/topics/create", name="orders", queues="3", kind="FIFO", broker="")
    assert "The topic is created." in answer.text
    assert str(answer.url).endswith("/topic?name=orders&done=topic_created")
    assert cells(browser.get("/topics").text, "orders")[1:4] == ["FIFO", "3", "rw"]


@pytest.mark.parametrize(
    ("field", "value"), [("name", " "), ("queues", "0"), ("queues", "65537"), ("queues", "x"), ("kind", "RETRY")]
)
def test_a_wrong_field_is_named(browser, field, value):
    fields = {"name": "wrong", "queues": "1", "kind": "NORMAL", "broker": "", field: value}
    answer = browser.submit("/topics", "/topics/create", **fields)
    assert answer.status_code == 400
    assert f"{field}" in answer.text


def test_what_a_broker_refuses_is_said(browser):
    answer = browser.submit("/topics", "/topics/create", name="a b", queues="1", kind="NORMAL", broker="")
    assert answer.status_code == 502
    assert "illegal characters" in answer.text


def test_a_topic_is_changed(browser, topic):
    answer = browser.submit(f"/topic?name={topic}", "/topic/change", name=topic, queues="5", perm="r")
    assert "The topic is changed." in answer.text
    assert cells(browser.get("/topics").text, topic)[2:4] == ["5", "r"]


def test_a_message_is_sent_and_counted(browser, topic):
    fields = {
        "topic": topic,
        "body": "hello\r\nworld",
        "tags": "a",
        "keys": "k1 k2",
        "properties": "x=1\r\n y = 2 =",
        "delay": "",
    }
    sent = browser.submit(f"/topic?name={topic}", "/topic/send", **fields)
    assert "The message is sent" in sent.text
    page = browser.get(f"/topic?name={topic}").text
    assert "NORMAL · messages: 1 · brokers: 1" in page
    assert "k1 k2" in browser.get(link_of(page, "Messages of this topic")).text


def test_a_property_without_a_value_is_refused(browser, topic):
    answer = browser.submit(f"/topic?name={topic}", "/topic/send", topic=topic, body="x", properties="nothing")
    assert answer.status_code == 400
    assert "nothing" in answer.text


def test_a_topic_is_deleted_only_if_its_name_is_typed(browser, topic):
    refused = browser.submit(f"/topic?name={topic}", "/topic/delete", name=topic, confirm=topic[:-1])
    assert refused.status_code == 400
    assert topic in browser.get("/topics").text
    done = browser.submit(f"/topic?name={topic}", "/topic/delete", name=topic, confirm=topic)
    assert "The topic is deleted." in done.text
    assert topic not in browser.get("/topics").text


def test_a_topic_of_the_system_is_not_deleted(browser):
    answer = browser.submit("/topics", "/topic/delete", name="TBW102", confirm="TBW102")
    assert answer.status_code == 400
    assert "TBW102" in browser.get("/topics?all=1").text


async def test_a_group_with_a_client_is_shown_reset_and_deleted(server, browser, topic):
    group = f"group-{topic}"
    with Producer(server.namesrv_address) as producer:
        for number in range(6):
            producer.send(topic, b"%d" % number)

    async def open_page(path: str) -> str:
        return (await asyncio.to_thread(browser.get, path)).text

    seen = asyncio.Event()
    consumer = PushConsumer(server.namesrv_address, group, start="first")
    consumer.subscribe(topic, lambda message: seen.set())
    async with consumer:
        await asyncio.wait_for(seen.wait(), 30)
        page = await open_page(f"/group?name={group}")
        assert "CONSUME_PASSIVELY, CLUSTERING" in page
        link = re.search(r'href="(/client\?[^"]+)"', page)[1].replace("&amp;", "&")
        client = await open_page(link)
        assert topic in client and "PROP_CONSUME_TYPE" in client
        stacks = await open_page(f"{link}&stacks=1")
        assert "<pre" in stacks and "test_topics_and_groups" in stacks
        assert cells(await open_page("/groups"), group)[2] == "1"
        assert topic in await open_page(f"/topic?name={topic}")
    page = f"/group?name={group}"
    assert "Lag 0," in browser.get(page).text
    dead_letters = browser.get(link_of(browser.get(page).text, "Dead letters of this group"))
    assert (dead_letters.status_code, dead_letters.url.path) == (200, "/dead-letters/group")
    fields = {"name": group, "topic": topic, "to": "earliest", "time": "", "confirm": group}
    assert "The offset is reset." in browser.submit(page, "/group/reset", **fields).text
    assert "Lag 6," in browser.get(page).text
    assert cells(browser.get(f"/topic?name={topic}").text, group)[1] == "6"
    later = datetime.fromtimestamp(server.now_ms / 1000 + 3600).isoformat(timespec="seconds")
    assert browser.submit(page, "/group/reset", **{**fields, "to": "time", "time": later}).status_code == 200
    assert "Lag 0," in browser.get(page).text
    assert browser.submit(page, "/group/reset", **{**fields, "to": "time", "time": "today"}).status_code == 400
    assert browser.submit(page, "/group/delete", name=group, confirm="").status_code == 400
    assert "The group is deleted." in browser.submit(page, "/group/delete", name=group, confirm=group).text
    assert group not in browser.get("/groups").text


async def test_producers_are_shown_also_those_of_a_topic_and_a_group(server, browser, topic):
    async with connected_producer(server.namesrv_address, "10.0.0.7@1#2", "the-producers"):
        for link in ("/producers", f"/producers?topic={topic}", f"/producers?topic={topic}&group=the-producers"):
            page = await asyncio.to_thread(browser.get, link)
            assert cells(page.text, "the-producers")[1:4:2] == ["10.0.0.7@1#2", "PYTHON"]


def test_a_list_is_filtered_sorted_and_divided_by_its_link(server, browser):
    for number in range(30):
        server.create_topic(f"listed-{number:02}", queues=1 + number % 3)
    page = browser.get("/topics?q=LISTED&sort=-topic&size=25").text
    assert re.findall(r">(listed-\d\d)<", page) == [f"listed-{number:02}" for number in range(29, 4, -1)]
    following = re.search(r'rel="next" href="([^"]+)"', page)[1].replace("&amp;", "&")
    assert following == "/topics?q=LISTED&sort=-topic&size=25&page=2"
    assert re.findall(r">(listed-\d\d)<", browser.get(following).text) == [f"listed-{n:02}" for n in range(4, -1, -1)]
    by_queues = browser.get("/topics?q=listed&sort=-queues").text
    assert re.findall(r">(listed-\d\d)<", by_queues)[0] == "listed-02"
    assert "Nothing matches the filter." in browser.get("/topics?q=no-such-topic").text


@pytest.mark.parametrize(
    "query", ["page=-1", "page=999999999999", "size=7", "sort=nothing", "sort=-", "page=x", "q=" + "%" * 2000]
)
def test_any_query_gives_a_list(browser, query):
    assert browser.get(f"/topics?{query}").status_code == 200
