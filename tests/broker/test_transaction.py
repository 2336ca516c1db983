"""Transactions: prepare, commit and rollback, and the stored half and op messages."""

import pytest

from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC, TRANSACTION_PREPARED_TYPE, TRANSACTION_TYPE_MASK
from pocketmq.store.format.properties import decode_properties
from tests.broker.data_path import TOPIC
from tests.broker.transacting import COMMIT, INTERVAL_MS, OP, ROLLBACK, TIMEOUT_MS, UNKNOWN, Transacting, properties


@pytest.fixture(params=["as it was put", "read from the log"])
async def path(request, monkeypatch):
    """A data path; transactions are ended from the cached half message, or from its record in the log."""
    if request.param != "as it was put":
        monkeypatch.setattr("pocketmq.broker.transaction.transaction.PREPARED_BODY_SIZE_MAX", -1)
    return Transacting()


async def test_half_message_is_only_in_the_half_queue(path):
    answer = path.prepare("a", TAGS="tag", KEYS="key", WAIT="true")
    (half,) = path.halves()
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "0", "0")
    assert answer.ext["transactionId"] == "U-a"
    assert decode_message_id(answer.ext["msgId"])[1] == half.physical_offset
    assert path.stored() == []
    assert half.sys_flag & TRANSACTION_TYPE_MASK == 0, "with the flag it would be in no queue"
    assert properties(half) == {
        "TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U-a", "TAGS": "tag", "KEYS": "key", "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": TOPIC, "REAL_QID": "0", "__transactionId__": "U-a",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02TAGS\x01a\x02",
        "WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01pg",
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02WAIT\x01false",
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02CLUSTER\x01theirs\x02UNIQ_KEY\x01u",
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02REAL_TOPIC\x01Elsewhere\x02REAL_QID\x017\x02own\x01x\x01y",
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02__transactionId__\x01theirs\x02TAGS\x01\x02UNIQ_KEY\x01u",
    ],
)
async def test_half_message_has_each_property_once_and_the_broker_s_own(path, text):
    path.send(text, sys_flag=TRANSACTION_PREPARED_TYPE)
    sent = decode_properties(text)
    sent.pop("WAIT", None)
    added = {"CLUSTER": "DefaultCluster", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    if "UNIQ_KEY" in sent:
        added["__transactionId__"] = sent["UNIQ_KEY"]
    (half,) = path.halves()
    assert properties(half) == sent | added
    assert len(half.properties.split(b"\x02")) == len(sent | added)


async def test_broker_properties_of_a_half_message_from_a_client_are_ignored(path):
    path.prepare("a", TRANSACTION_CHECK_TIMES=15, TRAN_PREPARED_QUEUE_OFFSET=3, PMQ_STORED_MS=1)
    assert {"TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "PMQ_STORED_MS"}.isdisjoint(
        properties(path.halves()[0])
    )


async def test_commit_delivers_and_stores_an_op_message_for_both_versions(path):
    path.send("UNIQ_KEY\x01ordinary", b"before")
    path.prepare("first")
    path.prepare("a", TAGS="tag", KEYS="key", own="1")
    half = path.halves()[1]
    assert path.end(half).code == 0
    before, message = path.stored()
    assert (before.body, message.body) == (b"before", b"a")
    assert message.sys_flag & TRANSACTION_TYPE_MASK == COMMIT
    assert message.prepared_transaction_offset == half.physical_offset
    assert (message.born_timestamp_ms, message.born_host) == (half.born_timestamp_ms, half.born_host)
    assert properties(message) == properties(half), "as in Apache, the broker's own properties are delivered too"
    (op,) = path.stored(OP)
    assert (op.body, properties(op)) == (b"1", {"TAGS": "d"})


async def test_odd_properties_are_delivered_as_stored_in_the_half_message(path):
    path.prepare("a", empty="", name="x\x01y", é="ü", **{"b\x01c": "d", "__CRC32#": "1"})
    (half,) = path.halves()
    assert path.end(half).code == 0
    (message,) = path.stored()
    found = properties(message)
    assert "__CRC32#" not in found and found == {k: v for k, v in properties(half).items() if k != "__CRC32#"}
    assert (found["name"], found["é"], found["b\ufffdc"]) == ("x\x01y", "ü", "d")


async def test_rollback_stores_only_an_op_message(path):
    path.prepare("a")
    assert path.end(path.halves()[0], ROLLBACK).code == 0
    await path.advance(10 * TIMEOUT_MS)
    assert (path.stored(), path.ops(), len(path.halves())) == ([], ["0"], 1)


async def test_unknown_state_is_not_answered_and_keeps_the_transaction_open(path):
    path.prepare("a")
    (half,) = path.halves()
    header = EndTransactionRequestHeader("pg", half.queue_offset, half.physical_offset, UNKNOWN, "m")
    path.channel.take()
    path.ask(RequestCode.END_TRANSACTION, header)
    path.turn()
    assert (path.channel.take(), path.ops(), path.stored()) == ([], [], [])
    assert path.end(half, 4).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 0}, "Find prepared transaction message failed"),  # a message, but no half message
    ],
)
async def test_end_of_an_unknown_half_message_is_refused(path, wrong, remark):
    path.send("PGROUP\x01pg", b"ordinary")
    path.prepare("a")
    answer = path.end(path.halves()[0], **wrong)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith(remark)
    assert (path.bodies(), path.ops()) == (["ordinary"], [])


