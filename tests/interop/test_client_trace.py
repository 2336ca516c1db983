"""Message traces: clients send them as separate messages, and mqadmin finds the sender and consumers of a message."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.driver import Driver
from tests.interop.drivers import Drivers, each_language, needed
from tests.interop.mqadmin import Mqadmin
from tests.interop.servers import Cluster, Flavour
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

TRACE_TOPIC, OWN_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC", "OwnTraces"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture(scope="module")
def tracing(flavour: Flavour, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("traces"), flavour, traceTopicEnable="true")
    try:
        running.start_broker()
        yield running
        drivers.close(running)
    finally:
        running.close()


@pytest.fixture
def tracer(client_name: str, tracing: Cluster, drivers: Drivers) -> Driver:
    with needed(client_name):
        return drivers.get(client_name, tracing)


@each_language
def test_message_traces_are_stored_and_found(
    tracer: Driver, client_name: str, tracing: Cluster, flavour: Flavour, mqadmin: Mqadmin, named: Callable[[str], str]
) -> None:
    """The broker's own trace topic exists from the start; another one is created by the first trace."""
    trace_topic = OWN_TRACE_TOPIC if client_name == "java_5_5_0" else TRACE_TOPIC
    topic, producer, consumer, group = named("topic"), named("p"), named("c"), named("g")
    with Connection(tracing.broker_address) as connection:
        assert TRACE_TOPIC in connection.topic_table()
        connection.create_topic(topic, 1)
    tracer.start_producer(producer, group=producer, traceTopic=trace_topic)
    tracer.start_consumer(consumer, group, topic, traceTopic=trace_topic)
    (sent,) = tracer.send(producer, topic, ["traced"], keys=["k"])
    tracer.wait_for(consumer, 1)
    patterns = [
        rf"Pub +{re.escape(producer)} +[\d.]+ +{TIME} +\d+ms +success *$",
        rf"Sub +{re.escape(group)} +[\d.]+ +{TIME} +\d+ms +success *$",
    ]
    if flavour.name == "apache" and client_name == "java_5_5_0":
        patterns.pop()  # it traces consumption only of messages with MSG_REGION, which 4.9.4 does not store
    deadline = time.monotonic() + PATIENCE_S
    while True:  # clients collect traces for half a second, 5.5.0 for five
        printed = mqadmin.run(tracing.namesrv_address, "queryMsgTraceById", "-i", sent.msg_id, "-t", trace_topic)
        if all(re.search(pattern, printed, re.MULTILINE) for pattern in patterns):
            break
        assert time.monotonic() < deadline, printed
        time.sleep(0.2)
    tracer.shutdown(producer, consumer)
