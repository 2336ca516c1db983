"""Server-side reset of a group's consumer offsets; consumers learn of it by their next pull."""

import json
from typing import Any

import pytest

from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.consumer import ConsumeStatsRequestHeader, DeleteSubscriptionGroupRequestHeader
from pocketmq.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.pop import PopMessageRequestHeader
from tests.broker.data_path import TOPIC, DataPath, StubChannel, pull_header

GROUP = "cg"
SUSPEND, COMMIT = 2 | 4, 1 | 4
MESSAGES = 5


@pytest.fixture
async def path() -> DataPath:
    path = DataPath()
    for _ in range(MESSAGES):
        path.send()
    path.pull(MESSAGES)  # creates the group
    commit(path, 4)
    return path


def commit(path: DataPath, consumer_offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, queue_id, consumer_offset)
    assert path.call(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0


def committed(path: DataPath, queue_id: int = 0) -> str:
    return path.call(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(GROUP, TOPIC, queue_id)).ext[
        "offset"
    ]


def reset(path: DataPath, timestamp_ms: int = 0, topic: str = TOPIC, group: str = GROUP, **fields: Any) -> RemotingCommand:
    header = ResetOffsetRequestHeader(topic, group, timestamp_ms, **fields)
    return path.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def offsets(answer: RemotingCommand) -> dict[int, int]:
    """Return queue id -> offset from the answer to the tool."""
    assert answer.code == 0, answer.remark
    return {json.loads(key)["queueId"]: at for key, at in fastjson.loads(answer.body)["offsetTable"].items()}


async def test_offline_group_starts_at_the_reset_offset(path: DataPath) -> None:
    assert offsets(reset(path)) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert committed(path) == "0"
    answer = path.pull(0)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "5"), "it already pulls from the reset offset"


async def test_reset_is_answered_to_the_next_pull_only(path: DataPath) -> None:
    offsets(reset(path))
    commit(path, 5)
    assert committed(path) == "0", "the commit is ignored until the consumer pulls"
    answer = path.pull(MESSAGES, sys_flag=COMMIT, commit_offset=5)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert {name: answer.ext[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")} == {
        "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "5",
    }  # fmt: skip
    assert path.pull(0).code == 0
    commit(path, 3)
    assert committed(path) == "3"


async def test_reset_is_answered_to_a_held_pull_at_once(path: DataPath) -> None:
    consumer = StubChannel(5)
    path.ask(RequestCode.PULL_MESSAGE, pull_header(MESSAGES, sys_flag=SUSPEND), b"", consumer)
    assert path.services.holds.count == 1
    offsets(reset(path))
    (answer,) = consumer.take()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


async def test_reset_does_not_affect_other_groups(path: DataPath) -> None:
    offsets(reset(path))
    assert path.pull(3, consumer_group="other").code == 0


async def test_reset_to_a_time_begins_with_the_first_message_that_is_not_older(path: DataPath) -> None:
    began_ms = path.clock.message_time_ms()
    path.clock.advance(1000)
    for _ in range(3):
        path.send(queue_id=0)
    path.turn()
    assert offsets(reset(path, began_ms + 1000))[0] == MESSAGES
    assert offsets(reset(path, began_ms + 1))[0] == MESSAGES
    assert offsets(reset(path, began_ms + 1001))[0] == MESSAGES + 3, "the last message would come again"
    assert offsets(reset(path, began_ms))[0] == 0


async def test_one_queue_is_reset_to_an_offset(path: DataPath) -> None:
    commit(path, 0, queue_id=1)
    assert offsets(reset(path, queue_id=0, offset=2)) == {0: 2}
    assert (committed(path), committed(path, 1)) == ("2", "0")
    assert path.services.offsets.resets == {(GROUP, TOPIC, 0): 2}
    assert offsets(reset(path, queue_id=0, offset=-1)) == {0: 0}, "offset -1: reset by timestamp"
    assert offsets(reset(path, -1, queue_id=0)) == {0: 5}, "timestamp -1: the end of the queue"


async def test_reset_without_force_moves_no_offset_forward(path: DataPath) -> None:
    assert offsets(reset(path, -1, is_force=False)) == {0: 4, 1: 0, 2: 0, 3: 0}
    assert offsets(reset(path, -1, is_force=True)) == {0: 5, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "nobody"),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR, "readQueueNums=4"),
        ({"queue_id": 0, "offset": 6}, ResponseCode.SYSTEM_ERROR, "offset=6"),
    ],
)
async def test_invalid_resets_are_refused(path: DataPath, fields: dict[str, Any], code: int, word: str) -> None:
    answer = reset(path, **fields)
    assert answer.code == code and word in answer.remark
    assert (committed(path), path.services.offsets.resets) == ("4", {})


async def test_reset_of_one_queue_needs_server_side_reset(path: DataPath) -> None:
    path.services.config.use_server_side_reset_offset = False
    answer = reset(path, queue_id=0, offset=2)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "only if useServerSideResetOffset=true" in answer.remark


async def test_reset_redelivers_messages_popped_in_order(path: DataPath) -> None:
    def pop() -> RemotingCommand:
        return path.call(RequestCode.POP_MESSAGE, PopMessageRequestHeader(GROUP, TOPIC, 0, 32, 60_000, 0, order=True))

    assert (pop().code, pop().code) == (0, ResponseCode.POLLING_TIMEOUT)
    offsets(reset(path, queue_id=0, offset=2))
    answer = pop()
    assert (answer.code, answer.ext["msgOffsetInfo"]) == (0, "0 0 2,3,4")
    assert pop().code == ResponseCode.POLLING_TIMEOUT, "once"


async def test_deleted_group_leaves_no_pending_reset(path: DataPath) -> None:
    offsets(reset(path))
    header = DeleteSubscriptionGroupRequestHeader(GROUP, remove_offset=True)
    assert path.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header).code == 0
    assert (path.services.offsets.resets, path.services.offsets.pull_offsets) == ({}, {})


async def test_consume_stats_count_messages_in_flight(path: DataPath) -> None:
    def row() -> dict[str, int]:
        table = fastjson.loads(path.call(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(GROUP, TOPIC)).body)
        return {name: at for name, at in next(iter(table["offsetTable"].values())).items() if name.endswith("Offset")}

    path.pull(1)
    assert row() == {"brokerOffset": 5, "consumerOffset": 4, "pullOffset": 5}
    commit(path, 5)
    path.send()
    assert row() == {"brokerOffset": 6, "consumerOffset": 5, "pullOffset": 5}
    offsets(reset(path))
    assert row() == {"brokerOffset": 6, "consumerOffset": 0, "pullOffset": 0}
