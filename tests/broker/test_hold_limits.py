"""Held requests: linear work, limits, and isolation of one client's failure from the others."""

import json
import time
import tracemalloc

import pytest

from pocketmq.broker.polling.held_requests import DeadlineWheel, HeldRequest, HoldLimits
from pocketmq.broker.polling.long_polling import PullRequestHoldService
from pocketmq.broker.polling.pop_polling import PopLongPollingService
from pocketmq.remoting.codes import JSON, RequestCode, ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.header import ext_map
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.format.message import Arrival
from tests.broker.data_path import TOPIC, DataPath, StubChannel, pull_header, records, send_header, until
from tests.support.memory import traced_memory

SUSPEND = 2 | 4


@pytest.fixture
async def path():
    return DataPath()


def hold(path, channel, queue_offset=0, **fields):
    path.ask(RequestCode.PULL_MESSAGE, pull_header(queue_offset, **({"sys_flag": SUSPEND} | fields)), b"", channel)


class PoisonedChannel(StubChannel):
    """A connection on which answers cannot be encoded."""

    def respond(self, response, opaque, serialize_type):
        raise ValueError("poisoned")


def service(path, limits=HoldLimits(), any_matches=lambda *_: False):  # noqa: B008
    timers = Timers(path.clock, path.services.timers._loop)
    return PullRequestHoldService(timers, WorkSlices(timers), any_matches, limits)


def held_pulls(holds, count, channel_of, matches=None, timeout_s=60.0, serve=Response):
    for number in range(count):
        deferred = holds.hold(TOPIC, 0, 0, matches, timeout_s, channel_of(number), serve)
        assert deferred is not None
        deferred.bind(channel_of(number), number, 0)


# --- one failure ----------------------------------------------------------------------------------------------------


async def test_unsendable_answer_does_not_prevent_waking_of_other_pulls(path):
    poisoned, healthy = PoisonedChannel(5), StubChannel(6)
    hold(path, poisoned)
    hold(path, healthy)
    path.send()
    (answer,) = healthy.take()
    assert len(records(answer.body)) == 1
    assert not poisoned.is_open


async def test_unsendable_answer_does_not_stop_the_deadlines(path):
    poisoned, healthy = PoisonedChannel(5), StubChannel(6)
    hold(path, poisoned, suspend_timeout_millis=20)
    hold(path, healthy, suspend_timeout_millis=20)
    path.clock.seconds += 1
    await until(lambda: healthy.out)
    healthy.take()
    hold(path, healthy, suspend_timeout_millis=20)
    path.clock.seconds += 1
    await until(lambda: healthy.out)
    assert not poisoned.is_open


async def test_failing_filter_does_not_prevent_waking_of_other_pulls(path):
    holds, bad, good = service(path), StubChannel(5), StubChannel(6)
    held_pulls(holds, 1, lambda _: bad, matches=lambda code: 1 / 0)
    held_pulls(holds, 1, lambda _: good)
    holds.arrived([Arrival(TOPIC, 0, 1, [7], 0, 100)])
    holds.wake()
    assert len(good.take()) == 1 and len(bad.take()) == 1


async def test_stop_answers_all_held_pulls_despite_an_unsendable_one(path):
    poisoned, healthy = PoisonedChannel(5), StubChannel(6)
    hold(path, poisoned)
    hold(path, healthy)
    assert path.services.holds.stop() == 2
    assert len(healthy.take()) == 1


async def test_unsendable_answer_of_a_pop_stops_no_other_pop(path):
    timers = Timers(path.clock, path.services.timers._loop)
    polling = PopLongPollingService(timers, WorkSlices(timers), HoldLimits())
    poisoned, healthy = PoisonedChannel(5), StubChannel(6)
    for channel in (poisoned, healthy):
        deferred = polling.wait((TOPIC, "g", -1), (TOPIC,), Response, Response, 15.0, channel)
        deferred.bind(channel, 1, 0)
    polling.arrived([Arrival(TOPIC, 0, 1, [0], 0, 100)])
    polling.wake()
    assert len(healthy.take()) == 1 and polling.count == 0


# --- work -----------------------------------------------------------------------------------------------------------


async def test_arrival_for_many_pulls_of_a_queue_does_not_block_the_loop(path):
    holds, healthy = service(path), StubChannel(9)
    attackers = [StubChannel(number) for number in range(100, 104)]

    def slow(code):
        end = time.thread_time() + 0.0001
        while time.thread_time() < end:
            pass
        return False

    held_pulls(holds, 2000, lambda number: attackers[number % 4], matches=slow)
    held_pulls(holds, 1, lambda _: healthy)
    holds.arrived([Arrival(TOPIC, 0, 1, [7], 0, 100)])
    began = time.thread_time()
    holds.wake()
    assert time.thread_time() - began < 0.05
    await until(lambda: healthy.out)
    assert time.thread_time() - began < 0.1, "the pull of another connection waits for all those of the attacker"


