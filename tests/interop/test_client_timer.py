"""Arbitrary delays through the real clients: 5.5.0's setters, the properties of any client, recall.

With ``--server=apache`` the broker is 5.5.0's with a name server of 4.9.4, to verify the tests' expectations about clients.
It rounds times to seconds, and does not know __STARTDELIVERTIME.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.driver import Driver, DriverError, Received, Sent
from tests.interop.drivers import Drivers, needed
from tests.interop.servers import Apache, Cluster, Flavour
from tests.interop.wire import Connection
from tests.support.amount import cases

DELAY_MS = 3000
# A clock is updated once a millisecond, so a client's "now" may be one less.
EARLY_MS_MAX = {"pocketmq": 1, "apache": 1100}
LATE_MS_MAX = 10_000  # a limit for a machine with much load; `make bench-delay` measures real values
CONFIG = {"recallMessageEnable": "true", "timerWheelEnable": "true"}


@pytest.fixture(scope="module")
def timer_cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("timer"), flavour, **CONFIG)
    try:
        running.start_broker(Apache("5.5.0") if flavour.name == "apache" else None)
        yield running
    finally:
        running.close()


@pytest.fixture
def timer_topic(timer_cluster: Cluster, named: Callable[[str], str]) -> str:
    name = named("topic")
    with Connection(timer_cluster.broker_address) as connection:
        connection.create_topic(name, 4)
    return name


@pytest.fixture
def java(drivers: Drivers, timer_cluster: Cluster) -> Driver:
    with needed("java_5_5_0"):
        return drivers.get("java_5_5_0", timer_cluster)


def check_on_time(flavour: Flavour, message: Received, due_ms: int) -> None:
    late_ms = message.store_timestamp_ms - due_ms
    assert -EARLY_MS_MAX[flavour.name] <= late_ms <= LATE_MS_MAX, message.properties
    assert message.arrived_at_ms >= due_ms - EARLY_MS_MAX[flavour.name]


def begin(client: Driver, named: Callable[[str], str], topic: str) -> None:
    """Start a producer and a consumer, and wait for the first message."""
    client.start_producer(named("p"))
    client.send(named("p"), topic, ["first"])
    client.start_consumer(named("c"), named("g"), topic)
    client.wait_for(named("c"), 1)


def send(client: Driver, named: Callable[[str], str], topic: str, body: str, **how: Any) -> Sent:
    (sent,) = client.send(named("p"), topic, [body], tags=["D"], keys=["delayed"], **how)
    assert sent.status == "SEND_OK"
    return sent


def test_due_times_by_the_setters_of_5_x(
    java: Driver, timer_topic: str, named: Callable[[str], str], flavour: Flavour
) -> None:
    begin(java, named, timer_topic)
    deliver_ms = int(time.time() * 1000) + DELAY_MS + 123
    asked: dict[str, tuple[str, dict[str, object], int | None]] = {
        "sec": ("TIMER_DELAY_SEC", {"delayTimeSec": DELAY_MS // 1000}, None),
        "ms": ("TIMER_DELAY_MS", {"delayTimeMs": DELAY_MS}, None),
        "at": ("TIMER_DELIVER_MS", {"deliverTimeMs": deliver_ms}, deliver_ms),
    }
    sent = {body: send(java, named, timer_topic, body, **how) for body, (_, how, _) in asked.items()}
    for message in java.wait_for(named("c"), 4)[1:]:
        body = message.body or ""
        one, (name, how, due_ms) = sent.pop(body), asked[body]
        assert (message.topic, message.msg_id, message.tags, message.keys) == (timer_topic, one.msg_id, "D", "delayed")
        assert message.properties[name] == str(*how.values())
        assert {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID"} <= set(message.properties)
        assert not any(name.startswith("PMQ_") for name in message.properties)
        check_on_time(flavour, message, one.sent_at_ms + DELAY_MS if due_ms is None else due_ms)
    assert not sent


@pytest.mark.parametrize("client_name", cases(["go_v2"], ["java_4_9_4", "go_v2"]), scope="session")
@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "__STARTDELIVERTIME"])
def test_due_times_by_properties_of_any_client(
    client_name: str, name: str, drivers: Drivers, timer_cluster: Cluster, timer_topic: str, named: Callable[[str], str],
    flavour: Flavour,
) -> None:  # fmt: skip
    if name == "__STARTDELIVERTIME" and flavour.name == "apache":
        return  # not supported by Apache
    with needed(client_name):
        client = drivers.get(client_name, timer_cluster)
    begin(client, named, timer_topic)
    now_ms = int(time.time() * 1000)
    value = DELAY_MS if name == "TIMER_DELAY_MS" else now_ms + DELAY_MS
    past = -1 if name == "TIMER_DELAY_MS" else now_ms - 1
    later = send(client, named, timer_topic, "later", **{f"property.{name}": value})
    at_once = send(client, named, timer_topic, "at once", **{f"property.{name}": past})
    _, second, third = client.wait_for(named("c"), 3)
    assert (second.body, second.msg_id, third.body, third.msg_id) == ("at once", at_once.msg_id, "later", later.msg_id)
    assert second.store_timestamp_ms < at_once.sent_at_ms + DELAY_MS
    check_on_time(flavour, third, later.sent_at_ms + DELAY_MS if name == "TIMER_DELAY_MS" else value)


def test_recalled_message_is_never_delivered(java: Driver, timer_topic: str, named: Callable[[str], str]) -> None:
    begin(java, named, timer_topic)
    gone = send(java, named, timer_topic, "gone", delayTimeMs=DELAY_MS)
    stays = send(java, named, timer_topic, "stays", delayTimeMs=DELAY_MS + 2000)
    level = send(java, named, timer_topic, "level", delayLevel=2)
    assert gone.recall_handle is not None and stays.recall_handle is not None and level.recall_handle is None
    assert java.recall(named("p"), timer_topic, gone.recall_handle) == gone.msg_id
    bodies = [message.body for message in java.wait_for(named("c"), 3)]
    assert sorted(body or "" for body in bodies) == ["first", "level", "stays"]
    with pytest.raises(DriverError, match=r"CODE: 604 .*recall failed, timestamp invalid"):
        java.recall(named("p"), timer_topic, gone.recall_handle)
    with pytest.raises(DriverError, match="recall handle is invalid"):
        java.recall(named("p"), timer_topic, "nonsense")


def test_invalid_due_time_is_refused(java: Driver, timer_topic: str, named: Callable[[str], str]) -> None:
    java.start_producer(named("p"))
    for how in ({"delayTimeSec": 500 * 86_400}, {"delayTimeMs": 1 << 62}, {"deliverTimeMs": (1 << 63) - 1}):
        with pytest.raises(DriverError, match=r"CODE: 13 .*timer message illegal, the delay time should not be bigger than"):
            java.send(named("p"), timer_topic, ["x"], **how)
