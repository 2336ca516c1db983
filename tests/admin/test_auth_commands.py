"""JSON output of the commands for the users and ACLs of 5.x. tests/interop compares the commands with Apache's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.processes import start_up
from tests.admin.conftest import Mqadmin, Printed

ROOT = {"username": "root", "password": "rootSecret"}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("up")
    settings = ("authenticationEnabled=true", "authorizationEnabled=true", f"initAuthenticationUser={json.dumps(ROOT)}")
    server = start_up(folder, "--memory", *(word for one in settings for word in ("--set", one)))
    yield server.address
    server.stop()


@pytest.fixture
def run(mqadmin: Mqadmin, tmp_path: Path) -> Mqadmin:
    """Run a command that is signed by the Super user."""
    tools = tmp_path / "tools.yml"
    tools.write_text(f"accessKey: {ROOT['username']}\nsecretKey: {ROOT['password']}\n")

    def signed(*arguments: str) -> Printed:
        return mqadmin(*arguments, "--json", "--credentials", str(tools))

    return signed


@pytest.fixture
def broker(run: Mqadmin) -> str:
    (data,) = run("topicRoute", "-t", "TBW102").json["brokerDatas"]
    return data["brokerAddrs"]["0"]


def test_users_and_acls_as_json(run: Mqadmin, broker: str) -> None:
    alice = {"username": "alice", "password": "secret", "userType": "Normal", "userStatus": "enable"}
    root = {**ROOT, "userType": "Super", "userStatus": "enable"}
    entry = {"resource": "Topic:a*", "actions": ["Pub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}
    acl = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    done = {"brokers": [broker]}
    assert run("createUser", "-b", broker, "-u", "alice", "-p", "secret").json == done
    assert run("getUser", "-b", broker, "-u", "alice").json == alice
    assert run("getUser", "-b", broker, "-u", "nobody").json is None
    assert run("listUser", "-c", "DefaultCluster").json == [alice, root]
    created = run(
        "createAcl", "-b", broker, "-s", "User:alice", "-r", "Topic:a*", "-a", "Pub", "-i", "10.0.0.0/8", "-d", "allow"
    )
    assert created.json == done
    assert run("getAcl", "-b", broker, "-s", "User:alice").json == [acl]
    assert run("listAcl", "-c", "DefaultCluster", "-r", "Topic").json == [acl]
    assert run("copyUser", "-f", broker, "-t", broker).json == {"users": ["alice", "root"]}
    assert run("copyAcl", "-f", broker, "-t", broker).json == {"subjects": ["User:alice"]}
    assert run("deleteAcl", "-b", broker, "-s", "User:alice").json == done
    assert run("listAcl", "-b", broker).json == []
    assert run("deleteUser", "-b", broker, "-u", "alice").json == done
    assert run("listUser", "-b", broker).json == [root]


def test_a_refusal_as_json(run: Mqadmin, mqadmin: Mqadmin, broker: str) -> None:
    refused = run("createUser", "-b", broker, "-u", "bob", "-p", "secret", "-t", "King")
    assert refused.exit_code == 1
    assert refused.json == {"error": {"code": 16, "message": "userType=King: expected one of Super, Normal"}}
    assert mqadmin("listUser", "-b", broker, "--json").json["error"]["code"] == 16
