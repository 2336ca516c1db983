"""The compiled lane gives the same log, queues, index and answers as the Python path, byte for byte."""

import asyncio
import itertools
import os
import random

import pytest

from pocketmq.broker.tables.subscription_group import SubscriptionGroupConfig
from pocketmq.broker.tables.topic_config import PERM_WRITE, TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import encode_request
from pocketmq.remoting.headers.pop import PopMessageRequestHeader
from tests.broker.data_path import pull_header, send_header
from tests.lane.mixes import SQL, requests, timers
from tests.lane.twins import Twins, needs_lane
from tests.support.amount import cases

pytestmark = needs_lane
COUNT = int(os.environ.get("LANE_REQUESTS", cases("9000", "15000")))
"""Number of random requests; each kind occurs many times in the default."""
READ_SIZES = (1, 7, 64, 700, 4096, 65536)


async def run(seed: int, count: int, *, with_sockets: bool = False) -> Twins:
    """Send `count` random requests of a seed in reads of random sizes, some turns with several reads. With odd seeds fewer
    files are mapped than are in use."""
    rng = random.Random(seed)
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20 * 300}
    twins = Twins(with_sockets=with_sockets, expressions=SQL, **sizes, mapped_file_open_max=6 if seed % 2 else 0)
    frames = requests(seed)
    while count > 0:
        for connection in rng.sample(range(4), rng.randrange(1, 4)):
            burst = list(itertools.islice(frames, rng.choice((1, 1, 2, 5, 12, 40))))
            count -= len(burst)
            data = b"".join(burst)
            size = rng.choice(READ_SIZES) if len(data) < 4000 else 65536
            for at in range(0, len(data), size):
                await twins.receive(connection, data[at : at + size])
        twins.end_turn()
        await asyncio.sleep(0)  # connections that were closed end
        twins.advance(rng.choice((0, 1, 1000)))
    return twins


@pytest.mark.parametrize("seed", range(cases(2, 4)))
async def test_random_requests_give_the_same_bytes(seed):
    twins = await run(seed, COUNT // 4)
    twins.compare_files()
    assert twins.laned.in_lane > 0
    twins.close()


@pytest.mark.parametrize("seed", range(4, 6))
async def test_random_requests_through_sockets_of_the_lane_give_the_same_bytes(seed):
    twins = await run(seed, COUNT // 8, with_sockets=True)
    twins.compare_files()
    assert twins.laned.in_sockets > 0
    twins.close()


async def test_request_that_arrives_in_two_parts_is_served_once_wherever_it_is_split():
    twins = Twins(with_sockets=True)
    rng = random.Random(3)
    frames = [frame for frame in itertools.islice(requests(3), 40) if len(frame) < 700][:6]
    for frame in frames:
        for at in range(1, len(frame)):
            await twins.receive(0, frame[:at])
            await twins.receive(0, frame[at:] + rng.choice((b"", frame)))
            if rng.random() < 0.3:
                twins.end_turn()
                await asyncio.sleep(0)
    twins.end_turn()
    twins.close()


async def test_settings_that_change_at_runtime_reach_the_lane():
    """The answer's TRACE_ON, the store host in message ids, and how much a pull returns."""
    twins = Twins()
    frames = requests(5)
    for change in ({}, {"traceOn": "false"}, {"brokerIP1": "127.0.0.9"}, {"maxTransferCountOnMessageInMemory": "2"}):
        for side in (twins.twin, twins.laned):
            if change:
                done: list[object] = []
                side.services.config_updates.submit(change, done.append)
                while not done:
                    await asyncio.sleep(0)
                assert done == [None]
        before = twins.laned.in_lane
        for _ in range(60):
            await twins.receive(0, next(frames))
        twins.end_turn()
        assert twins.laned.in_lane > before
    twins.compare_files()
    twins.close()


async def test_pulls_are_refused_by_permissions_that_change_at_runtime():
    """Forty pulls of all kinds in a read, so that most of them wait; topic, group or broker forbid them at times."""
    twins = Twins()
    for opaque in range(60):
        header = send_header("UNIQ_KEY\x01u\x02TAGS\x01a", queue_id=opaque % 2)
        await twins.receive(0, b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, b"hello", opaque)))
        twins.end_turn()
    kinds = itertools.product(
        (0, 4, 5), ("*", "", "a", "b||c"), ("TAG", "", "SQL92"), ("cg", "other"), ("T", "Narrow", "Gone")
    )
    pulls = [
        pull_header(offset % 31, sys_flag=flag, subscription=text, expression_type=kind, consumer_group=group, topic=topic)
        for offset, (flag, text, kind, group, topic) in enumerate(kinds)
    ] + [pull_header(queue_id=queue_id) for queue_id in (-1, 1, 4, 9)]
    frames = [b"".join(encode_request(RequestCode.PULL_MESSAGE, pull, b"", opaque)) for opaque, pull in enumerate(pulls)]
    ordinary = b"".join(encode_request(RequestCode.PULL_MESSAGE, pull_header(1), b"", 999))
    for forbidding in ("", "the topic", "", "the group", "", "the broker", ""):
        for side in (twins.twin, twins.laned):
            services = side.services
            services.topics.update(TopicConfig("T", 4, 4, perm=PERM_WRITE if forbidding == "the topic" else 6))
            services.groups.update(SubscriptionGroupConfig("cg", consume_enable=forbidding != "the group"))
            services.config.broker_permission = PERM_WRITE if forbidding == "the broker" else 6
        for at in range(0, len(frames), 40):
            await twins.receive(1, b"".join(frames[at : at + 40]))
            twins.end_turn()
        before = twins.laned.in_lane
        await twins.receive(1, ordinary)
        twins.end_turn()
        assert (twins.laned.in_lane > before) == (not forbidding)
    twins.close()


