import tracemalloc

from pocketmq.broker.clients.rebalance_lock import RebalanceLock
from pocketmq.remoting.bodies import LockBatchBody, LockOkBody, MessageQueue, decode_body, encode_body
from pocketmq.remoting.codes import RequestCode
from tests.broker.data_path import TOPIC, DataPath, SteppedClock
from tests.support.memory import traced_memory

Q0, Q1 = MessageQueue("b", 0, "T"), MessageQueue("b", 1, "T")
LIVE_MS = 60_000


def test_queue_has_one_holder_per_group():
    locks = RebalanceLock(SteppedClock(), LIVE_MS)
    assert locks.lock_batch("g", [Q0], "c1") == [Q0]
    assert locks.lock_batch("g", [Q0, Q1], "c2") == [Q1]
    assert locks.lock_batch("g", [Q0], "c1") == [Q0]
    assert locks.lock_batch("other", [Q0], "c2") == [Q0]
    assert locks.holder_of("g", Q0).client_id == "c1"


def test_only_the_holder_unlocks():
    locks = RebalanceLock(SteppedClock(), LIVE_MS)
    locks.lock_batch("g", [Q0], "c1")
    locks.unlock_batch("g", [Q0, Q1], "c2")
    assert locks.holder_of("g", Q0).client_id == "c1"
    locks.unlock_batch("g", [Q0], "c1")
    assert locks.holder_of("g", Q0) is None
    assert locks.lock_batch("g", [Q0], "c2") == [Q0]


def test_lock_expires_after_its_last_request():
    clock = SteppedClock()
    locks = RebalanceLock(clock, LIVE_MS)
    locks.lock_batch("g", [Q0], "c1")
    clock.seconds += 40
    locks.lock_batch("g", [Q0], "c1")
    clock.seconds += LIVE_MS / 1000
    assert locks.lock_batch("g", [Q0], "c2") == []
    clock.seconds += 0.1
    assert locks.holder_of("g", Q0) is None
    assert locks.lock_batch("g", [Q0], "c2") == [Q0]


def test_calendar_step_expires_no_lock():
    clock = SteppedClock()
    locks = RebalanceLock(clock, LIVE_MS)
    locks.lock_batch("g", [Q0], "c1")
    clock.advance(400 * 86_400_000)
    assert locks.holder_of("g", Q0).client_id == "c1"


def test_expired_locks_are_removed():
    clock = SteppedClock()
    locks = RebalanceLock(clock, LIVE_MS)
    locks.lock_batch("g", [Q0], "c1")
    locks.lock_batch("h", [Q1], "c1")
    clock.seconds += 50
    locks.lock_batch("h", [Q1], "c1")
    clock.seconds += 50
    locks.expire()
    assert locks.holder_of("h", Q1).client_id == "c1"
    assert list(locks._groups) == ["h"]


def test_locks_are_limited_and_held_ones_stay(caplog):
    clock = SteppedClock()
    locks = RebalanceLock(clock, LIVE_MS, 3)
    assert locks.lock_batch("g", [Q0, Q1], "c1") == [Q0, Q1]
    for number in range(50):
        locks.lock_batch(f"made up {number}", [MessageQueue("b", n, "U") for n in range(50)], "hostile")
    assert sum(map(len, locks._groups.values())) == 3 and len(locks._groups) == 2
    assert "maxLockedQueues=3 is the limit" in caplog.text
    assert locks.lock_batch("g", [Q0, Q1], "c1") == [Q0, Q1]
    locks.unlock_batch("g", [Q0], "c1")
    assert locks.lock_batch("other", [Q0], "c2") == [Q0]
    clock.seconds += LIVE_MS / 1000 + 1
    locks.expire()
    assert locks.lock_batch("g", [Q0, Q1], "c3") == [Q0, Q1]


async def test_queues_that_do_not_exist_are_not_locked():
    path = DataPath()
    real = [MessageQueue("b", queue_id, TOPIC) for queue_id in range(4)]
    made_up = [MessageQueue("b", queue_id, "Hostile") for queue_id in range(100)]
    made_up += [MessageQueue("b", 4, TOPIC), MessageQueue("b", -1, TOPIC)]
    answer = path.call(RequestCode.LOCK_BATCH_MQ, None, encode_body(LockBatchBody("cg", "c1", made_up + real)))
    assert decode_body(LockOkBody, answer.body).lock_ok_mq_set == real
    assert all(path.services.locks.holder_of("cg", queue) is None for queue in made_up)


def test_a_lock_keeps_little_memory():
    locks = RebalanceLock(SteppedClock(), LIVE_MS)
    count = 20_000
    tracemalloc.start()
    body = encode_body(LockBatchBody("cg", "c1", [MessageQueue("broker-name", n, "topic-name" * 10) for n in range(count)]))
    before = traced_memory()
    locks.lock_batch("cg", decode_body(LockBatchBody, body, len(body)).mq_set, "c1")
    kept = traced_memory() - before
    tracemalloc.stop()
    assert kept / count < 230
