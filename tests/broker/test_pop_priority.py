"""Messages with a priority: their queues, the order of pops, and the retry queues."""

import json

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.consumer import GroupRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, Popper, popping, records
from tests.broker.running import ask

QUEUES = 8


async def create(path: Popper, attributes: str | None = "+message.type=PRIORITY") -> None:
    header = CreateTopicRequestHeader(TOPIC, "TBW102", QUEUES, QUEUES, 6, "SINGLE_TAG", attributes=attributes)
    answer = await ask(path.client, path.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == 0, answer.remark


async def send(path: Popper, body: str, *properties: str):
    header = SendMessageRequestHeader("p", TOPIC, "TBW102", 8, 3, 0, 1_700_000_000_000, 0, "\x02".join(properties), 0)
    return await ask(path.client, path.broker, RequestCode.SEND_MESSAGE, header, body.encode())


async def send_all(path: Popper, *priorities: int) -> None:
    for priority in priorities:
        answer = await send(path, f"p{priority}", f"_SYS_MSG_PRIORITY_\x01{priority}")
        assert answer.code == 0, answer.remark


async def set_group(path: Popper, **attributes: str):
    row = {"groupName": GROUP, "attributes": {name.replace("_", "."): value for name, value in attributes.items()}}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return await ask(path.client, path.broker, code, NoHeader(), json.dumps(row).encode())


@pytest.mark.parametrize(
    ("properties", "queue_id"),
    [
        (["_SYS_MSG_PRIORITY_\x010"], 0),
        (["_SYS_MSG_PRIORITY_\x015"], 5),
        (["_SYS_MSG_PRIORITY_\x01500"], QUEUES - 1),
        (["_SYS_MSG_PRIORITY_\x01-1"], 3),
        (["_SYS_MSG_PRIORITY_\x01high"], 3),
        (["_SYS_MSG_PRIORITY_\x015", "__SHARDINGKEY\x01k"], 3),
    ],
)
async def test_priority_is_the_queue_of_a_message(properties: list[str], queue_id: int) -> None:
    async with popping() as path:
        await create(path)
        answer = await send(path, "m", *properties)
        assert (answer.code, answer.ext["queueId"]) == (0, str(queue_id))
        assert await path.bodies() == ["m"]


async def test_lite_topic_is_refused() -> None:
    async with popping() as path:
        answer = await send(path, "m", "__LITE_TOPIC\x01room")
        assert (answer.code, "__LITE_TOPIC=room" in answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)


@pytest.mark.parametrize(("ascending", "first"), [(True, "p7"), (False, "p0")])
async def test_highest_priority_is_popped_first(ascending: bool, first: str) -> None:
    async with popping(priority_order_asc=ascending) as path:
        await create(path)
        for _ in range(3):
            await send_all(path, 4, 0, 7)
        wanted = sorted(["p0", "p4", "p7"] * 3, reverse=ascending)
        assert wanted[0] == first
        assert [(await path.bodies(1))[0] for _ in range(4)] + await path.bodies() == wanted


async def test_topic_of_another_type_is_popped_by_turns() -> None:
    async with popping() as path:
        await create(path, None)
        await send_all(path, *range(QUEUES))
        found = [(await path.bodies(1))[0] for _ in range(QUEUES)]
        assert found != sorted(found, reverse=True) and len(set(found)) == QUEUES


@pytest.mark.parametrize(("factor", "share"), [("0", 0.3), ("50", 0.7), ("100", 1.0)])
async def test_priority_factor_is_the_share_of_pops_by_priority(factor: str, share: float) -> None:
    async with popping() as path:
        await create(path)
        assert (await set_group(path, **{"+priority_factor": factor})).code == 0
        pops = 40
        await send_all(path, *(priority for priority in range(QUEUES) for _ in range(pops)))
        highest = [await path.bodies(1) for _ in range(pops)].count([f"p{QUEUES - 1}"])
        assert abs(highest / pops - share) <= 0.2


@pytest.mark.parametrize(("probability", "first"), [(0, "new"), (100, "p7")])
async def test_retries_come_last_unless_asked_for_first(probability: int, first: str) -> None:
    async with popping(pop_from_retry_probability_for_priority=probability) as path:
        await create(path)
        await send_all(path, 7)
        await path.bodies()
        await path.advance(INVISIBLE_MS)
        await send(path, "new", "_SYS_MSG_PRIORITY_\x010")
        assert (await path.bodies(1)) == [first]


@pytest.mark.parametrize("with_v2", [False, True])
async def test_separate_retry_queues_keep_the_priority(with_v2: bool) -> None:
    async with popping(use_separate_retry_queue=True, enable_retry_topic_v2=with_v2) as path:
        await create(path)
        await send_all(path, 0, 3, 7, 5)
        for _ in range(3):
            assert await path.bodies() == ["p7", "p5", "p3", "p0"]
            await path.advance(INVISIBLE_MS)
        (popped,) = records((await path.pop(1)).body)
        assert popped.body == b"p7"


async def test_unknown_and_invalid_group_attributes_are_refused_and_others_kept() -> None:
    async with popping() as path:
        for attributes, words in (
            ({"+lite_bind_topic": "T"}, "'lite.bind.topic': expected one of priority.factor"),
            ({"+priority_factor": "101"}, "priority.factor=101: expected a number, 0 to 100"),
            ({"-priority_factor": ""}, "priority.factor is not set"),
        ):
            answer = await set_group(path, **attributes)
            assert answer.code == ResponseCode.SYSTEM_ERROR and words in answer.remark
        for attributes, kept in (({"+priority_factor": "7"}, {"priority.factor": "7"}), ({}, {"priority.factor": "7"})):
            assert (await set_group(path, **attributes)).code == 0
            header = GroupRequestHeader(GROUP)
            answer = await ask(path.client, path.broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
            assert json.loads(answer.body)["attributes"] == kept


async def test_attributes_of_a_table_of_another_broker_are_kept() -> None:
    async with popping() as path:
        groups = path.broker.services.groups
        row = {"groupName": "theirs", "attributes": {"lite.bind.topic": "Rooms", "priority.factor": "30"}}
        groups.decode({"subscriptionGroupTable": {"theirs": row}})
        answer = await ask(path.client, path.broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NoHeader())
        assert json.loads(answer.body)["subscriptionGroupTable"]["theirs"]["attributes"] == row["attributes"]
