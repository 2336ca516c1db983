"""5.x's users and ACLs at a broker: their requests, persistence and permissions."""

import json
import os
import random
import stat
from pathlib import Path

import pytest

from pocketmq.broker.access.access_table import ADMIN_CODES, SIGNED_CODES
from pocketmq.broker.access.auth_validator import NEEDED
from pocketmq.broker.config import AUTH_CODES, BrokerConfig
from pocketmq.broker.handlers import ROUTES
from pocketmq.client.access import Access
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from pocketmq.remoting.signature import Credentials
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.disk.file_disk import FileDisk
from tests.broker.running import running_broker, running_namesrv, until

ROOT = ("root", "rootSecret")
SETTINGS = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}
SLAVE = {"broker_role": "SLAVE", "store_path_root_dir": "/slave"}
ACL = {"policies": [{"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}]}
FINE = (0, None)


class Caller:
    """Sends requests to a broker, each signed by a given user."""

    def __init__(self, broker):
        self._address = f"127.0.0.1:{broker.port}"
        self._clients = {}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client in self._clients.values():
            await client.close()

    async def ask(self, code, header=None, body=b"", who=ROOT):
        """Return (code, remark, body) of the answer."""
        if who not in self._clients:
            self._clients[who] = Access(who and Credentials(*who)).client()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self._clients[who].invoke(self._address, code, header, data, 20)
        return answer.code, answer.remark, bytes(answer.body)

    async def done(self, code, header=None, body=b"", who=ROOT):
        answer = await self.ask(code, header, body, who)
        assert answer[0] == 0, answer
        return answer[2] and json.loads(answer[2])

    async def refusal(self, code, header=None, body=b"", who=ROOT):
        answer = await self.ask(code, header, body, who)
        assert answer[0] != 0
        return answer[:2]

    async def user(self, name, password="secret", **fields):
        return await self.done(RequestCode.AUTH_CREATE_USER, UserRequestHeader(name), {"password": password, **fields})

    async def allow(self, name, resource, *actions, decision="Allow", who=ROOT, **fields):
        entry = {"resource": resource, "actions": actions, "decision": decision, **fields}
        body = {"subject": f"User:{name}", "policies": [{"entries": [entry]}]}
        return await self.done(RequestCode.AUTH_CREATE_ACL, AclRequestHeader(f"User:{name}"), body, who)


@pytest.fixture
async def caller():
    async with running_broker(**SETTINGS) as broker, Caller(broker) as one:
        yield one


# --- users ------------------------------------------------------------------------------------------------------------


async def test_a_user_is_created_changed_and_deleted(caller):
    header = UserRequestHeader("alice")
    await caller.user("alice")
    expected = {"username": "alice", "password": "secret", "userType": "Normal", "userStatus": "enable"}
    assert await caller.done(RequestCode.AUTH_GET_USER, header) == expected
    await caller.done(RequestCode.AUTH_UPDATE_USER, header, {"userStatus": "DISABLE"})
    await caller.done(RequestCode.AUTH_UPDATE_USER, header, {"password": "other"})
    expected |= {"password": "other", "userStatus": "disable"}
    assert await caller.done(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader("lic")) == [expected]
    assert [one["username"] for one in await caller.done(RequestCode.AUTH_LIST_USER)] == ["alice", "root"]
    await caller.done(RequestCode.AUTH_DELETE_USER, header)
    await caller.done(RequestCode.AUTH_DELETE_USER, header)  # as in Apache
    assert await caller.done(RequestCode.AUTH_GET_USER, header) == b""
    assert await caller.done(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader("lic")) == b""


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("x", {}, "password is empty"),
        ("x", {"password": "p" * 256}, "password has 256 characters, the limit is 255"),
        ("x" * 256, {"password": "p"}, "username has 256 characters, the limit is 255"),
        ("x\ty", {"password": "p"}, "username has a character that cannot be printed"),
        (" ", {"password": "p"}, "username is empty"),
        ("x", {"password": "p", "userType": "King"}, "userType=King: expected one of Super, Normal"),
        ("x", {"password": "p", "userStatus": "asleep"}, "userStatus=asleep: expected one of enable, disable"),
        ("x", {"password": 5}, "$.password"),
        ("root", {"password": "p"}, "username=root: this user exists"),
    ],
)
async def test_invalid_user_is_refused_naming_its_field(caller, name, body, told):
    code, remark = await caller.refusal(RequestCode.AUTH_CREATE_USER, UserRequestHeader(name), body)
    assert told in remark
    assert len(await caller.done(RequestCode.AUTH_LIST_USER)) == 1


async def test_only_a_super_user_may_create_change_or_delete_super_users(caller):
    await caller.user("clerk")
    clerk = ("clerk", "secret")
    await caller.allow("clerk", "Cluster:*", "Update", "Get")
    rule = (16, "only a Super user may create, change or delete a Super user")
    make = {"password": "p", "userType": "super"}
    assert await caller.refusal(RequestCode.AUTH_CREATE_USER, UserRequestHeader("x"), make, clerk) == rule
    assert await caller.refusal(RequestCode.AUTH_UPDATE_USER, UserRequestHeader("clerk"), make, clerk) == rule
    assert await caller.refusal(RequestCode.AUTH_UPDATE_USER, UserRequestHeader("root"), {"password": "p"}, clerk) == rule
    assert await caller.refusal(RequestCode.AUTH_DELETE_USER, UserRequestHeader("root"), b"", clerk) == rule
    # Nor does it see the password of a Super user, which would let it act as one.
    seen = await caller.done(RequestCode.AUTH_LIST_USER, None, b"", clerk)
    assert {one["username"]: one.get("password") for one in seen} == {"clerk": "secret", "root": None}
    assert "password" not in await caller.done(RequestCode.AUTH_GET_USER, UserRequestHeader("root"), b"", clerk)
    await caller.done(RequestCode.AUTH_CREATE_USER, UserRequestHeader("plain"), {"password": "p"}, clerk)


# --- ACLs -------------------------------------------------------------------------------------------------------------


async def test_an_acl_is_created_changed_and_deleted(caller):
    await caller.user("alice")
    header = AclRequestHeader("User:alice")
    assert await caller.done(RequestCode.AUTH_GET_ACL, header) == b""
    await caller.allow("alice", "Topic:a*", "Pub", "Sub", sourceIps=["10.0.0.0/8"])
    await caller.allow("alice", "Group:g", "Sub")
    expected = [
        {"resource": "Topic:a*", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"},
        # Apache leaves out an empty list; its dashboard then shows no ACL at all.
        {"resource": "Group:g", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"},
    ]
    acl = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": expected}]}
    assert await caller.done(RequestCode.AUTH_GET_ACL, header) == acl
    assert await caller.done(RequestCode.AUTH_LIST_ACL) == [acl]
    acl["policies"][0]["entries"] = expected[1:]
    assert await caller.done(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader("ali", "Group")) == [acl]
    assert await caller.done(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader("bob", None)) == b""
    await caller.done(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:alice", None, "Topic:a*"))
    assert await caller.done(RequestCode.AUTH_GET_ACL, header) == acl
    await caller.done(RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:alice"))
    assert await caller.done(RequestCode.AUTH_GET_ACL, header) == b""


async def test_acl_is_deleted_with_its_user(caller):
    await caller.user("alice")
    await caller.allow("alice", "*", "All")
    await caller.done(RequestCode.AUTH_DELETE_USER, UserRequestHeader("alice"))
    await caller.user("alice")
    assert await caller.done(RequestCode.AUTH_LIST_ACL) == b""


@pytest.mark.parametrize(
    ("code", "header", "body", "told"),
    [
        (RequestCode.AUTH_CREATE_ACL, AclRequestHeader("User:none"), ACL, "User:none does not exist"),
        (RequestCode.AUTH_CREATE_ACL, AclRequestHeader("root"), ACL, "subject=root: expected User:NAME"),
        (RequestCode.AUTH_CREATE_ACL, AclRequestHeader("User:root"), {}, "policies is empty"),
        (RequestCode.AUTH_UPDATE_ACL, AclRequestHeader("User:root"), {"subject": "User:x"}, "subject differs"),
        (RequestCode.AUTH_GET_ACL, AclRequestHeader(), b"", "subject=: expected User:NAME"),
        (RequestCode.AUTH_GET_ACL, AclRequestHeader("User:none"), b"", "User:none does not exist"),
        (RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:root"), b"", "it has no policies"),
        # Apache deletes the whole ACL then.
        (RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:root", None, "Tpoic:a"), b"", "resource type=Tpoic"),
        (RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:root", "Other"), b"", "policyType=Other"),
    ],
)  # fmt: skip
async def test_invalid_acl_request_is_refused_naming_its_field(caller, code, header, body, told):
    assert told in (await caller.refusal(code, header, body))[1]


ODD = [
    "",
    " ",
    "*",
    "User:",
    "User:a",
    "Topic:",
    "topic:*",
    "Any:*",
    "1.1.1.1/33",
    "::1%1",
    "fe80::/10",
    "\uff11.1.1.1",
    "\ud800",
    "x" * 300,
    "ü",
    "\0",
    "Allow",
    "allow",
    "All",
    "Custom",
    "Super",
    5,
    -1,
    True,
    None,
    [],
    {},
    [None],
    ["Pub"],
    [[]],
    1e99,
]


async def test_random_invalid_bodies_are_answered(caller, caplog):
    """No body causes an unexpected exception, and accepted users and ACLs can be listed."""
    odd = random.Random(36)

    def entry():
        return {name: odd.choice(ODD) for name in ("resource", "actions", "sourceIps", "decision") if odd.random() < 0.9}

    fine = {"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow"}
    for number in range(400):
        name = odd.choice(["a", "b", "User:a", "ü"])
        user = {field: odd.choice(ODD) for field in ("password", "userType", "userStatus") if odd.random() < 0.7}
        entries = [fine | entry() if odd.random() < 0.5 else entry(), {**fine, "sourceIps": [odd.choice(ODD)]}]
        acl = {
            "subject": odd.choice(ODD),
            "policies": [{"policyType": odd.choice(ODD), "entries": odd.choice([entries, ODD])}],
        }
        code = (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_CREATE_ACL)[number % 3]
        header = AclRequestHeader(odd.choice(["User:a", "User:b"])) if number % 3 == 2 else UserRequestHeader(name)
        data = json.dumps(odd.choice([acl, {"policies": acl["policies"]}]) if number % 3 == 2 else user)
        answer = await caller.ask(code, header, data.encode())
        assert answer[0] in (0, 1, 16, 29), answer
        assert "Error" not in (answer[1] or ""), answer
    assert len(await caller.done(RequestCode.AUTH_LIST_USER)) > 1
    await caller.ask(RequestCode.AUTH_LIST_ACL)
    assert not [record for record in caplog.records if record.exc_info]


# --- limits and durability ------------------------------------------------------------------------------------------------


async def test_refusals_beyond_a_limit_name_the_config_key():
    limits = {"max_auth_users": 3, "max_acl_entries_per_user": 2, "max_auth_bytes": 1024}
    async with running_broker(**SETTINGS, **limits) as broker, Caller(broker) as caller:
        await caller.user("a")
        await caller.user("b")
        refused = await caller.refusal(RequestCode.AUTH_CREATE_USER, UserRequestHeader("c"), {"password": "p"})
        assert "maxAuthUsers=3" in refused[1]
        await caller.allow("a", "Topic:1", "Pub")
        await caller.allow("a", "Topic:2", "Pub")
        await caller.allow("a", "Topic:2", "Sub")
        entry = {"resource": "Topic:3", "actions": ["Pub"], "decision": "Allow"}
        body = {"policies": [{"entries": [entry]}]}
        refused = await caller.refusal(RequestCode.AUTH_CREATE_ACL, AclRequestHeader("User:a"), body)
        assert "maxAclEntriesPerUser=2" in refused[1]
        entry |= {"resource": "Topic:" + "x" * 200, "sourceIps": ["2001:db8:1111:2222:3333:4444:5555:6666"] * 20}
        refused = await caller.refusal(RequestCode.AUTH_CREATE_ACL, AclRequestHeader("User:b"), body)
        assert "maxAuthBytes=1024" in refused[1]
        assert len(await caller.done(RequestCode.AUTH_LIST_ACL)) == 1


async def test_acknowledged_changes_are_in_a_file_only_the_owner_may_read(tmp_path: Path):
    """The file is checked right after each answer: a broker killed then would find the change at its next start."""
    file = tmp_path / "config" / "auth.json"
    store = {"store_path_root_dir": str(tmp_path)}
    umask = os.umask(0)
    try:
        async with running_broker(disk=FileDisk(), store=store, **SETTINGS) as broker, Caller(broker) as caller:
            for name in ("alice", "bob"):
                await caller.user(name)
                assert name in json.loads(file.read_text())["userTable"]
            await caller.allow("alice", "Topic:a", "Pub")
            assert json.loads(file.read_text())["userTable"]["alice"]["policies"][0]["policyType"] == "Custom"
            # The subject's type may be in any case; a name may look like a subject.
            await caller.done(RequestCode.AUTH_CREATE_ACL, AclRequestHeader("user:bob"), ACL)
            assert json.loads(file.read_text())["userTable"]["bob"]["policies"]
            await caller.user("User:bob")
            assert "User:bob" in json.loads(file.read_text())["userTable"]
            await caller.done(RequestCode.AUTH_DELETE_USER, UserRequestHeader("User:bob"))
            await caller.done(RequestCode.AUTH_DELETE_USER, UserRequestHeader("bob"))
            found = file.read_bytes()
            assert "bob" not in json.loads(found)["userTable"]
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.glob("auth*")}
            assert modes == {"auth.json": 0o600, "auth.json.bak": 0o600}
    finally:
        os.umask(umask)
    file.chmod(0o644)
    file.write_bytes(found)
    async with running_broker(disk=FileDisk(), store=store, **SETTINGS) as broker, Caller(broker) as caller:
        assert [one["username"] for one in await caller.done(RequestCode.AUTH_LIST_USER)] == ["alice", "root"]
        assert [one["subject"] for one in await caller.done(RequestCode.AUTH_LIST_ACL)] == ["User:alice"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_passwords_of_the_config_are_not_shown(caller):
    shown = (await caller.ask(RequestCode.GET_BROKER_CONFIG))[2].decode()
    assert "initAuthenticationUser=******" in shown
    assert ROOT[1] not in shown


# --- authentication and authorization -------------------------------------------------------------------------------------


async def test_requests_must_be_signed_by_a_user_that_is_enabled(caller):
    await caller.user("alice")
    alice = ("alice", "secret")
    clock = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    assert (await caller.ask(clock, who=alice))[:2] == FINE
    assert "no AccessKey" in (await caller.refusal(clock, who=None))[1]
    assert await caller.refusal(clock, who=("nobody", "secret")) == (16, "User:nobody does not exist")
    assert await caller.refusal(clock, who=("alice", "wrong")) == (16, "the signature is not that of User:alice")
    await caller.done(RequestCode.AUTH_UPDATE_USER, UserRequestHeader("alice"), {"userStatus": "disable"})
    assert await caller.refusal(clock, who=alice) == (16, "User:alice is disabled")
    await caller.done(RequestCode.AUTH_UPDATE_USER, UserRequestHeader("alice"), {"userStatus": "enable", "password": "new"})
    assert (await caller.refusal(clock, who=alice))[0] == 16
    assert (await caller.ask(clock, who=("alice", "new")))[:2] == FINE


async def test_policies_are_in_force_at_once(caller):
    await caller.user("alice")
    alice = ("alice", "secret")
    create = CreateTopicRequestHeader("orders", "TBW102", 4, 4, 6, "SINGLE_TAG")
    refused = await caller.refusal(RequestCode.UPDATE_AND_CREATE_TOPIC, create, who=alice)
    assert refused == (
        16, "User:alice has no permission to access Topic:orders from 127.0.0.1: no policy allows Create",
    )  # fmt: skip
    await caller.allow("alice", "Topic:ord*", "Create", "Get")
    await caller.done(RequestCode.UPDATE_AND_CREATE_TOPIC, create, who=alice)
    await caller.done(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader("orders"), who=alice)
    await caller.allow("alice", "Topic:orders", "Get", decision="Deny")
    refused = await caller.refusal(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader("orders"), who=alice)
    assert refused[1].endswith("Topic:orders from 127.0.0.1: a policy denies Get")
    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.AUTH_LIST_USER):
        assert "Cluster:DefaultCluster" in (await caller.refusal(code, who=alice))[1]


async def test_reading_system_topics_needs_a_super_user(caller):
    await caller.user("alice")
    await caller.allow("alice", "*", "All")
    refused = await caller.refusal(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("SCHEDULE_TOPIC_XXXX"),
                                   who=("alice", "secret"))  # fmt: skip
    assert "it needs a Super user" in refused[1]
    await caller.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("SCHEDULE_TOPIC_XXXX"))


async def test_without_authorization_a_signature_is_enough():
    settings = SETTINGS | {"authorization_enabled": False, "authentication_whitelist": "305"}
    async with running_broker(**settings) as broker, Caller(broker) as caller:
        await caller.user("alice")
        assert (await caller.ask(RequestCode.GET_ALL_TOPIC_CONFIG, who=("alice", "secret")))[0] == 0
        assert (await caller.refusal(RequestCode.GET_ALL_TOPIC_CONFIG, who=None))[0] == 16
        assert (await caller.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, who=None))[0] == 0


async def test_white_listed_codes_need_no_signature_or_no_permission():
    lists = {"authentication_whitelist": "21, 26", "authorization_whitelist": "21,28"}
    async with running_broker(**SETTINGS, **lists) as broker, Caller(broker) as caller:
        await caller.user("alice")
        alice = ("alice", "secret")
        assert (await caller.ask(RequestCode.GET_ALL_TOPIC_CONFIG, who=None))[0] == 0
        # Permissions are checked for an authenticated user: 26 must be signed although it is in one of the lists.
        assert "no AccessKey" in (await caller.refusal(RequestCode.GET_BROKER_CONFIG, who=None))[1]
        assert "no AccessKey" in (await caller.refusal(RequestCode.GET_BROKER_RUNTIME_INFO, who=None))[1]
        assert (await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO, who=alice))[0] == 0
        assert "Cluster:" in (await caller.refusal(RequestCode.GET_BROKER_CONFIG, who=alice))[1]


async def test_without_authentication_there_are_no_users():
    async with running_broker() as broker, Caller(broker) as caller:
        for code in AUTH_CODES:
            answer = await caller.refusal(code, UserRequestHeader("x") if code <= 3004 else NoHeader(), b"{}", None)
            assert answer == (1, "there are no users: authenticationEnabled=false")


async def test_a_slave_signs_its_requests_to_its_master(monkeypatch):
    monkeypatch.setattr("pocketmq.broker.ha.slave_synchronize.TABLES_S", 0.1)
    inner = {"inner_client_authentication_credentials": json.dumps({"accessKey": "inner", "secretKey": "innerSecret"})}
    async with (
        running_namesrv() as ns,
        running_broker(ns, **SETTINGS, **inner) as master,
        running_broker(ns, store=SLAVE, broker_id=1, **SETTINGS, **inner) as slave,
        Caller(master) as caller,
    ):
        create = CreateTopicRequestHeader("copied", "TBW102", 4, 4, 6, "SINGLE_TAG")
        await caller.done(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
        await until(lambda: "copied" in slave.services.topics.table)
        # Each broker has its own users: a user created at the master does not exist at the slave.
        await caller.user("alice")
        async with Caller(slave) as at_slave:
            assert [one["username"] for one in await at_slave.done(RequestCode.AUTH_LIST_USER)] == ["inner", "root"]
            await at_slave.user("bob")


def test_codes_restricted_by_4_9_rules_are_restricted_by_5_x_rules():
    assert set(ROUTES) - set(NEEDED) == {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }, "requests for 4.9's rules, which are off then"  # fmt: skip
    assert {code for code, (actions, _) in NEEDED.items() if not actions} == SIGNED_CODES
    assert set(AUTH_CODES) <= ADMIN_CODES


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"acl_enable": True, "rocketmq_home": "/"}, "aclEnable=true and authenticationEnabled=true"),
        ({"authentication_enabled": False}, "authorizationEnabled=true needs authenticationEnabled=true"),
        ({"authentication_whitelist": "10,x"}, "authenticationWhitelist=10,x: expected request codes"),
        ({"authorization_whitelist": "3001"}, "authorizationWhitelist=3001: request codes 3001 to 3010"),
        ({"init_authentication_user": "root:hidden"}, "initAuthenticationUser: expected"),
        ({"init_authentication_user": '{"username":"root"}'}, "initAuthenticationUser: password is empty"),
        ({"inner_client_authentication_credentials": '["hidden"]'}, "innerClientAuthenticationCredentials: expected"),
    ],
)
async def test_invalid_or_contradictory_auth_settings_are_refused_at_start(settings, told):
    with pytest.raises(StartError, match=told) as refused:
        async with running_broker(**{**SETTINGS, **settings}):
            pass
    assert "hidden" not in str(refused.value)


def test_authentication_authorization_and_acl_are_off_by_default():
    config = BrokerConfig()
    assert (config.authentication_enabled, config.authorization_enabled, config.acl_enable) == (False, False, False)
