import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.put.answer_gate import waits_for_store
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.broker.put.put import StoredProperties, split_properties
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.store.format.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from pocketmq.store.format.properties import decode_properties, encode_properties, is_odd
from tests.broker.data_path import TOPIC, DataPath, send_header, until

stored = StoredProperties("C")
text = st.text(st.characters(blacklist_characters="\0\x01\x02", blacklist_categories=("Cs",)), max_size=5)


@given(st.text(st.sampled_from("a=\x01\x02"), max_size=20))
def test_fast_property_parser_equals_the_store_s(properties):
    found, text = split_properties(properties)
    assert found == decode_properties(properties) == decode_properties(text)
    assert not is_odd(text, found)


@pytest.mark.parametrize("entry", ["no separator", "\x01no name", "no value\x01", "two\x01three\x01parts", "a\x01twice", ""])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_odd_property_string_is_stored_normalized(entry, place):
    entries = ["a\x01b", "c\x01d"]
    entries.insert(place, entry)
    given_text = "\x02".join(entries)
    properties, kept = split_properties(given_text)
    bytes_stored = stored(kept, properties)
    assert decode_properties(bytes_stored) == decode_properties(given_text) | {"CLUSTER": "C"}
    assert len(bytes_stored.split(b"\x02")) == len(decode_properties(bytes_stored))
    member = stored.of_member(kept, properties, {"batch": "x", "a": "batch wins"})
    assert decode_properties(member) == properties | {"CLUSTER": "C", "batch": "x", "a": "batch wins"}
    assert len(member.split(b"\x02")) == len(decode_properties(member))


@pytest.mark.parametrize(
    "given_text", ["POP_CK\x01h\x02a\x01b\x02", "a\x01b\x02POP_CK\x01h", "POP_CK\x01h\x02odd\x02a\x01b"]
)
def test_pop_ck_property_from_sender_is_dropped(given_text):
    properties, kept = split_properties(given_text)
    assert properties == decode_properties(kept) == {"a": "b"}


def test_only_an_entry_named_pop_ck_is_left_out():
    text = "a\x01POP_CK\x02POP_CKS\x01b\x02XPOP_CK\x01c"
    assert split_properties(text) == ({"a": "POP_CK", "POP_CKS": "b", "XPOP_CK": "c"}, text)


