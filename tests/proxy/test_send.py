"""SendMessage: what is stored, and which messages are refused with which code."""

import gzip
import hashlib
import time
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.proxy.grpc_client import message, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


def in_seconds(delay_s: float) -> Timestamp:
    result = Timestamp()
    result.FromMilliseconds(int((time.time() + delay_s) * 1000))
    return result


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "empty body": ("MESSAGE_BODY_EMPTY", "normal", {"body": b""}),
    "large body": ("MESSAGE_BODY_TOO_LARGE", "normal", {"body": bytes((4 << 20) + 1)}),
    "blank tag": ("ILLEGAL_MESSAGE_TAG", "normal", {"tag": " "}),
    "tag with a bar": ("ILLEGAL_MESSAGE_TAG", "normal", {"tag": "a|b"}),
    "tag with a control character": ("ILLEGAL_MESSAGE_TAG", "normal", {"tag": "a\x01b"}),
    "blank key": ("ILLEGAL_MESSAGE_KEY", "normal", {"keys": ["k", ""]}),
    "key with a control character": ("ILLEGAL_MESSAGE_KEY", "normal", {"keys": ["k\n"]}),
    "blank message group": ("ILLEGAL_MESSAGE_GROUP", "fifo", {"message_group": " "}),
    "long message group": ("ILLEGAL_MESSAGE_GROUP", "fifo", {"message_group": "g" * 64}),
    "message group of long characters": ("ILLEGAL_MESSAGE_GROUP", "fifo", {"message_group": "\u00fc" * 32}),
    "system property": ("ILLEGAL_MESSAGE_PROPERTY_KEY", "normal", {"user": {"TAGS": "a"}}),
    "delay level as a property": ("ILLEGAL_MESSAGE_PROPERTY_KEY", "normal", {"user": {"DELAY": "3"}}),
    "property name with a control character": ("ILLEGAL_MESSAGE_PROPERTY_KEY", "normal", {"user": {"a\x02": "b"}}),
    "property value with a control character": ("ILLEGAL_MESSAGE_PROPERTY_KEY", "normal", {"user": {"a": "b\x01"}}),
    "too many properties": ("MESSAGE_PROPERTIES_TOO_LARGE", "normal", {"user": {f"k{n}": "v" for n in range(129)}}),
    "large properties": ("MESSAGE_PROPERTIES_TOO_LARGE", "normal", {"user": {"k": "v" * (16 << 10)}}),
    "large keys": ("MESSAGE_PROPERTIES_TOO_LARGE", "normal", {"keys": ["k" * (16 << 10), "l"]}),
    "blank message id": ("ILLEGAL_MESSAGE_ID", "normal", {"message_id": " "}),
    "message id with a control character": ("ILLEGAL_MESSAGE_ID", "normal", {"message_id": "a\x00"}),
    "long recovery time": (
        "BAD_REQUEST",
        "transaction",
        {"message_type": pb.TRANSACTION, "orphaned_transaction_recovery_duration": seconds(3601)},
    ),
    "delivery before 1970": ("ILLEGAL_DELIVERY_TIME", "delay", {"delivery_timestamp": Timestamp(seconds=-1)}),
    "lite topic": ("ILLEGAL_LITE_TOPIC", "normal", {"lite_topic": "l"}),
    "negative priority": ("BAD_REQUEST", "mixed", {"priority": -1}),
    "group in a normal topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "normal", {"message_group": "g"}),
    "delay in a normal topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "normal", {"delivery_timestamp": in_seconds(60)}),
    "transaction in a normal topic": (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
        "normal",
        {"message_type": pb.TRANSACTION},
    ),
    "no group in a fifo topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "fifo", {}),
    "no delay in a delay topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "delay", {}),
    "unknown topic": ("TOPIC_NOT_FOUND", "unknown", {}),
    "no topic": ("ILLEGAL_TOPIC", "", {}),
    "illegal topic": ("ILLEGAL_TOPIC", "a.b", {}),
    "long topic": ("ILLEGAL_TOPIC", "t" * 128, {}),
    "system topic": ("ILLEGAL_TOPIC", "SCHEDULE_TOPIC_XXXX", {}),
    "topic of the broker's own": ("ILLEGAL_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster", {}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_message_that_is_not_in_order_is_refused_with_its_code(client, case):
    code, topic, fields = REFUSED[case]
    assert await client.code(pb.SendMessageRequest(messages=[message(topic, **fields)])) == code


async def test_a_refusal_says_what_is_wrong(client):
    answer = await client.ask(pb.SendMessageRequest(messages=[message("normal", message_group="g")]))
    assert answer.status.message == (
        "TopicMessageType validate failed, the expected type is NORMAL, but actual type is FIFO"
    )


async def test_no_message_and_messages_of_two_topics_are_refused(client):
    assert await client.code(pb.SendMessageRequest()) == "MESSAGE_CORRUPTED"
    two = pb.SendMessageRequest(messages=[message("normal"), message("tags")])
    assert await client.code(two) == "MESSAGE_CORRUPTED"
    many = pb.SendMessageRequest(messages=[message("normal")] * 1025)
    assert await client.code(many) == "PAYLOAD_TOO_LARGE"


async def test_one_message_that_is_not_in_order_keeps_the_others_of_its_call_from_being_stored(client):
    request = pb.SendMessageRequest(messages=[message("normal"), message("normal", tag="|")])
    assert await client.code(request) == "ILLEGAL_MESSAGE_TAG"


LARGEST = {
    "tag": "t",
    "keys": ["k1", "k2"],
    "message_group": "g" * 63,
    "trace_context": "trace",
    "born_host": "10.1.2.3",
    "born_timestamp": Timestamp(seconds=1_700_000_000),
}


async def test_a_message_arrives_with_all_that_its_sender_gave(either, client):
    await either.create_topic("whole", "FIFO", reads=1, writes=1)
    sent = message("whole", b"content", {"colour": "blue"}, message_type=pb.FIFO, **LARGEST)
    entry = (await client.done(pb.SendMessageRequest(messages=[sent]))).entries[0]
    assert (entry.message_id, entry.offset, entry.status.code) == (sent.system_properties.message_id, 0, pb.OK)
    request = pb.PullMessageRequest(
        group=pb.Resource(name="reader"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="whole"), id=0, broker=pb.Broker(name="b")),
        batch_size=1,
    )
    (found,) = (await client.done(request)).messages
    assert (found.topic.name, found.body, dict(found.user_properties)) == ("whole", b"content", {"colour": "blue"})
    system = found.system_properties
    assert {name: getattr(system, name) for name in LARGEST} == LARGEST
    assert (system.message_id, system.message_type) == (sent.system_properties.message_id, pb.FIFO)
    assert (system.body_digest.type, system.body_digest.checksum) == (
        pb.MD5,
        hashlib.md5(b"content").hexdigest().upper(),
    )
    assert (system.body_encoding, system.queue_id, system.queue_offset, system.delivery_attempt) == (pb.IDENTITY, 0, 0, 1)
    assert abs(system.store_timestamp.ToMilliseconds() / 1000 - time.time()) < 60
    assert system.store_host == either.broker_address


