"""With access rules at the brokers the console asks for an account, and the broker's rights decide what it does."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from pocketmq.cli.processes import start_up
from pocketmq.client.access import PLAIN, Access
from pocketmq.console.accounts import Accounts
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.pages import access, configuration, groups, topics
from pocketmq.remoting.signature import Credentials

ROOT, SECRET = "root", "rootSecret"
ACCOUNTS = f"""\
accounts:
- accessKey: rootKey
  secretKey: {SECRET}
  admin: true
- accessKey: readerKey
  secretKey: readerSecret
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""


@pytest.fixture(scope="module")
def of_5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a broker with users of 5.x."""
    user = json.dumps({"username": ROOT, "password": SECRET})
    settings = ("authenticationEnabled=true", "authorizationEnabled=true", f"initAuthenticationUser={user}")
    server = start_up(tmp_path_factory.mktemp("of_5"), "--memory", *(word for one in settings for word in ("--set", one)))
    yield server.address
    server.stop()


@pytest.fixture(scope="module")
def of_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a broker with accounts of 4.9."""
    folder = tmp_path_factory.mktemp("of_4")
    (folder / "conf").mkdir()
    (folder / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    server = start_up(folder, "--memory", "--set", "aclEnable=true", "--set", f"rocketmqHome={folder}")
    yield server.address
    server.stop()


CHANGES = {
    "/topics/create": {"name": "new", "queues": "1", "kind": "NORMAL", "broker": ""},
    "/topic/change": {"name": "TBW102", "queues": "1", "perm": "none"},
    "/topic/delete": {"name": "orders", "confirm": "orders"},
    "/topic/send": {"topic": "orders", "body": "x"},
    "/group/reset": {"name": "g", "topic": "orders", "to": "earliest", "confirm": "g"},
    "/group/delete": {"name": "g", "confirm": "g"},
    "/user/save": {"new": "1", "name": "mallory", "password": "mallorySecret", "type": "Super"},
    "/user/delete": {"name": "root", "generation": "5.x", "confirm": "root"},
    "/user/acl": {"name": "bob", "resources": "Topic:*", "actions": "All", "decision": "Allow"},
    "/user/acl/delete": {"name": "bob", "resource": "Topic:*"},
    "/user/account": {"name": "mallory", "secret": "mallorySecret", "topic_perm": "PUB|SUB", "group_perm": "SUB"},
    "/configuration/change": {"broker": "pocketmq", "key": "fileReservedTime", "value": "1"},
}


def signed_in(browser, name, secret):
    answer = browser.submit("/sign-in", "/sign-in", accessKey=name, secretKey=secret, then="/")
    assert answer.status_code == 200, answer.text
    return browser


@pytest.mark.parametrize("rules", ["of_4", "of_5"])
@pytest.mark.parametrize("page", ["/topics", "/groups", "/configuration", "/users"])
def test_a_page_asks_for_an_account_and_opens_after_the_sign_in(request, browser_of, rules, page):
    browser = browser_of(request.getfixturevalue(rules))
    asked = browser.get(page)
    assert str(asked.url).endswith(f"/sign-in?then=%2F{page[1:]}")
    name = ROOT if rules == "of_5" else "rootKey"
    answer = browser.submit(str(asked.url), "/sign-in", accessKey=name, secretKey=SECRET, then=page)
    assert answer.status_code == 200
    assert answer.url.path == page
    assert f"Signed in as {name}" in answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize(("name", "secret"), [(ROOT, "wrong"), ("unknown", SECRET), ("x" * 2000, "y"), ("", "")])
@pytest.mark.parametrize("rules", ["of_4", "of_5"])
def test_a_wrong_account_is_refused(request, browser_of, rules, name, secret):
    browser = browser_of(request.getfixturevalue(rules))
    answer = browser.submit("/sign-in", "/sign-in", accessKey=name, secretKey=secret, then="/")
    assert answer.status_code == 403
    assert "do not know this account" in answer.text
    assert "Signed in" not in browser.get("/sign-in").text


def test_signing_out_ends_the_session_also_for_its_cookie(of_5, browser_of):
    browser = signed_in(browser_of(of_5), ROOT, SECRET)
    cookies = dict(browser.cookies)
    assert browser.get("/topics").url.path == "/topics"
    browser.submit("/topics", "/sign-out")
    browser.cookies.update(cookies)
    assert browser.get("/topics").url.path == "/sign-in"


def test_too_many_sessions_end_the_one_that_is_unused_for_longest(of_5, browser_of):
    browser = signed_in(browser_of(of_5, console_sessions_max=1), ROOT, SECRET)
    first = dict(browser.cookies)
    browser.cookies.clear()
    signed_in(browser, ROOT, SECRET)
    assert browser.get("/topics").url.path == "/topics"
    browser.cookies.clear()
    browser.cookies.update(first)
    assert browser.get("/topics").url.path == "/sign-in"


def test_a_link_of_another_site_opens_again_before_the_console_asks_for_an_account(of_5, browser_of):
    browser = browser_of(of_5)
    answer = browser.get("/topics?q=a&sort=-kind", headers={"sec-fetch-site": "cross-site"})
    assert answer.url.path == "/topics"
    assert 'content="0; url=/topics?q=a&amp;sort=-kind"' in answer.text
    assert browser.get("/topics", headers={"sec-fetch-site": "same-origin"}).url.path == "/sign-in"


def test_the_consoles_own_account_samples_and_gives_its_rights_to_no_visitor(of_5, browser_of):
    root = signed_in(browser_of(of_5, Access(Credentials(ROOT, SECRET)), console_write=True), ROOT, SECRET)
    for _ in range(100):
        if root.get("/charts/data").json()["brokers"]:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the console samples no broker")
    root.submit("/users", "/user/save", new="1", name="carol", password="carolSecret", type="Normal")
    root.cookies.clear()
    assert root.get("/charts/data").url.path == "/sign-in"
    carol = signed_in(root, "carol", "carolSecret")
    assert carol.get("/charts/data").json() == {"brokers": {}}


async def test_a_session_ends_when_it_is_not_used(of_5):
    now_s = [1000.0]
    accounts = Accounts(ConsoleConfig(namesrv_addr=of_5, console_session_idle_minutes=1), PLAIN, lambda: now_s[0])
    session = await accounts.sign_in(ROOT, SECRET)
    for _ in range(3):
        now_s[0] += 50
        assert accounts.of(session).name == ROOT
    now_s[0] += 61
    assert accounts.of(session).name == ""
    await accounts.end_idle()
    assert not accounts.sessions
    await accounts.close()


def test_an_account_without_rights_changes_nothing(of_5, browser_of):
    routes = (route for module in (topics, groups, access, configuration) for route in module.ROUTES)
    assert set(CHANGES) == {route.path for route in routes if "POST" in route.methods}
    root = signed_in(browser_of(of_5, console_write=True), ROOT, SECRET)
    root.submit("/users", "/user/save", new="1", name="bob", password="bobSecret", type="Normal")
    root.submit("/topics", "/topics/create", name="orders", queues="1", kind="NORMAL", broker="")
    pages = (
        "/topics?all=1",
        "/topic?name=orders",
        "/groups",
        "/users",
        "/user?name=bob",
        "/configuration?q=fileReservedTime",
    )
    before = [main_of(root.get(page).text) for page in pages]
    bob = signed_in(browser_of(of_5, console_write=True), "bob", "bobSecret")
    for path, form in CHANGES.items():
        answer = bob.submit("/sign-in", path, **form)
        assert (answer.status_code, answer.url.path) == (403, path)
    assert [main_of(root.get(page).text) for page in pages] == before


def main_of(page: str) -> str:
    """Return the content of a page without the tokens of its forms."""
    return re.sub(r'value="[0-9a-f]{64}"', "", page.partition("<main")[2])


def test_users_of_5_are_created_allowed_and_deleted_and_their_rights_decide(of_5, browser_of):
    root = signed_in(browser_of(of_5, console_write=True), ROOT, SECRET)
    assert (
        root.submit("/users", "/user/save", new="1", name="alice", password="aliceSecret", type="Normal").url.path == "/user"
    )
    acl = {"name": "alice", "resources": "Topic:*, Cluster:*", "actions": "List", "decision": "Allow", "sources": ""}
    page = "/user?name=alice&generation=5.x"
    assert "Topic:*" in root.submit(page, "/user/acl", **acl).text
    alice = signed_in(browser_of(of_5, console_write=True), "alice", "aliceSecret")
    refused = alice.submit("/sign-in", "/topics/create", name="hers", queues="1", kind="NORMAL", broker="")
    assert refused.status_code == 403
    assert "hers" not in root.get("/topics").text
    assert root.submit(page, "/user/acl/delete", name="alice", resource="Topic:*").status_code == 200
    assert "Topic:*" not in root.get(page).text
    changed = root.submit(page, "/user/save", name="alice", password="", type="Normal", status="disable")
    assert "disable" in changed.text
    assert root.submit(page, "/user/delete", name="alice", generation="5.x", confirm="bob").status_code == 400
    assert "The user is deleted." in root.submit(page, "/user/delete", name="alice", generation="5.x", confirm="alice").text
    assert "alice" not in root.get("/users").text


def test_accounts_of_4_are_created_changed_and_deleted_and_their_rights_decide(of_4, browser_of):
    root = signed_in(browser_of(of_4, console_write=True), "rootKey", SECRET)
    fields = {"name": "senderKey", "secret": "senderSecret", "addresses": "", "topic_perm": "DENY", "group_perm": "SUB"}
    created = root.submit("/users", "/user/account", **fields, topics="orders=PUB", groups="")
    assert "orders=PUB" in created.text
    assert "senderSecret" not in created.text
    reader = signed_in(browser_of(of_4, console_write=True), "readerKey", "readerSecret")
    for path, form in {
        "/topics/create": {"name": "his", "queues": "1", "kind": "NORMAL", "broker": ""},
        "/user/delete": {"name": "senderKey", "generation": "4.9", "confirm": "senderKey"},
        "/configuration/change": {"broker": "pocketmq", "key": "fileReservedTime", "value": "24"},
    }.items():
        assert reader.submit("/sign-in", path, **form).status_code == 403
    page = "/user?name=senderKey&generation=4.9"
    assert (
        "SUB"
        in root.submit(page, "/user/account", **{**fields, "secret": "", "topic_perm": "SUB"}, topics="", groups="").text
    )
    done = root.submit(page, "/user/delete", name="senderKey", generation="4.9", confirm="senderKey")
    assert "The user is deleted." in done.text
    assert "senderKey" not in root.get("/users").text
