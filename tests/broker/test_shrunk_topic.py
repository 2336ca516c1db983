"""Messages that are stored after their topic lost queues go to a queue that consumers read."""

import pytest

from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.delay import DelayedMessageRequestHeader
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pocketmq.store.format.message import TRANSACTION_PREPARED_TYPE
from tests.broker.data_path import TOPIC, DataPath, until
from tests.broker.transacting import Transacting

RETRY = "%RETRY%cg"


def shrink(path: DataPath, topic: str = TOPIC, queue_nums: int = 2) -> None:
    path.services.topics.update(TopicConfig(topic, queue_nums, queue_nums))


def by_queue(path: DataPath, topic: str = TOPIC) -> dict[int, list[bytes]]:
    found = {queue_id: [record.body for record in path.stored(topic, queue_id)] for queue_id in range(4)}
    return {queue_id: bodies for queue_id, bodies in found.items() if bodies}


async def deliver(path: DataPath) -> None:
    path.clock.advance(60_000)
    await until(lambda: path.services.delays.is_idle)
    path.turn()


@pytest.mark.parametrize("delay", ["DELAY\x012", "TIMER_DELAY_SEC\x015"])
async def test_delayed_messages_of_a_lost_queue_are_delivered_to_another(delay: str) -> None:
    path = DataPath()
    for queue_id in (3, 1, 3):
        path.send(delay, b"q%d" % queue_id, queue_id=queue_id)
    shrink(path)
    await deliver(path)
    assert by_queue(path) == {1: [b"q3", b"q1", b"q3"]}


async def test_queue_that_is_still_read_keeps_its_messages() -> None:
    path = DataPath()
    path.send("DELAY\x012", b"m", queue_id=3)
    path.services.topics.update(TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=1))
    await deliver(path)
    assert by_queue(path) == {3: [b"m"]}


async def test_message_delivered_early_goes_to_a_queue_that_is_read() -> None:
    path = DataPath()
    path.send("DELAY\x012", b"m", queue_id=3)
    path.turn()
    (waiting,) = path.stored("SCHEDULE_TOPIC_XXXX", 1)
    shrink(path)
    assert path.call(RequestCode.DELIVER_DELAYED_NOW, DelayedMessageRequestHeader(waiting.physical_offset)).code == 0
    assert by_queue(path) == {1: [b"m"]}


async def test_retries_of_a_group_go_to_the_queues_that_its_retry_topic_has() -> None:
    """A group was given more retry queues after its retry topic was created."""
    path = DataPath()
    path.services.topics.create_on_send_back(RETRY, 1)
    path.services.groups.update(SubscriptionGroupConfig("cg", retry_queue_nums=4))
    path.send()
    (record,) = path.stored()
    for _ in range(20):
        header = ConsumerSendMsgBackRequestHeader(record.physical_offset, "cg", 1)
        assert path.call(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0
    await deliver(path)
    assert {queue_id: len(bodies) for queue_id, bodies in by_queue(path, RETRY).items()} == {0: 20}


async def test_committed_message_of_a_lost_queue_is_delivered_to_another() -> None:
    path = Transacting()
    text = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U"
    assert path.send(text, b"m", queue_id=3, sys_flag=TRANSACTION_PREPARED_TYPE).code == 0
    (half,) = path.halves()
    shrink(path)
    assert path.end(half).code == 0
    assert by_queue(path) == {1: [b"m"]}