@pytest.mark.parametrize("text_with_zero", ["a\x01b\x02KEYS\x01k\0", "KEYS\x01\0", "a\x01b\x02KEYS\0\x01k"])
async def test_zero_byte_in_a_property_is_refused_naming_the_property(text_with_zero):
    path = DataPath()
    answer = path.call(RequestCode.SEND_MESSAGE_V2, send_header(text_with_zero), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "zero byte" in answer.remark and "KEYS" in answer.remark
    assert path.store.max_physical_offset == 0


@pytest.mark.parametrize("name", ["%LMQ%a\0b", "%RETRY%a/b", "%DLQ%" + "n" * 300, "a\0b", "t" * 128])
async def test_topic_invalid_as_folder_is_refused(name):
    path = DataPath()
    answer = path.call(RequestCode.SEND_MESSAGE_V2, send_header(topic=name), b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR and "The specified topic" in answer.remark
    assert path.store.max_physical_offset == 0


@pytest.mark.parametrize("group", ["a\0b", "../up", "n" * 300])
async def test_group_with_an_unstorable_retry_topic_affects_no_other(group):
    path = DataPath()
    path.send()
    header = ConsumerSendMsgBackRequestHeader(0, group, -1)
    answer = path.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert path.send().code == ResponseCode.SUCCESS and len(path.stored()) == 2


@given(
    st.dictionaries(text.filter(bool), text.filter(bool), max_size=4),
    st.sampled_from([None, "true", "false"]),
    st.integers(0, 4),
    st.booleans(),
)
def test_stored_properties_have_cluster_but_not_wait(properties, wait, position, ends_with_separator):
    entries = list(properties.items())
    if wait is not None:
        entries.insert(position, ("WAIT", wait))
    given_text = encode_properties(dict(entries)) + ("\x02" if entries and ends_with_separator else "")
    properties_given, given_text = split_properties(given_text)
    bytes_stored = stored(given_text, properties_given)
    kept = {name: value for name, value in entries if name != "WAIT"}
    assert decode_properties(bytes_stored) == kept | {"CLUSTER": "C"}
    assert not bytes_stored.endswith(b"\x02")


def test_property_order_of_the_java_client_is_kept():
    java = "KEYS\x01k\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02TAGS\x01t"
    assert stored(java, split_properties(java)[0]) == b"KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02CLUSTER\x01C"
    assert stored("", {}) == b"CLUSTER\x01C"


@pytest.mark.parametrize(
    ("wait", "expected"), [(None, True), ("true", True), ("TRUE", True), ("false", False), ("x", False)]
)
def test_wait_is_parsed_as_a_java_boolean(wait, expected):
    assert waits_for_store({} if wait is None else {"WAIT": wait}) is expected


# --- waiting for the disk --------------------------------------------------------------------------------------------


class SyncedByHand(DataPath):
    """A data path with SYNC_FLUSH in which the test decides what is synced; `requested` lists the requested syncs."""

    def __init__(self, **store):
        super().__init__(flush_disk_type="SYNC_FLUSH", **store)
        self.requested = []
        self.store.request_sync = self.requested.append

    def send_later(self, properties=None):
        self.ask(RequestCode.SEND_MESSAGE_V2, send_header(properties), b"x")

    async def synced(self, end_offset, error=None):
        """Report a sync as the flush thread does."""
        await asyncio.to_thread(self.store.flushed, end_offset, error)
        await asyncio.sleep(0)


async def test_answers_wait_for_one_sync_per_turn():
    path = SyncedByHand()
    path.send_later()
    end_of_first = path.store.max_physical_offset
    path.send_later()
    path.send_later()
    assert path.requested == []
    path.turn()
    path.turn()
    end = path.store.max_physical_offset
    assert path.requested == [end]
    assert path.channel.take() == [] and path.channel.deferred_count == 3
    await path.synced(end_of_first)
    assert [answer.opaque for answer in path.channel.take()] == [1]
    await path.synced(end)
    answers = path.channel.take()
    assert [(answer.opaque, answer.code) for answer in answers] == [(2, 0), (3, 0)]
    assert answers[0].ext["queueOffset"] == "1"


async def test_send_with_wait_false_does_not_wait_for_the_sync():
    path = SyncedByHand()
    path.send_later("WAIT\x01false")
    assert [answer.code for answer in path.channel.take()] == [0]


@pytest.mark.parametrize(("ending", "answers_then"), [(TRANSACTION_COMMIT_TYPE, []), (TRANSACTION_ROLLBACK_TYPE, [0])])
async def test_commit_with_answer_is_synced_before_the_answer(ending, answers_then):
    path = SyncedByHand()
    header = send_header("TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u", sys_flag=TRANSACTION_PREPARED_TYPE)
    path.ask(RequestCode.SEND_MESSAGE_V2, header, b"x")
    await path.synced(path.store.max_physical_offset)
    (half,) = path.channel.take()
    physical_offset = decode_message_id(half.ext["msgId"])[1]
    path.ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader("pg", 0, physical_offset, ending, "u"))
    path.turn()
    assert [answer.code for answer in path.channel.take()] == answers_then
    await path.synced(path.store.max_physical_offset)
    assert [answer.code for answer in path.channel.take()] == [0][len(answers_then) :]


async def test_sync_timeout_is_answered_with_the_message_ids():
    path = SyncedByHand(sync_flush_timeout=20)
    path.send_later()
    path.send_later()
    path.turn()
    path.clock.seconds += 1
    await until(lambda: path.channel.out)
    answers = path.channel.take()
    assert [answer.code for answer in answers] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 2
    assert answers[1].ext["queueOffset"] == "1" and len(answers[1].ext["msgId"]) == 32
    await path.synced(path.store.max_physical_offset)
    assert path.channel.take() == []


async def test_after_a_failed_sync_no_send_is_acknowledged():
    path = SyncedByHand()
    path.send_later()
    path.turn()
    await path.synced(path.store.max_physical_offset, OSError(5, "bad disk"))
    (answer,) = path.channel.take()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "bad disk" in answer.remark and answer.ext is None


async def test_flush_thread_completes_waiting_answers():
    path = DataPath(flush_disk_type="SYNC_FLUSH")
    path.store.start()
    for _ in range(3):
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"x")
    path.turn()
    await until(lambda: path.channel.deferred_count == 0)
    assert [answer.code for answer in path.channel.take()] == [0, 0, 0]
    assert path.store.flushed_offset == path.store.max_physical_offset
    path.store.shutdown()


async def test_sync_master_without_slave_answers_slave_not_available():
    path = DataPath(broker_role="SYNC_MASTER")
    answer = path.send(body=b"stored")
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert answer.ext["queueOffset"] == "0"
    assert [record.body for record in path.stored()] == [b"stored"]
    assert path.send("WAIT\x01false").code == ResponseCode.SUCCESS


# --- delay levels ----------------------------------------------------------------------------------------------------


async def test_message_with_delay_level_is_stored_in_the_schedule_topic():
    path = DataPath()
    answer = path.send("DELAY\x013\x02TAGS\x01t\x02WAIT\x01true", queue_id=2)
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
    assert path.stored(TOPIC, 2) == []
    (record,) = path.stored("SCHEDULE_TOPIC_XXXX", 2)
    assert decode_properties(record.properties) == {
        "DELAY": "3",
        "TAGS": "t",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
    }


async def test_level_above_the_maximum_is_the_maximum():
    path = DataPath(message_delay_level="1s 5s")
    path.send("DELAY\x0199")
    (record,) = path.stored("SCHEDULE_TOPIC_XXXX", 1)
    assert decode_properties(record.properties)["DELAY"] == "2"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_level_0_means_no_delay(level):
    path = DataPath()
    assert path.send(f"DELAY\x01{level}").code == 0
    assert len(path.stored()) == 1


async def test_non_numeric_level_is_refused():
    answer = DataPath().send("DELAY\x01soon")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "DELAY='soon'" in answer.remark