async def test_a_compressed_body_arrives_as_it_was_sent(either, client):
    await either.create_topic("packed", reads=1, writes=1)
    body = gzip.compress(b"content" * 100)
    await client.send("packed", body, body_encoding=pb.GZIP)
    request = pb.PullMessageRequest(
        group=pb.Resource(name="reader"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="packed"), id=0, broker=pb.Broker(name="b")),
        batch_size=1,
    )
    (found,) = (await client.done(request)).messages
    assert (found.body, found.system_properties.body_encoding) == (body, pb.GZIP)


async def test_messages_of_one_group_are_stored_in_one_queue_and_in_order(client):
    sent = [(await client.send("fifo", b"m", message_type=pb.FIFO, message_group="one")).entries[0].offset for _ in range(5)]
    assert sent == list(range(sent[0], sent[0] + 5))


async def test_messages_without_a_group_are_spread_over_the_queues(either, client):
    await either.create_topic("spread", reads=4, writes=4)
    entries = (await client.send("spread", *[b"m"] * 8)).entries
    assert [entry.offset for entry in entries] == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_a_topic_of_mixed_types_takes_all_of_them(client):
    for system in (
        {},
        {"message_type": pb.FIFO, "message_group": "g"},
        {"message_type": pb.DELAY, "delivery_timestamp": in_seconds(60)},
        {"message_type": pb.TRANSACTION},
        {"message_type": pb.PRIORITY, "priority": 3},
    ):
        await client.send("mixed", b"m", **system)


async def test_a_topic_that_cannot_be_written_refuses_messages(either, client):
    await either.create_topic("read-only", perm=4)
    assert await client.code(pb.SendMessageRequest(messages=[message("read-only")])) == "FORBIDDEN"
