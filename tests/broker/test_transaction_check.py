"""Checks of open transactions: which producer, when and how often; and restarts and kills in between."""

import pytest

from pocketmq.broker.put.message_id import encode_message_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from tests.broker.data_path import TOPIC, records
from tests.broker.transacting import (
    COMMIT,
    GIVEN_UP,
    HALF,
    INTERVAL_MS,
    ROLLBACK,
    TIMEOUT_MS,
    UNKNOWN,
    Killed,
    Transacting,
    properties,
)

HOUR_MS = 3_600_000


@pytest.fixture
async def path():
    return Transacting()


async def test_producer_is_checked_after_the_timeout_and_its_answer_counts(path):
    channel = path.producer()
    path.prepare("a", TAGS="tag")
    path.prepare("b")
    await path.advance(TIMEOUT_MS - 1)
    assert channel.take() == []
    await path.advance(1)
    first, second = channel.take()
    assert first.code == RequestCode.CHECK_TRANSACTION_STATE and first.flag & 2, "a oneway request"
    half, copy = path.halves()[0], path.halves()[2]
    assert (first.ext["tranStateTableOffset"], first.ext["commitLogOffset"]) == ("2", str(copy.physical_offset))
    assert (first.ext["msgId"], first.ext["transactionId"]) == ("U-a", "U-a")
    (shown,) = records(first.body)
    assert (shown.topic, shown.queue_id, shown.body) == (TOPIC.encode(), 0, b"a")
    assert (shown.queue_offset, shown.physical_offset) == (2, copy.physical_offset)
    assert properties(shown) == properties(half) | {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    path.end_asked(first, COMMIT)
    path.end_asked(second, ROLLBACK)
    assert (path.bodies(), path.ops()) == (["a"], ["2", "3"])
    assert path.stored()[0].prepared_transaction_offset == copy.physical_offset
    await path.advance(INTERVAL_MS)
    assert (channel.take(), len(path.halves())) == ([], 4)


async def test_producers_of_the_group_are_checked_in_turn(path):
    other, first, second = path.producer(41001, "other"), path.producer(41002), path.producer(41003)
    path.prepare("a")
    await path.advance(TIMEOUT_MS)
    for _ in range(3):
        await path.advance(INTERVAL_MS)
    assert [len(channel.take()) for channel in (other, first, second)] == [0, 2, 2]
    second.close()
    await path.advance(INTERVAL_MS)
    assert (len(first.take()), second.take()) == (1, [])


async def test_transaction_is_given_up_after_15_checks(path):
    channel = path.producer()
    path.prepare("a", own="1")
    await path.advance(TIMEOUT_MS)
    for times in range(1, 16):
        (question,) = channel.take()
        assert properties(records(question.body)[0])["TRANSACTION_CHECK_TIMES"] == str(times)
        path.end_asked(question, UNKNOWN)
        assert path.stored(GIVEN_UP) == []
        await path.advance(INTERVAL_MS)
    (given_up,) = path.stored(GIVEN_UP)
    assert (given_up.body, properties(given_up)["own"], properties(given_up)["REAL_TOPIC"]) == (b"a", "1", TOPIC)
    assert properties(given_up)["TRANSACTION_CHECK_TIMES"] == "15"
    assert path.services.topics.get(GIVEN_UP) is not None
    await path.advance(HOUR_MS)
    assert (channel.take(), path.stored(), len(path.stored(GIVEN_UP))) == ([], [], 1)
    path.persist()
    assert path.progress() == (16, 0)


async def test_transaction_older_than_the_log_retention_is_given_up(path):
    channel = path.producer()
    path.prepare("a")
    await path.advance(path.store.config.file_reserved_time * HOUR_MS + 1)
    assert (channel.take(), len(path.stored(GIVEN_UP))) == ([], 1)


async def test_no_check_before_the_immunity_time_and_the_queue_continues(path):
    channel = path.producer()
    path.prepare("immune", CHECK_IMMUNITY_TIME_IN_SECONDS=150)
    path.prepare("brief", CHECK_IMMUNITY_TIME_IN_SECONDS=1)
    path.prepare("plain")
    await path.advance(INTERVAL_MS)
    await path.advance(0)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-brief", "U-plain"]
    copy = path.halves()[3]
    assert properties(copy)["TRAN_PREPARED_QUEUE_OFFSET"] == "0" and "TRANSACTION_CHECK_TIMES" not in properties(copy)
    await path.advance(INTERVAL_MS)
    channel.take()
    await path.advance(150_000 - 2 * INTERVAL_MS - 1)
    assert channel.take() == []
    await path.advance(1)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-immune"]


async def test_transaction_stored_again_can_be_ended_by_its_old_offset(path):
    """Apache delivers such a message twice, because the copy stays open there."""
    channel = path.producer()
    path.prepare("immune", CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
    path.prepare("rolled back", CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
    immune, rolled_back = path.halves()
    await path.advance(INTERVAL_MS)
    await path.advance(INTERVAL_MS)
    assert len(path.halves()) == 6
    path.end(immune, COMMIT)
    path.end(rolled_back, ROLLBACK)
    assert (path.bodies(), path.ops()) == (["immune"], ["4", "5"])
    assert path.stored()[0].prepared_transaction_offset == path.halves()[4].physical_offset
    await path.advance(2 * HOUR_MS)
    assert (channel.take(), len(path.halves())) == ([], 6)


async def test_commits_by_sender_and_checked_producer_deliver_once(path):
    channel = path.producer()
    path.prepare("a")
    (half,) = path.halves()
    await path.advance(TIMEOUT_MS)
    (question,) = channel.take()
    path.end(half, COMMIT)
    path.end_asked(question, COMMIT)
    assert (path.bodies(), path.ops()) == (["a"], ["1"])


async def test_commit_after_a_rollback_by_the_checked_producer_counts(path):
    channel = path.producer()
    path.prepare("a")
    (half,) = path.halves()
    await path.advance(TIMEOUT_MS)
    path.end_asked(channel.take()[0], ROLLBACK)
    path.end(half, COMMIT)
    assert path.bodies() == ["a"]


async def test_given_up_transaction_can_still_be_committed(path):
    path.prepare("a")
    (half,) = path.halves()
    await path.advance(path.store.config.file_reserved_time * HOUR_MS + 1)
    path.end(half, COMMIT)
    assert path.bodies() == ["a"]


async def test_given_up_transaction_is_checked_again_on_request(path):
    path.prepare("a")
    await path.advance(path.store.config.file_reserved_time * HOUR_MS + 1)
    (given_up,) = path.stored(GIVEN_UP)

    def resume(physical_offset):
        message_id = encode_message_id(given_up.store_host, physical_offset)
        header = ResumeCheckHalfMessageRequestHeader(message_id)
        return path.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header).code

    channel = path.producer()
    assert [resume(record.physical_offset) for record in path.halves()] == [ResponseCode.SYSTEM_ERROR]
    assert resume(given_up.physical_offset) == 0
    await path.advance(TIMEOUT_MS)
    (question,) = channel.take()
    assert properties(records(question.body)[0])["TRANSACTION_CHECK_TIMES"] == "1"
    path.end_asked(question, COMMIT)
    assert path.bodies() == ["a"]


async def test_calendar_steps_delay_no_check(path):
    channel = path.producer()
    path.prepare("back")
    path.clock.step(-HOUR_MS)
    await path.settle()
    await path.advance(TIMEOUT_MS)
    (question,) = channel.take()
    assert question.ext["msgId"] == "U-back"
    path.end_asked(question, ROLLBACK)
    path.prepare("forth")
    path.clock.step(HOUR_MS)
    await path.settle()
    assert channel.take() == []
    await path.advance(TIMEOUT_MS)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-forth"]
    path.clock.step(-HOUR_MS)
    path = path.again()
    channel = path.producer()
    await path.advance(INTERVAL_MS)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-forth"], "nor a start behind the log's times"


async def test_half_message_behind_a_copy_is_checked_in_time(path):
    channel = path.producer()
    path.prepare("old")
    await path.advance(TIMEOUT_MS)
    (question,) = channel.take()
    path.prepare("fresh")
    path.end_asked(question, COMMIT)
    await path.settle()
    await path.advance(TIMEOUT_MS)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-fresh"]


async def test_copy_that_cannot_be_stored_is_retried_before_any_check(path):
    channel = path.producer()
    path.prepare("a")
    path.store.commit_log.refuse("test", "disk full")
    path.clock.advance(TIMEOUT_MS)
    path.services.transactions.check.work._run()
    assert channel.take() == [] and not path.services.transactions.check.work.is_idle
    path.store.commit_log.refuse("test", None)
    await path.settle()
    assert len(channel.take()) == 1


async def test_half_message_without_room_for_properties_is_given_up(path):
    channel = path.producer()
    path.prepare("large", own="v" * 32_600)
    path.prepare("small")
    await path.advance(TIMEOUT_MS)
    assert [question.ext["msgId"] for question in channel.take()] == ["U-small"]
    assert path.bodies(GIVEN_UP) == ["large"]


async def test_producer_that_does_not_read_is_not_checked(path):
    stalled, other = path.producer(41001), path.producer(41002)
    stalled.is_writable = False
    for body in "ab":
        path.prepare(body)
    await path.advance(TIMEOUT_MS)
    assert (len(stalled.take()), len(other.take())) == (0, 2)


async def test_many_due_checks_are_spread_over_turns(path):
    channel = path.producer()
    for number in range(100):
        path.prepare(str(number))
    path.clock.advance(TIMEOUT_MS)
    path.services.transactions.check.work._run()
    assert 0 < len(channel.take()) < 100
    await path.settle()
    assert path.store.max_offset(HALF, 0) == 200


# --- restarts and kills ----------------------------------------------------------------------------------------------


async def test_open_transactions_are_checked_after_a_restart(path):
    for body in "abc":
        path.prepare(body)
    path.end(path.halves()[1])
    path.persist()
    path = path.again()
    channel = path.producer()
    await path.advance(TIMEOUT_MS)
    questions = channel.take()
    assert [question.ext["msgId"] for question in questions] == ["U-a", "U-c"]
    path = path.again()
    channel = path.producer()
    for question in questions:
        path.end_asked(question, COMMIT)
    await path.advance(INTERVAL_MS)
    assert (sorted(path.bodies()), channel.take()) == (["a", "b", "c"], [])


@pytest.mark.parametrize("immunity", [None, 90])
@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize("killed_at", range(12))
async def test_process_may_be_killed_before_any_put(path, killed_at, persisted, immunity):
    """After the next complete run, all committed messages are delivered, none rolled back is, and no transaction is open."""
    endings = {"a": COMMIT, "b": ROLLBACK, "c": COMMIT}
    extra = {} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}
    for body in endings:
        path.prepare(body, **extra)
    halves = path.halves()
    path.kill_before_put(killed_at)
    try:
        path.end(halves[0], COMMIT)
        await _live(path, endings, INTERVAL_MS + TIMEOUT_MS, persisted)
        path.end(halves[2], COMMIT)
    except Killed:
        pass
    path = path.again()
    await _live(path, endings, 4 * INTERVAL_MS, persisted)
    delivered = path.bodies()
    assert set(delivered) == {"a", "c"}
    assert len(delivered) - 2 <= 1, "only the last commit before the kill may be repeated"
    path.persist()
    assert path.progress() == (path.store.max_offset(HALF, 0), len(path.ops()))


async def _live(path, endings, ms, persisted):
    """Let time pass with a producer that answers checks."""
    channel = path.producer()
    for _ in range(ms // TIMEOUT_MS):
        path.clock.advance(TIMEOUT_MS)
        while not path.services.transactions.check.work.is_idle:
            path.services.transactions.check.work._run()
            path.turn()
        if persisted:
            path.persist()
        for question in channel.take():
            path.end_asked(question, endings[question.ext["msgId"][2:]])
