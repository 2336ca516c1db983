import pytest

from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, decode_body, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from tests.broker.data_path import TOPIC, DataPath, records


@pytest.fixture
async def path():
    return DataPath()


def find(path, key, count_max=10, begin=0, end=2**62, is_unique=False):
    return path.call(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(TOPIC, key, count_max, begin, end, is_unique))


async def test_messages_are_found_by_key_and_by_unique_key(path):
    path.send("KEYS\x01k1 k2\x02UNIQ_KEY\x01u1", b"one")
    path.send("KEYS\x01k2\x02UNIQ_KEY\x01u2", b"two")
    assert [record.body for record in records(find(path, "k2").body)] == [b"one", b"two"]
    assert [record.body for record in records(find(path, "u2", 1, is_unique=True).body)] == [b"two"]
    last = path.stored()[-1]
    assert find(path, "k1").ext == {
        "indexLastUpdateTimestamp": str(last.store_timestamp_ms),
        "indexLastUpdatePhyoffset": str(last.physical_offset),
    }


async def test_unknown_key_is_answered_query_not_found(path):
    path.send("KEYS\x01k1")
    for answer in (find(path, "other"), find(path, "k1", end=1)):
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"


async def test_a_message_is_viewed_by_its_id(path):
    path.send(body=b"first")
    _, physical_offset = decode_message_id(path.send(body=b"second").ext["msgId"])
    answer = path.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(physical_offset))
    assert [record.body for record in records(answer.body)] == [b"second"]
    for wrong in (physical_offset + 1, 10**12, -1):
        assert path.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(wrong)).code == ResponseCode.SYSTEM_ERROR


async def test_queue_locks_by_requests(path):
    queues = [MessageQueue("b", queue_id, TOPIC) for queue_id in range(2)]
    body = encode_body(LockBatchBody("cg", "c1", queues))
    answer = path.call(RequestCode.LOCK_BATCH_MQ, None, body)
    assert decode_body(LockOkBody, answer.body).lock_ok_mq_set == queues
    other = path.call(RequestCode.LOCK_BATCH_MQ, None, encode_body(LockBatchBody("cg", "c2", queues)))
    assert other.body == b'{"lockOKMQSet":[]}'
    assert path.call(RequestCode.UNLOCK_BATCH_MQ, None, body).code == 0
    assert path.services.locks.holder_of("cg", queues[0]) is None
    assert path.call(RequestCode.LOCK_BATCH_MQ, None, b"[").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("expression_type", "expression", "code"),
    [("TAG", "a||b", 0), (None, "*", 0), ("TAG", "||", 23)],
)
async def test_check_client_config_validates_tags(path, expression_type, expression, code):
    subscription = {"topic": TOPIC, "subString": expression, "expressionType": expression_type}
    body = encode_body({"clientId": "c", "group": "cg", "subscriptionData": subscription})
    assert path.call(RequestCode.CHECK_CLIENT_CONFIG, None, body).code == code