@pytest.mark.parametrize("file_units", [100, 10_000])
async def test_pulls_with_filters_get_the_same_messages(file_units):
    """Filters by tag and by expression, which accept all messages, few, or none; in queues of several files and of one."""
    tags = ("a", "a||b", "a || b||c", "x", "c||x")
    expressions = ("color = 'red'", "n >= 0", "n BETWEEN 500 AND 510", "n < 0", "TAGS = 'a' OR n > 900")
    rng, twins = random.Random(5), Twins(expressions=expressions, mapped_file_size_consume_queue=20 * file_units)
    for opaque in range(1200):
        color = rng.choice(["red", "blue"])
        header = send_header(f"TAGS\x01{rng.choice('abc')}\x02color\x01{color}\x02n\x01{opaque}", queue_id=opaque % 2)
        await twins.receive(0, b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, rng.randbytes(300), opaque)))
        if opaque % 50 == 0:
            twins.end_turn()
    twins.end_turn()
    filters = [("TAG", text) for text in tags] + [("SQL92", text) for text in expressions]
    frames = []
    for opaque in range(600):
        kind, text = rng.choice(filters)
        pull = pull_header(
            rng.randrange(620), queue_id=opaque % 2, max_msg_nums=rng.choice([1, 7, 32, 100]), sys_flag=rng.choice([4, 5]),
            commit_offset=opaque, expression_type=kind, subscription=text,
        )  # fmt: skip
        frames.append(b"".join(encode_request(RequestCode.PULL_MESSAGE, pull, b"", opaque)))
    before = twins.laned.in_lane
    while frames:
        count = rng.choice((1, 3, 8, 20))
        await twins.receive(rng.randrange(3), b"".join(frames[:count]))
        del frames[:count]
        twins.end_turn()
    twins.compare_files()
    assert twins.laned.in_lane - before > 30_000, "few pulls were served by the lane"
    twins.close()


async def test_held_requests_are_answered_when_the_lane_stores_a_message_for_them():
    """A pull that is held at a queue, a pop that waits at a topic, and a message of a queue at which nothing waits."""
    twins = Twins()

    async def send(queue_id: int, opaque: int) -> dict[int, bytes]:
        header = send_header("UNIQ_KEY\x01u", queue_id=queue_id)
        await twins.receive(0, b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, b"hello", opaque)))
        return twins.end_turn()

    for queue_id in range(3):
        await send(queue_id, queue_id)  # the first message of a queue is not the lane's
    held = pull_header(1, sys_flag=6)
    await twins.receive(1, b"".join(encode_request(RequestCode.PULL_MESSAGE, held, b"", 7)))
    twins.end_turn()
    before = twins.laned.in_lane
    assert set(await send(1, 8)) == {0}
    assert set(await send(0, 9)) == {0, 1}, "the pull is answered"
    pop = PopMessageRequestHeader("pops", "T", 2, 32, invisible_time=60_000, poll_time=15_000, init_mode=0)
    for opaque in (10, 11):  # the first takes what is there
        await twins.receive(2, b"".join(encode_request(RequestCode.POP_MESSAGE, pop, b"", opaque)))
        twins.end_turn()
    assert set(await send(2, 12)) == {0, 2}, "the pop is answered"
    assert twins.laned.in_lane > before
    twins.compare_files()
    twins.close()


