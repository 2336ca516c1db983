import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.data_path import TOPIC, DataPath


@pytest.fixture
async def path():
    path = DataPath()
    for _ in range(3):
        path.send()
        path.clock.advance(100)
    return path


def query(path, group="cg", topic=TOPIC, queue_id=0):
    return path.call(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, topic, queue_id))


async def test_committed_offset_is_returned_and_may_decrease(path):
    for consumer_offset in (3, 1):
        header = UpdateConsumerOffsetRequestHeader("cg", TOPIC, 0, consumer_offset)
        assert path.call(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0
        assert query(path).ext == {"offset": str(consumer_offset)}


@pytest.mark.parametrize("queue_id", [0, 1])
async def test_new_group_starts_at_0_while_message_0_is_in_memory(path, queue_id):
    assert query(path, "new", queue_id=queue_id).ext == {"offset": "0"}


@pytest.mark.parametrize(("set_zero", "code"), [(None, 0), (True, 0), (False, ResponseCode.QUERY_NOT_FOUND)])
async def test_new_group_with_set_zero_if_not_found_false_gets_not_found(path, set_zero, code):
    header = QueryConsumerOffsetRequestHeader("new", TOPIC, 0, set_zero)
    assert path.call(RequestCode.QUERY_CONSUMER_OFFSET, header).code == code


async def test_new_group_on_an_old_queue_gets_not_found(path, monkeypatch):
    monkeypatch.setattr(path.services.store.reader, "in_memory_bytes", 0)
    answer = query(path, "new")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "V3_0_6_SNAPSHOT" in answer.remark
    assert query(path, "new", queue_id=1).ext == {"offset": "0"}


@pytest.mark.parametrize(
    ("code", "queue_id", "name", "value"),
    [
        (RequestCode.GET_MAX_OFFSET, 0, "offset", 3),
        (RequestCode.GET_MAX_OFFSET, 1, "offset", 0),
        (RequestCode.GET_MIN_OFFSET, 0, "offset", 0),
        (RequestCode.GET_MIN_OFFSET, 1, "offset", 0),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, 0, "timestamp", 1_700_000_000_000),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, 1, "timestamp", -1),
    ],
)
async def test_min_and_max_offset_of_a_queue(path, code, queue_id, name, value):
    assert path.call(code, QueueRequestHeader(TOPIC, queue_id)).ext == {name: str(value)}


@pytest.mark.parametrize("boundary", [None, "LOWER", "lower", "", "whatever"])
@pytest.mark.parametrize(("after_ms", "queue_offset"), [(-1000, 0), (0, 0), (1, 1), (100, 1), (101, 2), (9999, 3)])
async def test_offset_by_time_with_lower_boundary(path, boundary, after_ms, queue_offset):
    header = SearchOffsetRequestHeader(TOPIC, 0, 1_700_000_000_000 + after_ms, boundary)
    assert path.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header).ext == {"offset": str(queue_offset)}


@pytest.mark.parametrize("boundary", ["UPPER", "Upper"])
@pytest.mark.parametrize(("after_ms", "queue_offset"), [(-1000, 0), (0, 0), (99, 0), (100, 1), (9999, 2)])
async def test_offset_by_time_with_upper_boundary(path, boundary, after_ms, queue_offset):
    header = SearchOffsetRequestHeader(TOPIC, 0, 1_700_000_000_000 + after_ms, boundary)
    assert path.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header).ext == {"offset": str(queue_offset)}
