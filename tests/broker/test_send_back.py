import asyncio

import pytest

from pocketmq.broker.put.message_id import encode_message_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pocketmq.store.format.properties import decode_properties
from tests.broker.data_path import DataPath

RETRY, DLQ, SCHEDULE = "%RETRY%cg", "%DLQ%cg", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
async def path():
    return DataPath()


def give_back(path, record, delay_level=0, group="cg", **fields):
    header = ConsumerSendMsgBackRequestHeader(record.physical_offset, group, delay_level, **fields)
    return path.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def test_message_sent_back_is_delayed_and_redelivered(path):
    path.send("TAGS\x01t\x02mine\x01yes", b"again", flag=9)
    (first,) = path.stored()
    assert give_back(path, first).code == 0
    (waiting,) = path.stored(SCHEDULE, 2)  # level 3: 10 s
    assert path.stored(RETRY) == []
    path.clock.advance(10_000)
    await asyncio.sleep(0)
    path.turn()
    (retried,) = path.stored(RETRY)
    assert (retried.body, retried.flag, retried.reconsume_times) == (b"again", 9, 1)
    assert (retried.born_host, retried.born_timestamp_ms) == (first.born_host, first.born_timestamp_ms)
    assert decode_properties(retried.properties) == {
        "TAGS": "t",
        "mine": "yes",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": encode_message_id(first.store_host, first.physical_offset),
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert waiting.reconsume_times == 1
    give_back(path, retried)
    (second,) = path.stored(SCHEDULE, 3)  # level 4: 30 s
    properties = decode_properties(second.properties)
    assert second.reconsume_times == 2
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == encode_message_id(first.store_host, first.physical_offset)


async def test_requested_delay_level_is_used(path):
    path.send()
    give_back(path, path.stored()[0], delay_level=1)
    assert len(path.stored(SCHEDULE, 0)) == 1


@pytest.mark.parametrize(
    ("reconsume_times", "fields", "is_dead"),
    [(15, {}, False), (16, {}, True), (2, {"max_reconsume_times": 2}, True), (16, {"max_reconsume_times": 17}, False)],
)
async def test_message_goes_to_the_dlq_after_the_maximum_of_retries(path, reconsume_times, fields, is_dead):
    path.send(reconsume_times=reconsume_times)
    give_back(path, path.stored()[0], **fields)
    assert len(path.stored(DLQ)) == is_dead
    if is_dead:
        assert decode_properties(path.stored(DLQ)[0].properties)["DELAY"] == "0"
        assert path.services.topics.get(DLQ).perm == 6


async def test_reconsume_times_stop_at_the_maximum_of_the_field(path):
    path.send(reconsume_times=2**31 - 1)
    assert give_back(path, path.stored()[0]).code == 0
    assert [record.reconsume_times for record in path.stored(DLQ)] == [2**31 - 1]


async def test_negative_level_sends_to_the_dlq(path):
    path.send()
    give_back(path, path.stored()[0], delay_level=-1)
    assert len(path.stored(DLQ)) == 1


async def test_invalid_send_backs_are_refused(path):
    path.send()
    (record,) = path.stored()
    record.physical_offset += 1
    answer = give_back(path, record)
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark.startswith("look message by offset failed, ")
    path.services.topics.get(RETRY).perm = 4
    assert give_back(path, path.stored()[0]).code == ResponseCode.NO_PERMISSION
    path.services.config.broker_permission = 4
    assert give_back(path, path.stored()[0]).code == ResponseCode.NO_PERMISSION
    path.services.config.auto_create_subscription_group = False
    assert give_back(path, path.stored()[0], group="nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_message_is_dropped_for_a_group_without_retry_queues(path):
    path.services.groups.find("cg").retry_queue_nums = 0
    path.send()
    assert give_back(path, path.stored()[0]).code == 0
    assert path.services.topics.get(RETRY) is None


async def test_send_back_fails_when_the_store_refuses(path):
    path.send()
    path.store.commit_log.refuse("test", "disk full")
    assert give_back(path, path.stored()[0]).code == ResponseCode.SYSTEM_ERROR
