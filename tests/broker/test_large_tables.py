"""Requests over thousands of queues and topics: the event loop serves other requests in between."""

import json
from typing import Any

import pytest

from pocketmq.broker.handlers import group as group_handlers
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.frame import FrameBuffer, frame_head
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from pocketmq.runtime import work_slices
from tests.broker.data_path import DataPath, StubChannel, send_header, until
from tests.golden.linear import cpu_s

LIMIT_S = 0.05
QUEUES = 4_000
TOPICS = 1_000
LARGE = "Large"


@pytest.fixture
async def path() -> DataPath:
    """A topic with thousands of queues, of which some have messages, and a group with offsets in many topics."""
    path = DataPath()
    services = path.services
    services.topics.table[LARGE] = TopicConfig(LARGE, QUEUES, QUEUES)
    services.groups.table["g"] = SubscriptionGroupConfig("g")
    for queue_id in range(0, QUEUES, 40):
        path.send(topic=LARGE, queue_id=queue_id)
    for queue_id in range(QUEUES):
        services.offsets.commit("g", LARGE, queue_id, queue_id % 40 == 0)
    for number in range(TOPICS):
        services.topics.table[f"T{number}"] = TopicConfig(f"T{number}", 4, 4)
        services.offsets.commit("g", f"T{number}", 0, 0)
    return path


def ask(path: DataPath, code: int, ext: dict[str, Any], channel: StubChannel | None = None) -> None:
    """Send a request with the fields `ext`."""
    fields = {"code": code, "extFields": {name: str(value) for name, value in ext.items()}, "flag": 0, "language": "JAVA"}
    text = json.dumps(fields | {"opaque": 1, "version": 401}).encode()
    for frame in FrameBuffer().feed(frame_head(0, len(text), 0) + text):
        path.serve(frame, channel or path.channel)


async def answer(path: DataPath, code: int, ext: dict[str, Any]) -> RemotingCommand:
    """Return the answer to a request that is served in several slices."""
    path.channel.take()
    assert cpu_s(lambda: ask(path, code, ext), 1) < LIMIT_S
    assert path.channel.is_suspended, "it is served in slices"
    assert not path.channel.out
    await until(lambda: path.channel.out)
    (found,) = path.channel.take()
    return found


GROUP_AND_TOPIC = {"group": "g", "topic": LARGE}


@pytest.mark.parametrize(
    ("code", "ext", "rows", "count"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": LARGE}, "offsetTable", QUEUES),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}, "offsetTable", QUEUES + 4 * TOPICS),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": LARGE}, "offsetTable", QUEUES),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, GROUP_AND_TOPIC, "consumeTimeSpanSet", QUEUES),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            GROUP_AND_TOPIC | {"timestamp": 0, "isForce": "true"},
            "offsetTable",
            QUEUES,
        ),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, "offsetTable", TOPICS + 1),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}, "consumeStatsList", None),
    ],
)
async def test_large_answers_are_made_in_slices(
    path: DataPath, monkeypatch: Any, code: int, ext: dict[str, Any], rows: str, count: int | None
) -> None:
    monkeypatch.setattr(work_slices, "SLICE_S", 0.001)
    monkeypatch.setattr(path.services.config, "use_server_side_reset_offset", True)
    found = await answer(path, code, ext)
    assert found.code == ResponseCode.SUCCESS, found.remark
    assert len(fastjson.loads(found.body, 1 << 30)[rows]) == (count or len(path.services.groups.table))


async def test_a_closed_connection_ends_the_work_for_it(path: DataPath) -> None:
    channel = StubChannel(9)
    ask(path, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}, channel)
    channel.close()
    await until(lambda: path.services.slices.is_idle)
    assert not channel.out


async def test_progress_of_all_groups_is_refused_if_it_exceeds_a_frame(path: DataPath, monkeypatch: Any) -> None:
    monkeypatch.setattr(group_handlers, "FRAME_SIZE_MAX", 100_000)
    found = await answer(path, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    assert found.code == ResponseCode.SYSTEM_ERROR
    assert "more than 100000 bytes" in found.remark


async def test_queues_of_a_deleted_topic_are_deleted_in_slices(path: DataPath, monkeypatch: Any) -> None:
    monkeypatch.setattr(work_slices, "SLICE_S", 0.0005)
    monkeypatch.setattr(work_slices, "PIECES_MIN", 1)
    queues = path.services.store.queues.queues

    def count() -> int:
        return sum(topic == LARGE for topic, _ in queues)

    whole, seen = count(), set()
    path.channel.take()
    ask(path, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": LARGE})

    def is_answered() -> bool:
        seen.add(count())
        return bool(path.channel.out)

    await until(is_answered)
    assert count() == 0
    assert seen - {0, whole}, "others are served between the queues"
    header = CreateTopicRequestHeader(LARGE, "TBW102", 4, 4, 6, "SINGLE_TAG", 0, False)
    path.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    await until(lambda: LARGE in path.services.topics.table)
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic=LARGE))
    path.turn()
    assert path.store.max_offset(LARGE, 0) == 1, "a new topic of that name begins at 0"
