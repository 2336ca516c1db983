"""Transactions and recalls: how messages that are not yet to be seen are released, withdrawn, or asked about."""

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.proxy.grpc_client import consumer_settings, producer_settings, queue_of, receive_request, resource, seconds
from tests.proxy.served import running_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


def end_request(topic, entry, resolution, **fields):
    given = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, "source": pb.SOURCE_CLIENT, **fields}
    return pb.EndTransactionRequest(topic=resource(topic), resolution=resolution, **given)


async def begun(either, client, topic, body=b"half"):
    """Begin a transaction in a new topic of one queue, and return the entry of its send."""
    await either.create_topic(topic, "TRANSACTION", reads=1, writes=1)
    return (await client.send(topic, body, message_type=pb.TRANSACTION)).entries[0]


async def stored(client, topic):
    """Return the bodies in queue 0 of a topic."""
    request = pb.PullMessageRequest(group=resource("reader"), message_queue=queue_of(topic), batch_size=32)
    return (await client.ask(request)).bodies


async def test_a_committed_message_is_delivered(either, client):
    entry = await begun(either, client, "committed")
    assert await stored(client, "committed") == []
    await client.done(end_request("committed", entry, pb.COMMIT))
    assert await stored(client, "committed") == [b"half"]
    async with client.telemetry(consumer_settings("g", "committed")):
        (found,) = (await client.receive("committed", "g")).messages
    assert (found.body, found.system_properties.message_id) == (b"half", entry.message_id)
    assert found.system_properties.message_type == pb.TRANSACTION


async def test_a_message_that_is_rolled_back_is_not_delivered(either, client):
    entry = await begun(either, client, "rolled-back")
    await client.done(end_request("rolled-back", entry, pb.ROLLBACK))
    assert await stored(client, "rolled-back") == []


async def test_an_end_without_a_decision_leaves_the_transaction_open(either, client):
    entry = await begun(either, client, "undecided")
    await client.done(end_request("undecided", entry, pb.TRANSACTION_RESOLUTION_UNSPECIFIED))
    assert await stored(client, "undecided") == []
    await client.done(end_request("undecided", entry, pb.COMMIT))
    assert await stored(client, "undecided") == [b"half"]


async def test_another_producer_of_the_topic_may_end_a_transaction(either, client):
    entry = await begun(either, client, "by-another")
    async with either.client("another producer") as other:
        await other.done(end_request("by-another", entry, pb.COMMIT))
    assert await stored(client, "by-another") == [b"half"]


async def test_a_transaction_may_be_ended_by_another_front(either, client):
    entry = await begun(either, client, "by-another-front")
    async with running_proxy(either) as other, other.client() as there:
        await there.done(end_request("by-another-front", entry, pb.COMMIT))
    assert await stored(client, "by-another-front") == [b"half"]


def forged(**fields):
    """Return a transaction id with these fields."""
    names = ("broker", "log_offset", "queue_offset", "group", "stored_id")
    given = {"broker": "b", "log_offset": 0, "queue_offset": 0, "group": "forged", "stored_id": "x", **fields}
    return urlsafe_b64encode(json.dumps([given[name] for name in names]).encode()).decode()


INVALID = {
    "empty": "",
    "blank": "  ",
    "of another server": "01020304050607080900010203040506",
    "no base64": "%%%",
    "no JSON": urlsafe_b64encode(b"nonsense").decode(),
    "wrong types": urlsafe_b64encode(b'["b","0",0,"g","x"]').decode(),
    "very long": "A" * 5000,
    "letters of no alphabet": "\u00fc\u00fc",
}


@pytest.mark.parametrize("case", INVALID)
async def test_an_id_that_no_server_gave_is_refused(client, case):
    request = pb.EndTransactionRequest(
        topic=resource("transaction"), message_id="m", transaction_id=INVALID[case], resolution=pb.COMMIT
    )
    assert await client.code(request) == "INVALID_TRANSACTION_ID"