async def test_the_lane_dispatches_messages_without_keys_before_the_index_has_a_file(monkeypatch):
    twins = Twins()

    async def send(properties: str, opaque: int) -> None:
        header = send_header(properties, queue_id=opaque % 4)
        await twins.receive(0, b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, b"hello", opaque)))
        twins.end_turn()

    for opaque in range(4):
        await send("TAGS\x01a", opaque)  # the first message of a queue is not the lane's
    tail, read = twins.laned.services.store.commit_log.tail, []
    monkeypatch.setattr(tail, "_request_at", read.append)
    before = twins.laned.in_lane
    for opaque in range(4, 20):
        await send("TAGS\x01a", opaque)
    assert twins.laned.in_lane > before and not read, "no record is read again"
    monkeypatch.undo()
    for opaque in range(20, 24):
        await send("KEYS\x01k", opaque)
    twins.compare_files()
    assert any(path.startswith("/store/index/") for path in twins.laned.files())
    twins.close()


async def test_the_lane_dispatches_messages_before_and_behind_the_first_one_of_a_queue(monkeypatch):
    twins = Twins()

    async def send(*queue_ids: int) -> None:
        headers = [send_header("UNIQ_KEY\x01u", queue_id=queue_id) for queue_id in queue_ids]
        frames = [b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, b"hello", 1)) for header in headers]
        await twins.receive(0, b"".join(frames))
        twins.end_turn()

    await send(0)
    read: list[int] = []
    monkeypatch.setattr(twins.laned.services.store.commit_log.tail, "_request_at", read.append)
    before = twins.laned.in_lane
    await send(1, 0, 0, 1)  # the first message of a queue is not the lane's
    await send(0, 1, 2, 0, 2, 3, 1)
    assert twins.laned.in_lane > before and not read, "no record is read again"
    twins.compare_files()
    twins.close()


async def test_copies_of_many_timers_that_are_due_at_once_have_the_same_bytes():
    """The second ones are due when a topic has fewer queues that are read, and another topic is gone."""
    twins = Twins(mapped_file_size_commit_log=1 << 19)
    sides = (twins.twin, twins.laned)
    now_ms = twins.twin.path.clock.message_time_ms()
    frames = timers(11, (now_ms + 5_000, now_ms + 9_000, now_ms + 13_000))
    for _ in range(80):
        await twins.receive(0, b"".join(itertools.islice(frames, 50)))
        twins.end_turn()

    async def deliver(ms: int) -> int:
        before = twins.laned.copied
        twins.advance(ms)
        while not all(side.services.delays.is_idle for side in sides):
            await asyncio.sleep(0)
            for side in sides:
                side.services.turn.run()
        twins.end_turn()
        twins.compare_files()
        return twins.laned.copied - before

    for side in sides:
        side.services.delays._work._budget_s = 0.0  # a turn ends after each step
        side.services.delays.start()
    assert await deliver(5_000) > 800
    for side in sides:
        side.services.topics.update(TopicConfig("T", read_queue_nums=2, write_queue_nums=4))
        side.services.topics.delete("Narrow")
    assert await deliver(4_000) > 100
    assert await deliver(4_000) == 0, "keys of cancelled ones are compared in Python"
    assert not any(side.services.timer_messages.count() for side in sides)
    twins.close()


async def test_copies_of_overdue_timers_in_several_files_have_the_same_bytes():
    """Ten of the log's first file are due first, then ten of its last file, then ten of the first one again."""
    twins = Twins(mapped_file_size_commit_log=1 << 17)
    sides, count = (twins.twin, twins.laned), 1200
    now_ms = twins.twin.path.clock.message_time_ms()
    dues = {number: 3_000 + number + (1_000 if number >= 10 else 0) for number in range(20)}
    dues |= {count - 10 + number: 3_500 + number for number in range(10)}
    for number in range(count):
        properties = f"UNIQ_KEY\x01u{number}"
        if number in dues:
            properties += f"\x02TIMER_DELIVER_MS\x01{now_ms + dues[number]}"
        await twins.receive(
            0, b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, send_header(properties), b"hello", number))
        )
        if number % 20 == 19:
            twins.end_turn()
    for side in sides:
        side.services.delays.start()
    for ms in 2_990, 3_000:  # all are loaded, then all are due
        twins.advance(ms)
        for _ in range(1000):
            await asyncio.sleep(0)
            for side in sides:
                side.services.turn.run()
    twins.end_turn()
    assert twins.laned.copied > 0
    assert not any(side.services.timer_messages.count() for side in sides)
    twins.compare_files()
    twins.close()
