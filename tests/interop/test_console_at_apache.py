"""The console at Apache's servers of 4.9.4 and 5.5.0: each page, and the changes of topics, groups and keys.

Two JVMs a version, so it runs with POCKETMQ_LONG=true only.
"""

import re
from collections.abc import Iterator

import pytest

from tests.console.conftest import Browser, Opened, browser_of
from tests.interop.conftest import apache_cluster
from tests.interop.patience import wait
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.long

UNKNOWN = "Not everything on this page is known"

__all__ = ["browser_of"]


@pytest.fixture(scope="module", params=["4.9.4", "5.5.0"])
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apache_cluster(tmp_path_factory.mktemp(f"console-{request.param}"), request.param) as running:
        yield running.namesrv_address


@pytest.fixture(scope="module")
def browser(apache: str, browser_of: Opened) -> Browser:  # noqa: F811
    opened = browser_of(apache, console_write=True)
    # 4.9.4 fails to tell its runtime info in its first second.
    wait(lambda: UNKNOWN not in opened.get("/").text, "the broker to answer", PATIENCE_S)
    return opened


@pytest.mark.parametrize("page", ["/", "/topics", "/topics?all=1", "/groups", "/users", "/configuration", "/charts"])
def test_a_page_is_whole(browser: Browser, page: str) -> None:
    answer = browser.get(page)
    assert answer.status_code == 200
    assert UNKNOWN not in answer.text


def test_a_topic_is_created_sent_to_changed_and_deleted(browser: Browser) -> None:
    fields = {"name": "from-console", "queues": "2", "kind": "NORMAL", "broker": ""}
    assert "The topic is created." in browser.submit("/topics", "/topics/create", **fields).text
    page = "/topic?name=from-console"
    sent = browser.submit(page, "/topic/send", topic="from-console", body="hello", keys="k1")
    assert "The message is sent" in sent.text
    assert "NORMAL · messages: 1 · brokers: 1" in browser.get(page).text
    assert "The topic is changed." in browser.submit(page, "/topic/change", name="from-console", queues="3", perm="rw").text
    deleted = browser.submit(page, "/topic/delete", name="from-console", confirm="from-console")
    assert "The topic is deleted." in deleted.text
    assert "from-console" not in browser.get("/topics").text


def test_a_key_is_changed(browser: Browser) -> None:
    name = re.search(r"/configuration\?broker=([^\"&]+)", browser.get("/configuration").text)
    assert name is not None
    fields = {"broker": name[1], "key": "fileReservedTime", "value": "71"}
    assert "The configuration is changed." in browser.submit("/topics", "/configuration/change", **fields).text
    assert '<td class="text">71</td>' in browser.get(f"/configuration?broker={name[1]}&q=fileReservedTime").text
    assert "/configuration/key?" not in browser.get("/configuration?q=storePathRootDir").text