FORGED = {
    "nothing there": {"log_offset": 1 << 40, "queue_offset": 1 << 30},
    "below zero": {"log_offset": -1, "queue_offset": -1},
    "beyond 64 bits": {"log_offset": 1 << 63, "queue_offset": (1 << 64) - 1},
    "an unknown broker": {"broker": "elsewhere"},
    "an ordinary message": {},
}


@pytest.mark.parametrize("case", FORGED)
async def test_a_forged_id_ends_nothing_and_is_refused(either, client, case):
    await client.send("normal", b"ordinary")
    entry = await begun(either, client, "forged")
    request = end_request("forged", entry, pb.COMMIT, transaction_id=forged(**FORGED[case]))
    answer = await client.ask(request)
    assert answer.status.code not in (pb.OK, pb.INTERNAL_ERROR)
    assert await stored(client, "forged") == []


async def test_a_transaction_id_is_opaque_text_of_letters_and_digits(either, client):
    entry = await begun(either, client, "opaque")
    assert entry.transaction_id.replace("-", "").replace("_", "").isalnum()
    assert urlsafe_b64decode(entry.transaction_id + "==")


async def test_the_broker_asks_an_open_transaction_s_producer_which_may_end_it(either, client):
    await either.create_topic("asked", "TRANSACTION", reads=1, writes=1)
    async with client.telemetry(producer_settings("asked")) as stream:
        sent = (await client.send("asked", b"half", message_type=pb.TRANSACTION)).entries[0]
        asked = (await stream.read()).recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.system_properties.message_id) == (b"half", sent.message_id)
        assert asked.message.topic == resource("asked")
        end = end_request("asked", sent, pb.COMMIT, transaction_id=asked.transaction_id, source=pb.SOURCE_SERVER_CHECK)
        await client.done(end)
    assert await stored(client, "asked") == [b"half"]


# --- recalls --------------------------------------------------------------------------------------------------------


async def delayed(client, topic):
    due = Timestamp()
    due.FromMilliseconds(int((time.time() + 3600) * 1000))
    return (await client.send(topic, b"later", message_type=pb.DELAY, delivery_timestamp=due)).entries[0]


async def test_a_delayed_message_can_be_recalled_by_its_handle(client):
    entry = await delayed(client, "delay")
    assert entry.recall_handle
    answer = await client.done(pb.RecallMessageRequest(topic=resource("delay"), recall_handle=entry.recall_handle))
    assert answer.message_id == entry.message_id


async def test_a_recall_with_a_wrong_handle_or_topic_is_refused(client):
    handle = (await delayed(client, "delay")).recall_handle
    for topic, text, code in (
        ("delay", "", "BAD_REQUEST"),
        ("delay", "nonsense", "BAD_REQUEST"),
        ("normal", handle, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ("unknown", handle, "TOPIC_NOT_FOUND"),
        ("SCHEDULE_TOPIC_XXXX", handle, "ILLEGAL_TOPIC"),
    ):
        assert await client.code(pb.RecallMessageRequest(topic=resource(topic), recall_handle=text)) == code
    other = urlsafe_b64encode(b"v1 delay elsewhere 1800000000000 key").decode()
    request = pb.RecallMessageRequest(topic=resource("delay"), recall_handle=other)
    assert await client.code(request) not in ("OK", "INTERNAL_ERROR")


async def test_a_delayed_message_is_delivered_when_it_is_due(client):
    due = Timestamp()
    due.FromMilliseconds(int((time.time() + 1) * 1000))
    async with client.telemetry(consumer_settings("g", "delay")):
        await client.send("delay", b"soon", message_type=pb.DELAY, delivery_timestamp=due)
        found = await client.ask(receive_request("delay", "g", long_polling_timeout=seconds(20)))
    assert found.bodies == [b"soon"]
    assert found.messages[0].system_properties.delivery_timestamp.ToMilliseconds() == due.ToMilliseconds()
    assert found.messages[0].system_properties.message_type == pb.DELAY
