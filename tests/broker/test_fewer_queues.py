"""Messages that waited for a queue which their topic no longer has are stored in one that consumers read."""

import asyncio

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from pocketmq.store.format.properties import decode_properties
from tests.broker.data_path import DataPath
from tests.broker.transacting import HALF, Transacting

TOPIC, RETRY = "T", "%RETRY%cg"


def resize(path: DataPath, topic: str, queue_nums: int) -> None:
    header = CreateTopicRequestHeader(topic, "TBW102", queue_nums, queue_nums, 6, "SINGLE_TAG")
    assert path.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0


def stored_in(path: DataPath, topic: str, queue_nums: int) -> list[int]:
    """Return the queue ids of the topic's messages in its first queues."""
    return [queue_id for queue_id in range(queue_nums) for _ in path.stored(topic, queue_id)]


async def due(path: DataPath, time_ms: int) -> None:
    path.clock.advance(time_ms)
    await asyncio.sleep(0)
    path.turn()


@pytest.mark.parametrize("delay", ["DELAY\x011\x02", "TIMER_DELAY_MS\x011000\x02"])
async def test_a_delayed_message_is_delivered_to_a_queue_that_is_read(delay: str) -> None:
    path = DataPath()
    resize(path, TOPIC, 8)
    for queue_id in (1, 6):
        path.send(delay, queue_id=queue_id)
    resize(path, TOPIC, 4)
    await due(path, 3000)
    assert stored_in(path, TOPIC, 8) == [1, 2]


async def test_a_committed_message_is_delivered_to_a_queue_that_is_read() -> None:
    path = Transacting()
    resize(path, TOPIC, 8)
    path.send("TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02", b"x", queue_id=7, sys_flag=0x4)
    resize(path, TOPIC, 2)
    (half,) = path.stored(HALF)
    assert path.end(half).code == 0
    assert stored_in(path, TOPIC, 8) == [1]


async def test_a_retry_goes_to_a_queue_that_the_retry_topic_has() -> None:
    path = DataPath()
    path.services.groups.find("cg").retry_queue_nums = 16
    resize(path, RETRY, 2)
    path.send()
    (first,) = path.stored()
    for _ in range(20):
        header = ConsumerSendMsgBackRequestHeader(first.physical_offset, "cg", 1)
        assert path.call(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0
    waiting = path.stored("SCHEDULE_TOPIC_XXXX", 0)
    assert {decode_properties(one.properties)["REAL_QID"] for one in waiting} == {"0", "1"}
    await due(path, 1000)
    assert len(stored_in(path, RETRY, 16)) == 20 and set(stored_in(path, RETRY, 16)) == {0, 1}