async def test_arrival_during_a_round_wakes_pulls_already_checked(path):
    holds, others, healthy = service(path), StubChannel(5), StubChannel(6)

    def slow(code):
        end = time.thread_time() + 0.0002
        while time.thread_time() < end:
            pass
        return False

    held_pulls(holds, 1, lambda _: healthy, matches=lambda code: code == 8)
    held_pulls(holds, 500, lambda _: others, matches=slow)
    for queue_offset, code in ((1, 7), (2, 8)):
        holds.arrived([Arrival(TOPIC, 0, queue_offset, [code], 0, 100)])
        holds.wake()
        assert queue_offset == 2 or not healthy.out
    await until(lambda: healthy.out)


async def test_many_simultaneous_deadlines_do_not_block_the_loop(path):
    holds, channel = service(path), StubChannel(5)

    def serve():
        end = time.thread_time() + 0.0001
        while time.thread_time() < end:
            pass
        return Response()

    held_pulls(holds, 2000, lambda _: channel, timeout_s=1.0, serve=serve)
    path.clock.seconds += 2
    began = time.thread_time()
    holds._expire()
    assert time.thread_time() - began < 0.05
    await until(lambda: holds.count == 0)
    assert len(channel.take()) == 2000


def _cpu_of_a_deadline(count):
    """Return the CPU seconds for one due item among `count` that are not due."""
    wheel = DeadlineWheel()
    for number in range(count):
        wheel.add(HeldRequest(None, 100.0 + number % 1000, 0, ()))
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for turn in range(200):
            item = HeldRequest(None, 10.0 + turn * 0.01, 0, ())
            wheel.add(item)
            assert wheel.next_due_s() == item.deadline_s
            assert wheel.pop_due(item.deadline_s) == [item]
        best = min(best, time.process_time() - began)
    return best


def test_cost_of_a_deadline_is_independent_of_their_number():
    assert _cpu_of_a_deadline(40_000) < 3 * _cpu_of_a_deadline(10_000)


def test_deadline_wheel_returns_exactly_the_due_items():
    wheel = DeadlineWheel()
    items = [HeldRequest(None, deadline_s, 0, ()) for deadline_s in (1.0, 1.04, 1.06, 2.0, -5.0)]
    for item in items:
        wheel.add(item)
    wheel.discard(items[3])
    assert wheel.next_due_s() == -5.0
    assert wheel.pop_due(1.05) == [items[4], items[0], items[1]]
    assert wheel.next_due_s() == 1.06
    assert wheel.pop_due(9.0) == [items[2]]
    assert wheel.next_due_s() is None


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_at_the_total_limit_the_connection_holding_most_is_suspended():
    path = DataPath({"max_held_requests": 100})
    attacker, healthy = StubChannel(5), StubChannel(6)
    for _ in range(100):
        hold(path, attacker)
    hold(path, healthy)
    assert healthy.take() == [] and attacker.is_suspended and not healthy.is_suspended
    path.send()
    (answer,) = healthy.take()
    assert len(records(answer.body)) == 1
    assert path.services.holds.count <= 100


async def test_bytes_of_held_requests_are_limited():
    path = DataPath({"max_held_request_bytes": 1 << 20})
    attacker, healthy = StubChannel(5), StubChannel(6)
    for _ in range(40):
        hold(path, attacker, subscription="||".join(["A" * 50] * 1000))
    assert path.services.holds.size <= 1 << 20
    assert attacker.is_suspended
    hold(path, healthy)
    assert healthy.take() == []


async def test_limit_per_connection_does_not_affect_other_connections():
    path = DataPath({"max_held_requests_per_connection": 10})
    greedy, healthy = StubChannel(5), StubChannel(6)
    for _ in range(12):
        hold(path, greedy)
    assert [answer.code for answer in greedy.take()] == [ResponseCode.PULL_NOT_FOUND] * 2
    hold(path, healthy)
    assert healthy.take() == [] and not healthy.is_suspended


async def test_held_pull_of_a_peer_that_does_not_read_waits_until_it_reads(path):
    slow = StubChannel(5)
    slow.is_writable = False
    hold(path, slow)
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"news")
    path.turn()
    assert slow.take() == [] and path.services.holds.count == 1
    slow.is_writable = True
    path.clock.seconds += 1
    await until(lambda: slow.out)
    assert len(records(slow.take()[0].body)) == 1


async def test_held_pull_does_not_keep_the_bytes_of_its_header(path):
    """Fields that are not declared may be long."""
    count, size = 100, 20_000
    fields = ext_map(pull_header(0, sys_flag=SUSPEND)) | {"unknown": "x" * size}
    tracemalloc.start()
    try:
        for opaque in range(count):
            header = json.dumps(
                {"code": 11, "language": "JAVA", "version": 0, "opaque": opaque, "flag": 0, "extFields": fields}
            )
            path.serve((JSON, header.encode(), b""), path.channel)
        del header
        kept = traced_memory()
    finally:
        tracemalloc.stop()
    assert path.channel.deferred_count == path.services.holds.count == count
    assert kept < count * size // 4
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"here")
    path.turn()
    await until(lambda: path.services.holds.count == 0)
    answers = path.channel.take()
    assert sorted(answer.opaque for answer in answers if b"here" in answer.body) == list(range(count))
