"""Access rules with the real clients and the real mqadmin; with `--server=apache` the same against 4.9.4."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.interop.conftest import need_java
from tests.interop.driver import Driver, DriverError
from tests.interop.drivers import CPP, EACH_LANGUAGE, Drivers, needed
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import BROKER_NAME, CLUSTER_NAME, Cluster, Flavour
from tests.interop.wire import SEND_MESSAGE_V2, Connection, send_fields
from tests.patience import PATIENCE_S

SET_MESSAGE_REQUEST_MODE = 401
ADMIN = ("adminKey", "adminSecret")
OPEN, WRITTEN, READ = "Acl-open", "Acl-written", "Acl-read"
RULES = f"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: {ADMIN[0]}
    secretKey: {ADMIN[1]}
    admin: true
  - accessKey: userKey
    secretKey: 12345678
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: ["{OPEN}=PUB|SUB", "{WRITTEN}=PUB", "{READ}=SUB"]
    groupPerms: ["Acl-denied=DENY"]
"""
USER = {"accessKey": "userKey", "secretKey": "12345678"}
REFUSED = "NO_EXIST"  # the client's result for any failed ack or change


@pytest.fixture(scope="module")
def guarded(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "conf" / "acl").mkdir(parents=True)
    (folder / "conf" / "plain_acl.yml").write_text(RULES)
    running = Cluster(folder, flavour, aclEnable="true", rocketmqHome=folder)
    try:
        running.start_broker()
        with Connection(running.broker_address, signed_as=ADMIN) as connection:
            for topic in (OPEN, WRITTEN, READ):
                connection.create_topic(topic, 1)
        yield running
    finally:
        running.close()


@pytest.fixture(params=EACH_LANGUAGE)
def guest(request: pytest.FixtureRequest, guarded: Cluster, drivers: Drivers) -> Driver:
    with needed(request.param):
        return drivers.get(request.param, guarded)


class Admin:
    """mqadmin with the credentials of its conf/tools.yml."""

    def __init__(self, mqadmin: Mqadmin, cluster: Cluster) -> None:
        self._mqadmin, self._cluster = mqadmin, cluster

    def __call__(self, command: str, *arguments: str, who: tuple[str, str] | None = ADMIN) -> str:
        tools = self._mqadmin.home / "conf" / "tools.yml"
        tools.write_text("accessKey: {}\nsecretKey: {}\n".format(*who) if who else "")
        return self._mqadmin.run(self._cluster.namesrv_address, command, *arguments)


