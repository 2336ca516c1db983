"""5.x's users and ACLs with the real clients, and after `kill -9`; with `--server=apache` the same against 5.5.0."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import need_java
from tests.interop.driver import Driver, DriverError
from tests.interop.drivers import EACH_LANGUAGE, Drivers, needed
from tests.interop.servers import Apache, Cluster, Flavour, Pocketmq, auth_settings
from tests.interop.test_replication import wait_until
from tests.interop.wire import GET_ROUTE, Connection
from tests.patience import PATIENCE_S

CREATE_USER, LIST_USER, CREATE_ACL, LIST_ACL = 3001, 3005, 3006, 3010
ROOT = ("root", "rootSecret")
GUEST = {"accessKey": "guest", "secretKey": "guestSecret"}
OPEN, SECRET, WRITTEN, READ, FOREIGN = "Auth-open", "Auth-open-secret", "Auth-written", "Auth-read", "Auth-foreign"
POLICIES = (
    ("Topic:Auth-open*", "Pub Sub Get", "Allow"),
    (f"Topic:{SECRET}", "Pub Sub", "Deny"),
    (f"Topic:{WRITTEN}", "Pub", "Allow"),
    (f"Topic:{READ}", "Sub Get", "Allow"),
    ("Group:*", "Sub", "Allow"),
    ("Group:Auth-denied", "Sub", "Deny"),
)


def started(folder: Path, flavour: Flavour) -> Cluster:
    user = json.dumps({"username": ROOT[0], "password": ROOT[1]})
    running = Cluster(folder, flavour, initAuthenticationUser=user, **auth_settings(folder))
    running.start_broker()
    return running


def create_user(connection: Connection, name: str, password: str) -> None:
    body = {"username": name, "password": password, "userType": "Normal"}
    answer = connection.call(CREATE_USER, {"username": name}, json.dumps(body).encode())
    assert answer.code == 0, answer


def allow(connection: Connection, name: str, *policies: tuple[str, str, str]) -> None:
    entries = [{"resource": what, "actions": actions.split(), "decision": word} for what, actions, word in policies]
    body = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    answer = connection.call(CREATE_ACL, {"subject": f"User:{name}"}, json.dumps(body).encode())
    assert answer.code == 0, answer


@pytest.fixture(scope="module")
def guarded(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = started(tmp_path_factory.mktemp("auth"), Apache("5.5.0") if flavour.name == "apache" else flavour)
    try:
        with Connection(running.broker_address, signed_as=ROOT) as root:
            for topic in (OPEN, SECRET, WRITTEN, READ, FOREIGN):
                root.create_topic(topic, 1)
            create_user(root, GUEST["accessKey"], GUEST["secretKey"])
            allow(root, GUEST["accessKey"], *POLICIES)
        with Connection(running.namesrv_address) as namesrv:  # Apache's broker answers before the topics are in the routes
            for topic in (OPEN, SECRET, WRITTEN, READ, FOREIGN):
                wait_until(topic, lambda topic=topic: namesrv.call(GET_ROUTE, {"topic": topic}).code == 0)
        yield running
    finally:
        running.close()


@pytest.fixture(params=EACH_LANGUAGE)
def guest(request: pytest.FixtureRequest, guarded: Cluster, drivers: Drivers) -> Driver:
    with needed(request.param):
        return drivers.get(request.param, guarded)


def test_only_sends_allowed_by_policies_are_accepted(guest: Driver, named: Callable[[str], str]) -> None:
    def refusal(name: str, topic: str, **options: object) -> str:
        guest.start_producer(named(name), **options)
        try:
            guest.send(named(name), topic, ["no"], queueId=0)  # a fixed queue, so that the client does not retry
        except DriverError as error:
            return str(error)
        finally:
            guest.shutdown(named(name))
        raise AssertionError("the send was accepted")

    unsigned = refusal("unsigned", OPEN)
    assert "no AccessKey" in unsigned or "username cannot be null" in unsigned, unsigned
    assert "User:nobody" in refusal("nobody", OPEN, accessKey="nobody", secretKey="12345678")
    assert "signature" in refusal("forged", OPEN, accessKey="guest", secretKey="12345678")
    for topic in (READ, SECRET, FOREIGN):
        assert f"User:guest has no permission to access Topic:{topic} from 127.0.0.1" in refusal(topic, topic, **GUEST)
    guest.start_producer(named("writer"), **GUEST)
    for topic in (OPEN, WRITTEN):
        for kind in ("sync", "batch"):
            assert [one.status in ("SEND_OK", "0") for one in guest.send(named("writer"), topic, [kind], kind=kind)] == [
                True
            ]
    guest.shutdown(named("writer"))


def test_only_consumers_allowed_by_policies_consume(guest: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    """One message is redelivered. Refused consumers get no message, while a permitted one gets all."""
    tag = named("t")
    bodies = [f"{tag} {number}" for number in range(3)]
    with Connection(guarded.broker_address, signed_as=ROOT) as root:
        root.create_topic(f"%RETRY%{named('g')}", 1)  # a client that does not find it at once checks again after 20 s
        for topic in (READ, SECRET, FOREIGN):
            for body in bodies:
                root.send(topic, 0, body.encode(), {"TAGS": tag})
    refused = {"denied": ("Auth-denied", READ), "secret": (named("s"), SECRET), "foreign": (named("f"), FOREIGN)}
    for name, (group, topic) in refused.items():
        guest.start_consumer(named(name), group, topic, expression=tag, **GUEST)
    guest.start_consumer(named("unsigned"), named("u"), READ, expression=tag)
    guest.start_consumer(named("c"), named("g"), READ, expression=tag, fail=[bodies[1]], failTimes=1, delayLevel=1, **GUEST)
    got = [message.body for message in guest.wait_for(named("c"), 4)]
    assert sorted(got) == sorted([*bodies, bodies[1]])
    for name in (*refused, "unsigned"):
        assert guest.received(named(name)) == [], name
    guest.shutdown(named("c"), named("unsigned"), *map(named, refused))


def test_transactions_need_pub(guest: Driver, named: Callable[[str], str]) -> None:
    tag = named("t")
    guest.start_producer(named("p"), transactional=True, **GUEST)
    endings = {"property.local": "COMMIT", "property.checked": "ROLLBACK"}
    guest.send(named("p"), OPEN, [tag], tags=[tag], kind="transaction", **endings)
    guest.start_consumer(named("c"), named("g"), OPEN, expression=tag, **GUEST)
    assert [message.body for message in guest.wait_for(named("c"), 1)] == [tag]
    guest.shutdown(named("p"), named("c"))


@pytest.mark.parametrize("guest", ["java_5_5_0"], indirect=True)
def test_pops_need_sub_on_topic_and_group(guest: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    address, group, body = guarded.broker_address, named("g"), named("body")
    with Connection(address, signed_as=ROOT) as root:
        root.create_topic("Auth-open-popped", 1)
        root.send("Auth-open-popped", 0, body.encode())
        root.send(FOREIGN, 0, body.encode())
    (message,) = guest.pop_in_order(address, "Auth-open-popped", group, "a", **GUEST)
    assert message.body == body
    assert guest.acknowledge(address, "Auth-denied", message, **GUEST) != "OK"
    assert guest.acknowledge(address, group, message, **GUEST) == "OK"
    for topic, of, named_in in ((FOREIGN, group, FOREIGN), ("Auth-open-popped", "Auth-denied", "Auth-denied")):
        with pytest.raises(DriverError, match=f"User:guest has no permission to access (Topic|Group):{named_in}"):
            guest.pop_in_order(address, topic, of, "a", **GUEST)


@pytest.mark.parametrize("guest", ["java_5_5_0"], indirect=True)
def test_acl_changes_apply_to_connected_clients(guest: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    name, topic = named("later"), "Auth-later"
    with Connection(guarded.broker_address, signed_as=ROOT) as root:
        root.create_topic(topic, 1)
        with Connection(guarded.namesrv_address) as namesrv:
            wait_until(topic, lambda: namesrv.call(GET_ROUTE, {"topic": topic}).code == 0)
        create_user(root, name, "laterSecret")
        guest.start_producer(named("p"), accessKey=name, secretKey="laterSecret")
        with pytest.raises(DriverError, match=f"User:{name} has no permission to access Topic:{topic}"):
            guest.send(named("p"), topic, ["no"], queueId=0)
        if isinstance(guarded.flavour, Apache):
            return  # Apache caches a decision for a minute
        allow(root, name, (f"Topic:{topic}", "Pub", "Allow"))
        guest.send(named("p"), topic, ["yes"], queueId=0)
        allow(root, name, (f"Topic:{topic}", "Pub", "Deny"))
        with pytest.raises(DriverError, match=f"User:{name} has no permission to access Topic:{topic}"):
            guest.send(named("p"), topic, ["no"], queueId=0)
    guest.shutdown(named("p"))


def test_acknowledged_users_and_acls_survive_kill_9(flavour: Flavour, tmp_path: Path) -> None:
    if flavour.name == "apache":
        need_java()
    cluster = started(tmp_path, Apache("5.5.0") if flavour.name == "apache" else Pocketmq())
    answered: list[str] = []
    try:
        for round_number in range(3):
            enough = threading.Event()
            creating = threading.Thread(target=create_until_killed, args=(cluster, round_number, answered, enough))
            creating.start()
            assert enough.wait(PATIENCE_S)
            cluster.kill_broker()
            creating.join(60)
            cluster.start_broker()
            with Connection(cluster.broker_address, signed_as=ROOT) as root:
                users = {one["username"] for one in json.loads(root.call(LIST_USER, {}).body)}
                acls = {one["subject"] for one in json.loads(root.call(LIST_ACL, {}).body)}
            lost = {name for name in answered if name not in users or f"User:{name}" not in acls}
            assert not lost
    finally:
        cluster.close()


def create_until_killed(cluster: Cluster, round_number: int, answered: list[str], enough: threading.Event) -> None:
    """Create users with an ACL, and record those whose ACL was acknowledged."""
    try:
        with Connection(cluster.broker_address, signed_as=ROOT) as root:
            for number in range(500):
                name = f"user-{round_number}-{number}"
                create_user(root, name, "secret")
                allow(root, name, ("Topic:*", "Pub", "Allow"))
                answered.append(name)
                if number == 20:
                    enough.set()
    except (OSError, ValueError):  # the connection ends in the middle
        return
