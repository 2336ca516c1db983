"""Every kind of send, with the messages received by a push consumer."""

import json
import time
import zlib
from collections.abc import Callable

import pytest

from tests.interop.driver import Driver, Received
from tests.interop.drivers import Drivers, needed, with_cpp
from tests.interop.servers import BROKER_NAME, Cluster
from tests.interop.wire import GET_ROUTE, SUCCESS, Connection, Record

COMPRESSED_FLAG = 0x1
ROUTE_S = {"pocketmq": 0, "apache": 2}  # Apache's broker does not wait for the answer to its registration


def by_body(received: list[Received]) -> dict[str, Received]:
    bodies = {message.body or "": message for message in received}
    assert len(bodies) == len(received), "a message was repeated"
    return bodies


def test_send_sync_with_tags_keys_and_properties(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    client.start_producer(named("p"))
    sent = client.send(named("p"), topic, ["one", "two", "drei 你好 😀"], tags=["A", "B", "A"],
                       keys=["k-1", "k-2 k-2b", "k-3"], **{"property.colour": "blau ü"})  # fmt: skip
    assert [one.status for one in sent] == ["SEND_OK"] * 3
    client.start_consumer(named("c"), named("g"), topic)
    got = by_body(client.wait_for(named("c"), 3))
    for one in sent:
        message = got[one.body]
        assert (message.topic, message.msg_id, message.offset_msg_id) == (topic, one.msg_id, one.offset_msg_id)
        assert (message.queue_id, message.queue_offset) == (one.queue_id, one.queue_offset)
        assert message.properties["colour"] == "blau ü"
        assert message.reconsume_times == 0
        assert message.born_timestamp_ms <= message.store_timestamp_ms <= message.arrived_at_ms
    assert [(got[one.body].tags, got[one.body].keys) for one in sent] == [
        ("A", "k-1"), ("B", "k-2 k-2b"), ("A", "k-3")]  # fmt: skip
    client.shutdown(named("p"), named("c"))


def test_send_async_oneway_and_batch(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    client.start_producer(named("p"))
    asynchronous = client.send(named("p"), topic, [f"async {n}" for n in range(50)], kind="async", tags=["Async"])
    oneway = client.send(named("p"), topic, [f"oneway {n}" for n in range(10)], kind="oneway", tags=["Oneway"])
    batch = client.send(named("p"), topic, [f"batch {n}" for n in range(20)], kind="batch", tags=["Batch"],
                        keys=[f"b-{n}" for n in range(20)])  # fmt: skip
    assert {one.status for one in asynchronous + batch} == {"SEND_OK"}
    client.start_consumer(named("c"), named("g"), topic)
    got = by_body(client.wait_for(named("c"), 80))
    assert set(got) == {one.body for one in asynchronous + oneway} | {f"batch {n}" for n in range(20)}
    for one in asynchronous:
        assert (got[one.body].queue_id, got[one.body].queue_offset) == (one.queue_id, one.queue_offset)
    members = [got[f"batch {n}"] for n in range(20)]
    begin = batch[0].queue_offset
    assert [member.queue_offset for member in members] == list(range(begin, begin + 20)), "consecutive, in order"
    assert {member.queue_id for member in members} == {batch[0].queue_id}
    assert [member.keys for member in members] == [f"b-{n}" for n in range(20)]
    assert batch[0].offset_msg_id.split(",") == [member.offset_msg_id for member in members]
    client.shutdown(named("p"), named("c"))


@with_cpp
def test_send_to_chosen_queues_is_consumed_in_order(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    """A selector chooses the queue; an orderly consumer keeps the order even if a message fails."""
    client.start_producer(named("p"))
    for queue_id in range(3):
        sent = client.send(named("p"), topic, [f"{queue_id}:{n}" for n in range(20)], queueId=queue_id)
        assert {one.queue_id for one in sent} == {queue_id}
    client.start_consumer(named("c"), named("g"), topic, orderly=True, fail=["1:5"], failTimes=1)
    client.wait_for(named("c"), 61)
    got = client.received(named("c"))
    for queue_id in range(3):
        bodies = [message.body for message in got if (message.body or "").startswith(f"{queue_id}:")]
        expected = [f"{queue_id}:{n}" for n in range(20)]
        if queue_id == 1:
            expected.insert(5, "1:5")
        assert bodies == expected
    client.shutdown(named("p"), named("c"))


@with_cpp
def test_unknown_topic_is_created_by_a_send(client: Driver, cluster: Cluster, named: Callable[[str], str]) -> None:
    topic = named("never-made-before")
    client.start_producer(named("p"))
    assert client.send(named("p"), topic, ["x"])[0].status == "SEND_OK"
    deadline = time.monotonic() + ROUTE_S[cluster.flavour.name]
    with Connection(cluster.namesrv_address) as namesrv:
        while (route := namesrv.call(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})).code != SUCCESS:
            assert time.monotonic() < deadline, route
    queues = json.loads(route.body)["queueDatas"][0]
    assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == (BROKER_NAME, 4, 4)
    client.shutdown(named("p"))


def test_large_body(client: Driver, topic: str, named: Callable[[str], str]) -> None:
    """3 MiB, not compressed: the response of a pull is one frame of that size."""
    size = 3 << 20
    client.start_producer(named("p"), compressOver=1 << 30)
    sent = client.send(named("p"), topic, ["large "], size=size)
    assert sent[0].status == "SEND_OK"
    client.start_consumer(named("c"), named("g"), topic)
    got = client.wait_for(named("c"), 1)[0]
    plain = (b"large " * (size // 6 + 1))[:size]
    assert (got.body_size, got.body_crc) == (size, zlib.crc32(plain))
    client.shutdown(named("p"), named("c"))


def compressed(
    client: Driver, connection: Connection, topic: str, named: Callable[[str], str], kind: str
) -> tuple[Record, bytes]:
    """Returns the stored record of a body that a client compressed and consumed, and the original body."""
    size = 200_000
    client.start_producer(named("p"), compressType=kind)
    sent = client.send(named("p"), topic, ["compress me "], size=size)[0]
    client.start_consumer(named("c"), named("g"), topic)
    got = client.wait_for(named("c"), 1)[0]
    plain = (b"compress me " * (size // 12 + 1))[:size]
    assert (got.body_size, got.body_crc) == (size, zlib.crc32(plain))
    stored = connection.read_queue(topic, sent.queue_id)[0]
    client.shutdown(named("p"), named("c"))
    return stored, plain


def test_compressed_body_is_kept_as_sent(
    client: Driver, connection: Connection, topic: str, named: Callable[[str], str]
) -> None:
    stored, plain = compressed(client, connection, topic, named, "ZLIB")
    assert stored.sys_flag & COMPRESSED_FLAG
    assert zlib.decompress(stored.body) == plain


@pytest.mark.parametrize(("kind", "flag", "magic"), [("LZ4", 0x100, "04224d18"), ("ZSTD", 0x200, "28b52ffd")])
def test_body_compressed_by_a_5_x_algorithm_is_kept_as_sent(
    drivers: Drivers, cluster: Cluster, connection: Connection, topic: str, named: Callable[[str], str],
    kind: str, flag: int, magic: str,
) -> None:  # fmt: skip
    with needed("java_5_5_0"):
        client = drivers.get("java_5_5_0", cluster)
    stored, plain = compressed(client, connection, topic, named, kind)
    assert stored.sys_flag & 0x701 == flag | COMPRESSED_FLAG
    assert stored.body.startswith(bytes.fromhex(magic)) and len(stored.body) < len(plain) // 100


def test_namespace(client: Driver, connection: Connection, named: Callable[[str], str]) -> None:
    """A namespace is a prefix that the client adds to topics and groups, and hides from the application."""
    space = named("ns")
    connection.create_topic(f"{space}%{named('topic')}", 4)
    client.start_producer(named("p"), namespace=space)
    sent = client.send(named("p"), named("topic"), ["in a namespace"])[0]
    client.start_consumer(named("c"), named("g"), named("topic"), namespace=space)
    assert client.wait_for(named("c"), 1)[0].body == "in a namespace"
    assert connection.read_queue(f"{space}%{named('topic')}", sent.queue_id)[0].body == b"in a namespace"
    client.shutdown(named("p"), named("c"))