@pytest.fixture(scope="module")
def admin(guarded: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    need_java()
    mqadmin = Mqadmin(tmp_path_factory.mktemp("acl-mqadmin"))
    yield Admin(mqadmin, guarded)
    mqadmin.close()


def refusal(client: Driver, name: str, topic: str, **options: object) -> str:
    """Returns the error that a producer with `options` gets."""
    client.start_producer(name, **options)
    try:
        client.send(name, topic, ["no"], queueId=0)  # a fixed queue, so that the client does not retry
    except DriverError as error:
        return str(error)
    finally:
        client.shutdown(name)
    raise AssertionError("the send was accepted")


def test_only_permitted_producers_can_send(guest: Driver, named: Callable[[str], str]) -> None:
    assert "No accessKey is configured" in refusal(guest, named("unsigned"), OPEN)
    assert "Check signature failed for accessKey=userKey" in refusal(
        guest, named("forged"), OPEN, accessKey="userKey", secretKey="87654321"
    )
    assert "No acl config for nobodyKey" in refusal(
        guest, named("nobody"), OPEN, accessKey="nobodyKey", secretKey="12345678"
    )
    assert f"No default permission for topic:{READ}" in refusal(guest, named("reader"), READ, **USER)
    guest.start_producer(named("writer"), **USER)
    for kind in ("sync", "batch"):
        for one in guest.send(named("writer"), WRITTEN, [f"{kind} ü"], kind=kind):
            assert one.status in ("SEND_OK", "0")
    guest.shutdown(named("writer"))


@pytest.mark.parametrize("guest", (*EACH_LANGUAGE, CPP), indirect=True)
def test_only_permitted_consumers_can_consume(guest: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    """One message is redelivered. Refused consumers get no message, while a permitted one gets all."""
    tag = named("t")
    with Connection(guarded.broker_address, signed_as=ADMIN) as connection:
        connection.create_topic(f"%RETRY%{named('g')}", 1)  # a client that does not find it at once checks again after 20 s
    guest.start_consumer(named("denied"), "Acl-denied", OPEN, expression=tag, **USER)
    guest.start_consumer(named("unsigned"), named("u"), OPEN, expression=tag)
    guest.start_producer(named("p"), **USER)
    bodies = [f"{tag} {number}" for number in range(5)]
    guest.send(named("p"), OPEN, bodies, tags=[tag])
    guest.start_consumer(named("c"), named("g"), OPEN, expression=tag, fail=[bodies[2]], failTimes=1, delayLevel=1, **USER)
    wanted = Counter([*bodies, bodies[2]])

    def got() -> Counter[str | None]:  # the C++ client consumes other messages of the same pull again, too
        return Counter(message.body for message in guest.received(named("c")))

    guest.wait_until(lambda: got() >= wanted, 40, lambda: f"{got()}")
    assert guest.received(named("denied")) == guest.received(named("unsigned")) == []
    guest.shutdown(named("p"), named("c"), named("denied"), named("unsigned"))


def test_transactions_are_signed(guest: Driver, named: Callable[[str], str]) -> None:
    tag = named("t")
    guest.start_producer(named("p"), transactional=True, **USER)
    endings = {"property.local": "COMMIT", "property.checked": "ROLLBACK"}
    guest.send(named("p"), OPEN, [tag], tags=[tag], kind="transaction", **endings)
    guest.start_consumer(named("c"), named("g"), OPEN, expression=tag, **USER)
    assert [message.body for message in guest.wait_for(named("c"), 1)] == [tag]
    guest.shutdown(named("p"), named("c"))


@pytest.fixture
def popper(guarded: Cluster, drivers: Drivers, flavour: Flavour) -> Driver:
    if flavour.name == "apache":
        pytest.skip("4.9.4's broker cannot pop")
    with needed("java_5_5_0"):
        return drivers.get("java_5_5_0", guarded)


def test_popping_needs_permission_for_topic_and_group(popper: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    """Pops, acks and changes of the invisible time need SUB on topic and group, as since 5.3; before, only a signature."""
    address, group = guarded.broker_address, named("g")
    with Connection(address, signed_as=ADMIN) as connection:
        for topic in (READ, WRITTEN):
            connection.send(topic, 0, b"to pop")
    popped = popper.pop_in_order(address, READ, group, "a", count=32, **USER)
    assert [message.body for message in popped] == ["to pop"]
    (message,) = popped

    def refused(attempt: Callable[[], object], why: str) -> None:
        with pytest.raises(DriverError, match=re.escape(why)):
            attempt()

    for who, why in (
        ({}, "No accessKey is configured"),
        ({"accessKey": "userKey", "secretKey": "87654321"}, "Check signature failed for accessKey=userKey"),
    ):
        refused(lambda who=who: popper.pop_in_order(address, READ, group, "a", **who), why)
        assert popper.change_invisible(address, group, message, 1, **who) == REFUSED
        assert popper.acknowledge(address, group, message, **who) == REFUSED
    refused(lambda: popper.pop_in_order(address, WRITTEN, group, "a", **USER), f"No default permission for topic:{WRITTEN}")
    refused(
        lambda: popper.pop_in_order(address, READ, "Acl-denied", "a", **USER), "No default permission for group:Acl-denied"
    )
    assert popper.change_invisible(address, "Acl-denied", message, 1, **USER) == REFUSED
    assert popper.acknowledge(address, "Acl-denied", message, **USER) == REFUSED
    assert popper.pop_in_order(address, READ, group, "b", **USER) == [], "a refused request had an effect"
    assert popper.change_invisible(address, group, message, 1, **USER) == "OK"
    (again,) = popper.pop_in_order(address, READ, group, "c", poll_ms=5000, **USER)
    assert (again.body, again.reconsume_times) == ("to pop", 1)
    assert popper.acknowledge(address, group, again, **USER) == "OK"


def test_popping_consumer_signs_its_requests(popper: Driver, guarded: Cluster, named: Callable[[str], str]) -> None:
    tag = named("t")
    with Connection(guarded.broker_address, signed_as=ADMIN) as connection:
        for group in (named("g"), "Acl-denied"):
            mode = {"topic": OPEN, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
            connection.ask(SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
        connection.send(OPEN, 0, tag.encode(), {"TAGS": tag})
    how = {"expression": tag, "pop": 10_000, **USER}
    popper.start_consumer(named("denied"), "Acl-denied", OPEN, **how)
    popper.start_consumer(named("c"), named("g"), OPEN, **how)
    assert [message.body for message in popper.wait_for(named("c"), 1)] == [tag]
    assert popper.received(named("denied")) == []
    popper.shutdown(named("c"), named("denied"))


def test_mqadmin_needs_admin_permission(admin: Admin) -> None:
    create = ("updateTopic", "-c", CLUSTER_NAME, "-t", "Acl-new", "-r", "1", "-w", "1")
    assert "No accessKey is configured" in admin(*create, who=None)
    assert "Need admin permission for request code=17, but accessKey=userKey is not" in admin(
        *create, who=("userKey", "12345678")
    )
    assert "success" in admin(*create)
    assert f'"brokerName":"{BROKER_NAME}"' in admin("topicRoute", "-t", "Acl-new", who=None)  # name servers check nothing


def test_message_by_id_needs_permission_for_its_topic(admin: Admin, guarded: Cluster, flavour: Flavour) -> None:
    """4.9.4 shows the message to every account with a valid signature."""
    user = (USER["accessKey"], USER["secretKey"])
    with Connection(guarded.broker_address, signed_as=ADMIN) as connection:
        ids = {topic: connection.send(topic, 0, b"by id").ext["msgId"] for topic in (READ, WRITTEN)}
    assert re.search(rf"Topic:\s+{READ}\b", admin("queryMsgById", "-i", ids[READ], who=user))
    shown = admin("queryMsgById", "-i", ids[WRITTEN], who=user)
    if flavour.name == "apache":
        assert re.search(rf"Topic:\s+{WRITTEN}\b", shown)
    else:
        assert f"No default permission for topic:{WRITTEN}" in shown
    assert re.search(rf"Topic:\s+{WRITTEN}\b", admin("queryMsgById", "-i", ids[WRITTEN]))


def test_mqadmin_changes_the_rules(admin: Admin, guarded: Cluster) -> None:
    address = guarded.broker_address
    assert f"create or update plain access config to {address} success." in admin(
        "updateAclConfig",
        "-b",
        address,
        "-a",
        "laterKey",
        "-s",
        "laterSecret",
        "-t",
        f"{OPEN}=PUB,{READ}=DENY",
        "-w",
        "127.0.0.9",
    )
    with Connection(address, signed_as=("laterKey", "laterSecret")) as later:
        assert later.call(SEND_MESSAGE_V2, send_fields(OPEN, 0), b"now").code == 0
        assert "No default permission" in later.call(SEND_MESSAGE_V2, send_fields(READ, 0), b"no").remark
    listed = admin("getAclConfig", "-b", address)
    assert "globalWhiteRemoteAddresses: [10.10.103.*]" in listed
    assert "accessKey         : laterKey" in listed
    assert f"topicPerms        : [{OPEN}=PUB, {READ}=DENY]" in listed
    version = admin("clusterAclConfigVersion", "-c", CLUSTER_NAME)
    assert str(guarded.folder / "conf" / "plain_acl.yml") in version
    assert "get cluster's plain access config version success." in version

    assert "success" in admin("deleteAclConfig", "-b", address, "-a", "laterKey")
    with Connection(address, signed_as=("laterKey", "laterSecret")) as later:
        wait_until(lambda: "No acl config" in later.call(SEND_MESSAGE_V2, send_fields(OPEN, 0), b"no").remark)


def test_white_addresses_changed_by_mqadmin_or_in_the_file_apply(admin: Admin, guarded: Cluster) -> None:
    with Connection(guarded.broker_address) as unsigned:

        def code() -> int:
            return unsigned.call(SEND_MESSAGE_V2, send_fields(READ, 0), b"x").code

        assert code() == 1
        assert "success" in admin("updateGlobalWhiteAddr", "-b", guarded.broker_address, "-g", "10.10.154.1,127.0.0.1")
        wait_until(lambda: code() == 0)
        (guarded.folder / "conf" / "plain_acl.yml").write_text(RULES)
        wait_until(lambda: code() == 1)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"condition not met after {PATIENCE_S} s"
        time.sleep(0.05)