async def test_half_message_forged_inside_a_body_is_refused(path):
    path.prepare("a")
    (half,) = path.halves()
    forged = bytearray(path.store.message_at(half.physical_offset))
    at = path.store.max_physical_offset + 88  # after the fixed part of the record that contains it
    forged[28:36] = at.to_bytes(8, "big")
    path.send(None, bytes(forged))
    assert bytes(path.store.message_at(at)) == bytes(forged)
    answer = path.end(half, commit_log_offset=at)
    assert (answer.code, path.ops(), len(path.stored())) == (ResponseCode.SYSTEM_ERROR, [], 1)


async def test_delay_of_a_committed_message_starts_at_the_commit(path):
    path.prepare("level", DELAY=2)
    path.prepare("timer", TIMER_DELAY_MS=3_000)
    delay_ms = DelayLevels(path.store.config.message_delay_level).delay_ms(2)
    await path.advance(3_000)
    assert path.stored() == []
    for half in path.halves():
        path.end(half)
    assert len(path.stored(SCHEDULE_TOPIC, 1)) == 1
    assert path.stored() == []
    await path.advance(3_000)
    assert path.bodies() == ["timer"]
    await path.advance(delay_ms - 3_000)
    assert path.bodies() == ["timer", "level"]
    assert all(record.sys_flag & TRANSACTION_TYPE_MASK == COMMIT for record in path.stored())


async def test_invalid_delay_of_a_half_message_is_refused(path):
    answer = path.prepare("a", TIMER_DELAY_SEC=10**9)
    assert (answer.code, path.halves()) == (ResponseCode.MESSAGE_ILLEGAL, [])


async def test_committed_message_sent_back_is_not_a_half_message(path):
    path.services.groups.find("cg")
    answer = path.send("TRAN_MSG\x01true\x02DELAY\x011", topic="%RETRY%cg", reconsume_times=1)
    assert (answer.code, path.halves()) == (0, [])


async def test_commit_that_cannot_be_stored_keeps_the_transaction_open(path):
    path.prepare("a")
    (half,) = path.halves()
    path.store.commit_log.refuse("test", "disk full")
    assert path.end(half).code == ResponseCode.SERVICE_NOT_AVAILABLE
    path.store.commit_log.refuse("test", None)
    assert path.ops() == []
    assert path.end(half).code == 0
    assert (path.bodies(), path.ops()) == (["a"], ["0"])


async def test_transaction_ended_without_op_message_stays_ended_in_the_process(path, caplog):
    path.prepare("a")
    path.prepare("b")
    a, b = path.halves()
    path.ask_end(a, ROLLBACK)
    path.ask_end(b, ROLLBACK)
    path.store.commit_log.refuse("test", "disk full")
    path.turn()
    path.store.commit_log.refuse("test", None)
    assert "[0, 1]" in caplog.text and "disk full" in caplog.text
    channel = path.producer()
    await path.advance(TIMEOUT_MS)
    assert (channel.take(), path.ops()) == ([], [])
    path = path.again()
    channel = path.producer()
    await path.advance(INTERVAL_MS)
    assert len(channel.take()) == 2, "the next process checks them"


async def test_each_transaction_ended_in_a_turn_has_its_own_op_message(path):
    for body in "abc":
        path.prepare(body)
    a, b, c = path.halves()
    for half, ending in ((c, COMMIT), (a, ROLLBACK), (b, COMMIT)):
        path.ask_end(half, ending)
    path.turn()
    assert (path.bodies(), path.ops()) == (["c", "b"], ["2", "0", "1"])
    path.persist()
    assert path.progress() == (3, 3)


async def test_progress_advances_over_ended_transactions_once_synced(path):
    for body in "abc":
        path.prepare(body)
    a, b, c = path.halves()
    path.end(c)
    path.end(a, ROLLBACK)
    path.services.transactions.persist()
    path.services.transactions.persist()
    assert path.progress() == (-1, -1), "nothing is synced"
    path.persist()
    assert path.progress() == (1, 0), "the first op message names c, which is after the open b"
    path.end(b)
    path.persist()
    assert path.progress() == (3, 3)


async def test_retention_keeps_open_half_messages(path):
    path.prepare("a")
    path.prepare("b")
    a, b = path.halves()
    may_remove = path.services.transactions.may_remove
    assert may_remove(a.physical_offset) and not may_remove(b.physical_offset)
    path.end(a)
    assert may_remove(b.physical_offset) and not may_remove(b.physical_offset + 1)
    path.end(b)
    assert may_remove(1 << 40)


async def test_op_messages_of_both_versions_are_read(path):
    for body in "abcd":
        path.prepare(body)
    path.put_op(b"3")  # 4.9.4's
    path.put_op(b"1,0,")  # 5.x's
    path = path.again()
    channel = path.producer()
    await path.advance(TIMEOUT_MS)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-c"]
    path.persist()
    assert path.progress() == (4, 2), "only the copy of c is open, and both op messages precede it"
