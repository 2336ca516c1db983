"""ACL files: reading, reloading after a change, and changes by requests."""

import os

import pytest

from pocketmq.broker.access.acl.access_rules import PUB, SUB, AclError
from pocketmq.broker.access.acl.plain_permission import PlainPermissionManager
from pocketmq.runtime.clock import VirtualClock
from tests.broker.acl_files import MORE_ACL, PLAIN_ACL, acl_home

NOW_MS = 1_795_322_731_934
# The file that Apache 4.9.4 wrote for the same call.
AFTER_A_NEW_ACCOUNT = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: null
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  - topicD=PUB
  groupPerms:
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB
- accessKey: rocketmq2
  secretKey: '12345678'
  whiteRemoteAddress: 192.168.1.*
  admin: true
- accessKey: longenough
  secretKey: '12345678'
  whiteRemoteAddress: 10.1.*.*
  admin: false
  defaultTopicPerm: DENY
  topicPerms:
  - a=PUB
  - b=SUB
dataVersion:
- counter: 1
  timestamp: 1795322731934
"""
NEW_ACCOUNT = {
    "accessKey": "longenough", "secretKey": "12345678", "whiteRemoteAddress": "10.1.*.*", "admin": False,
    "defaultTopicPerm": "DENY", "topicPerms": ["a=PUB", "b=SUB"],
}  # fmt: skip


def loaded(home):
    manager = PlainPermissionManager(home, VirtualClock(NOW_MS))
    manager.load()
    return manager


def keys(manager):
    return set(manager.rules.accounts)


def test_rules_of_all_files_are_merged(tmp_path):
    home = acl_home(tmp_path, more=MORE_ACL)
    (home / "conf" / "acl" / "deep").mkdir()
    (home / "conf" / "acl" / "deep" / "x.yaml").write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n")
    (home / "conf" / "acl" / "tools.yml").write_text("accessKey: notAnAccount\nsecretKey: 12345678\n")
    (home / "conf" / "acl" / "notes.txt").write_text("{")
    manager = loaded(home)
    assert keys(manager) == {"RocketMQ", "rocketmq2", "moreKeys"}
    assert [manager.rules.is_white(host) for host in ("127.0.0.1", "192.168.0.77", "127.0.0.2")] == [True, True, False]
    assert len(manager.versions()) == 3


def test_permissions_of_accounts_and_admins(tmp_path):
    rules = loaded(acl_home(tmp_path, more=MORE_ACL)).rules
    user, admin, more = (rules.accounts[key] for key in ("RocketMQ", "rocketmq2", "moreKeys"))
    for resource, perm, allowed in [
        ("topicA", PUB, False), ("topicB", PUB, True), ("topicB", SUB, True), ("topicC", PUB, False), ("topicC", SUB, True),
        ("topicD", SUB, False), ("other", PUB, False), ("%RETRY%groupA", SUB, False), ("%RETRY%groupC", SUB, True),
        ("%RETRY%groupC", PUB, False), ("%RETRY%other", SUB, True),
    ]:  # fmt: skip
        assert user.denied([(resource, perm)]) == (None if allowed else resource)
        assert admin.denied([(resource, perm)]) is None
        assert more.denied([(resource, perm)]) is None
    assert user.denied([("topicB", PUB), ("topicA", PUB)]) == "topicA"
    assert admin.is_white("192.168.1.9") and not user.is_white("192.168.1.9")


def test_admin_with_listed_resources_is_restricted_to_them(tmp_path):
    text = "accounts:\n- {accessKey: adminKey, secretKey: 12345678, admin: true, topicPerms: [a=PUB]}\n"
    admin = loaded(acl_home(tmp_path, text)).rules.accounts["adminKey"]
    assert admin.denied([("a", PUB)]) is None
    assert admin.denied([("b", PUB)]) == "b"


def test_first_of_two_accounts_with_the_same_key_is_used(tmp_path, caplog):
    more = "accounts:\n- {accessKey: RocketMQ, secretKey: 12345678, defaultTopicPerm: PUB}\n"
    account = loaded(acl_home(tmp_path, more=more)).rules.accounts["RocketMQ"]
    assert account.denied([("any", PUB)]) is None
    assert "RocketMQ" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [", "plain_acl.yml"),
        ("- a\n", "expected accounts"),
        ("accounts: {a: b}\n", "expected a list of accounts"),
        ("accounts: [{accessKey: short, secretKey: 12345678}]\n", "accessKey=short"),
        ("accounts: [{accessKey: longenough, secretKey: secret}]\n", "secretKey of accessKey=longenough"),
        ("accounts: [{accessKey: longenough}]\n", "secretKey of accessKey=longenough"),
        ("accounts: [{accessKey: longenough, secretKey: 12345678, admin: maybe}]\n", "admin=maybe"),
        ("accounts: [{accessKey: longenough, secretKey: 12345678, topicPerms: [a]}]\n", "resource=permission"),
        ("accounts: [{accessKey: longenough, secretKey: 12345678, groupPerms: {a: b}}]\n", "groupPerms: expected a list"),
        ("accounts: [{accessKey: longenough, secretKey: 12345678, whiteRemoteAddress: x}]\n", "remote address 'x'"),
        ("globalWhiteRemoteAddresses: [x]\n", "remote address 'x'"),
    ],
)  # fmt: skip
def test_invalid_file_is_refused_without_showing_secrets(tmp_path, text, said):
    with pytest.raises(AclError) as caught:
        loaded(acl_home(tmp_path, text))
    assert said in str(caught.value)
    assert "plain_acl.yml" in str(caught.value)
    assert "12345678" not in str(caught.value)
    assert "secret:" not in str(caught.value)


def test_without_files_there_are_no_accounts(tmp_path, caplog):
    assert keys(loaded(tmp_path)) == set()
    assert "has no accounts: only clients at globalWhiteRemoteAddresses are served" in caplog.text


def test_changed_files_are_read_again(tmp_path):
    home = acl_home(tmp_path)
    manager = loaded(home)
    acl_home(home, PLAIN_ACL.replace("rocketmq2", "rocketmq3"), MORE_ACL)
    manager.reload()
    assert keys(manager) == {"RocketMQ", "rocketmq3", "moreKeys"}
    (home / "conf" / "acl" / "more.yml").unlink()
    manager.reload()
    assert keys(manager) == {"RocketMQ", "rocketmq3"}


@pytest.mark.parametrize("text", ["", "accounts: [\n", "accounts: [{accessKey: x}]\n", "accounts: !!int\n"])
def test_invalid_file_keeps_the_rules_and_is_logged_once(tmp_path, caplog, text):
    home = acl_home(tmp_path)
    manager = loaded(home)
    rules = manager.rules
    acl_home(home, text)
    manager.reload()
    manager.reload()
    assert manager.rules is rules
    assert caplog.text.count("access rules cannot be reloaded") == 1
    acl_home(home, PLAIN_ACL + MORE_ACL.partition("\n")[2].replace("- ", "  - ", 1).replace("\n  ", "\n    "))
    manager.reload()
    assert keys(manager) == {"RocketMQ", "rocketmq2", "moreKeys"}


def test_a_new_account_is_written_as_apache_writes_it(tmp_path):
    home = acl_home(tmp_path)
    manager = loaded(home)
    path = home / "conf" / "plain_acl.yml"
    path.chmod(0o600)
    manager.update_account(NEW_ACCOUNT)
    assert path.read_text() == AFTER_A_NEW_ACCOUNT
    assert [os.stat(name).st_mode & 0o777 for name in (path, f"{path}.bak")] == [0o600, 0o600]
    assert manager.rules.accounts["longenough"].denied([("a", PUB), ("b", SUB)]) is None
    rules = manager.rules
    manager.reload()
    assert manager.rules is rules, "the manager's own write causes no reload"
    assert keys(loaded(home)) == keys(manager)


def test_file_that_the_first_account_creates_is_private(tmp_path):
    manager = PlainPermissionManager(tmp_path, VirtualClock(NOW_MS))
    manager.load()
    manager.update_account(NEW_ACCOUNT)
    assert (tmp_path / "conf" / "plain_acl.yml").stat().st_mode & 0o777 == 0o600


def test_account_is_changed_in_its_own_file(tmp_path):
    home = acl_home(tmp_path, more=MORE_ACL)
    manager = loaded(home)
    change = {"accessKey": "moreKeys", "secretKey": "otherSecret", "admin": True, "groupPerms": ["g=SUB"]}
    manager.update_account(change)
    assert (home / "conf" / "acl" / "more.yml").read_text() == (
        "accounts:\n- accessKey: moreKeys\n  secretKey: otherSecret\n  defaultTopicPerm: PUB|SUB\n"
        f"  defaultGroupPerm: PUB|SUB\n  admin: true\n  groupPerms:\n  - g=SUB\n"
        f"dataVersion:\n- counter: 1\n  timestamp: {NOW_MS}\n"
    )
    assert (home / "conf" / "plain_acl.yml").read_text() == PLAIN_ACL
    manager.delete_account("moreKeys")
    assert keys(manager) == {"RocketMQ", "rocketmq2"}
    assert manager.versions()[str(home / "conf" / "acl" / "more.yml")].counter == 2


def test_manual_edit_before_a_change_is_kept(tmp_path):
    home = acl_home(tmp_path)
    manager = loaded(home)
    acl_home(home, PLAIN_ACL.replace("rocketmq2", "rocketmq3"))
    manager.update_account(NEW_ACCOUNT)
    assert keys(manager) == {"RocketMQ", "rocketmq3", "longenough"}


@pytest.mark.parametrize(
    "change",
    [
        {"accessKey": "short"}, {"secretKey": None}, {"secretKey": "short"}, {"topicPerms": ["a=XX"]}, {"groupPerms": ["a"]},
        {"whiteRemoteAddress": "300.1.1.1"},
    ],
)  # fmt: skip
def test_invalid_change_is_refused_without_effect(tmp_path, change):
    home = acl_home(tmp_path)
    manager = loaded(home)
    with pytest.raises(AclError):
        manager.update_account(NEW_ACCOUNT | change)
    assert (home / "conf" / "plain_acl.yml").read_text() == PLAIN_ACL
    assert keys(manager) == {"RocketMQ", "rocketmq2"}


def test_white_list_of_a_file_is_replaced(tmp_path):
    home = acl_home(tmp_path, more=MORE_ACL)
    manager = loaded(home)
    manager.update_global_white_addresses(["127.0.0.1"], None)
    manager.update_global_white_addresses(["127.0.0.2"], str(home / "conf" / "acl" / "more.yml"))
    assert manager.global_white_addresses() == ["127.0.0.2", "127.0.0.1"]
    assert manager.rules.is_white("127.0.0.1") and not manager.rules.is_white("192.168.0.5")
    outside = tmp_path / "elsewhere.yml"
    outside.write_text("accounts: []\n")
    for path in (str(outside), "/etc/passwd", str(home / "conf" / ".." / "elsewhere.yml")):
        with pytest.raises(AclError, match="not one of the ACL files"):
            manager.update_global_white_addresses(["127.0.0.3"], path)
    with pytest.raises(AclError, match="10.10.154.999"):
        manager.update_global_white_addresses(["10.10.154.999"], "")
    assert outside.read_text() == "accounts: []\n"


def test_deleting_an_unknown_account_is_refused(tmp_path):
    with pytest.raises(AclError, match="nobodyAtAll"):
        loaded(acl_home(tmp_path)).delete_account("nobodyAtAll")
