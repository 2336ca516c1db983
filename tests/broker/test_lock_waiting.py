"""Queue locks of ordered consumers that join, leave, are killed or lose their connection."""

import asyncio

import pytest

from pocketmq.broker.clients.rebalance_lock import RECENT_MAX
from pocketmq.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    LockOkBody,
    MessageQueue,
    SubscriptionData,
    TopicConfig,
    decode_body,
    encode_body,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.consumer import UnregisterClientRequestHeader
from pocketmq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from tests.broker.data_path import TOPIC, DataPath, StubChannel, pull_header, until
from tests.broker.running import ask, connected, create_topic, running_broker
from tests.patience import PATIENCE_S

GROUP = "cg"
QUEUES = [MessageQueue("b", queue_id, TOPIC) for queue_id in range(4)]
Q0, Q1, Q2, Q3 = QUEUES


class Member:
    """A consumer and its connection."""

    def __init__(self, path: DataPath, client_id: str, port: int) -> None:
        self.path, self.client_id, self.channel = path, client_id, StubChannel(port)
        self.beat()

    def beat(self, group: str = GROUP) -> None:
        consumers = [ConsumerData(group, subscription_data_set=[SubscriptionData(TOPIC)])]
        self._ask(RequestCode.HEART_BEAT, None, encode_body(HeartbeatData(self.client_id, [], consumers)))
        self.take()

    def lock(self, *queues: MessageQueue, group: str = GROUP) -> "list[MessageQueue] | None":
        """Request locks; return the requested queues in the answer, or None while the request is held."""
        self.take()
        self._ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(LockBatchBody(group, self.client_id, list(queues))))
        listed = self.answer()
        return None if listed is None else [queue for queue in listed if queue in queues]

    def answer(self) -> "list[MessageQueue] | None":
        answers = [command for command in self.take() if command.is_response]
        return decode_body(LockOkBody, answers[0].body).lock_ok_mq_set if answers else None

    def unlock(self, *queues: MessageQueue) -> None:
        self._ask(RequestCode.UNLOCK_BATCH_MQ, None, encode_body(LockBatchBody(GROUP, self.client_id, list(queues))))

    def leave(self) -> None:
        header = UnregisterClientRequestHeader(self.client_id, consumer_group=GROUP)
        self._ask(RequestCode.UNREGISTER_CLIENT, header, b"")

    def is_notified(self) -> bool:
        return RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in [command.code for command in self.take()]

    def take(self):
        return self.channel.take()

    def _ask(self, code, header, body):
        self.path.ask(code, header, body, self.channel)
        self.path.turn()


def group_of(count: int, **broker: object) -> "tuple[DataPath, list[Member]]":
    path = DataPath(broker)
    members = [Member(path, f"c{number}", number + 1) for number in range(count)]
    for member in members:
        member.take()
    return path, members


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_refused_lock_is_answered_as_soon_as_the_holder_unlocks():
    _, (holder, asker) = group_of(2)
    assert holder.lock(Q0, Q1, Q2) == [Q0, Q1, Q2]
    assert asker.lock(Q0, Q1, Q3) is None
    holder.unlock(Q0)
    assert asker.answer() is None
    holder.unlock(Q1)
    assert set(asker.answer()) == {Q0, Q1, Q3}
    assert holder.lock(Q2) == [Q2]


async def test_refused_lock_is_answered_when_the_holder_unregisters():
    _, (holder, asker) = group_of(2)
    holder.lock(Q0, Q1)
    assert asker.lock(Q0, Q1) is None
    holder.leave()
    assert set(asker.answer()) == {Q0, Q1}


async def test_answer_at_the_deadline_has_the_queues_that_could_be_locked():
    path, (holder, asker) = group_of(2, lock_wait_millis=20)
    holder.lock(Q0, Q1)
    assert asker.lock(Q0, Q1, Q2) is None
    holder.unlock(Q1)
    path.clock.seconds += 0.02
    await until(lambda: asker.channel.out, 20)
    assert set(asker.answer()) == {Q1, Q2}
    assert holder.lock(Q0) == [Q0]


async def test_lock_is_not_held_if_off_or_for_non_members_or_a_second_time():
    _, (holder, asker) = group_of(2, lock_wait_millis=0)
    holder.lock(Q0)
    assert asker.lock(Q0, Q1) == [Q1]
    path, (holder, asker) = group_of(2)
    holder.lock(Q0)
    stranger = Member(path, "stranger", 9)
    stranger.leave()
    stranger.beat("another")
    assert stranger.lock(Q0) == []
    assert asker.lock(Q0) is None
    assert asker.lock(Q0, Q1) == [Q1]


async def test_freed_queue_goes_to_the_second_waiting_client_if_the_first_left():
    _, (holder, first, second) = group_of(3)
    holder.lock(Q0)
    assert first.lock(Q0) is None
    assert second.lock(Q0) is None
    first.channel.close()
    holder.unlock(Q0)
    assert second.answer() == [Q0]


async def test_freed_queue_goes_to_the_client_that_waited_longest():
    path, (holder, first, second) = group_of(3, lock_wait_millis=20)
    holder.lock(Q0)
    assert first.lock(Q0) is None
    assert second.lock(Q0) is None
    holder.unlock(Q0)
    assert first.answer() == [Q0]
    path.clock.seconds += 0.02
    await until(lambda: second.channel.out, 20)
    assert second.answer() == []


async def test_client_that_unregisters_gets_no_lock_until_it_is_back():
    _, (holder, leaver) = group_of(2)
    holder.lock(Q0)
    assert leaver.lock(Q0) is None
    leaver.leave()
    holder.unlock(Q0)
    assert leaver.lock(Q0, Q1) == []
    assert holder.lock(Q0, Q1) == [Q0, Q1]
    leaver.beat()
    assert leaver.lock(Q2) == [Q2]


async def test_stopping_broker_answers_requests_that_wait():
    path, (holder, asker) = group_of(2)
    holder.lock(Q0)
    assert asker.lock(Q0) is None
    path.services.lock_holds.stop()
    assert asker.answer() == []
    assert asker.lock(Q0) == []


async def test_waiting_is_limited():
    path, (holder, asker) = group_of(2, max_held_requests_per_connection=1)
    holder.lock(Q0)
    asker.beat("another")
    Member(path, "other", 9).beat("another")
    assert holder.lock(Q0, group="another") == [Q0]
    assert asker.lock(Q0) is None
    assert asker.lock(Q0, group="another") == []


# --- notifications about refused queues -------------------------------------------------------------------------------


async def test_group_is_notified_when_a_refused_queue_is_freed_after_the_wait():
    path, (holder, asker) = group_of(2, lock_wait_millis=20)
    holder.lock(Q0, Q1)
    assert asker.lock(Q0) is None
    path.clock.seconds += 0.02
    await until(lambda: asker.channel.out, 20)
    assert asker.answer() == []
    assert asker.lock(Q1) == [], "after a wait in vain, no request is held until a queue is freed"
    holder.unlock(Q0)
    assert asker.is_notified()
    assert asker.lock(Q0) == [Q0]
    assert asker.lock(Q1) is None
    holder.unlock(Q1)
    assert asker.answer() is not None
    holder.lock(Q2)
    holder.unlock(Q2)
    assert not asker.is_notified(), "no client was refused Q2"


async def test_group_is_notified_when_a_refused_lock_has_expired():
    path, (holder, asker) = group_of(2, lock_wait_millis=0)
    holder.lock(Q0)
    assert asker.lock(Q0) == []
    path.clock.seconds += 61
    path.services.locks.expire()
    path.turn()
    assert asker.is_notified()
    assert asker.lock(Q0) == [Q0]


# --- closed connections -----------------------------------------------------------------------------------------------


async def test_queues_of_a_killed_consumer_are_freed_and_its_group_is_notified():
    path, (killed, asker) = group_of(2, lock_grace_millis=20)
    killed.lock(Q0, Q1)
    killed.channel.close()
    path.turn()
    assert asker.is_notified()
    assert asker.lock(Q0) == [], "not held, because the holder is disconnected"
    path.clock.seconds += 0.02
    await until(lambda: path.services.locks.holder_of(GROUP, Q0) is None, 20)
    path.turn()
    assert asker.is_notified()
    assert asker.lock(Q0, Q1) == [Q0, Q1]


def commit(path):
    header = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, 0)
    path.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header, b"", StubChannel(99))


SIGNS_OF_LIFE = {
    "heartbeat": lambda path: Member(path, "c0", 99),
    "lock": lambda path: Member(path, "c0", 99).lock(Q0),
    "pull": lambda path: path.pull(),
    "commit": commit,
}


@pytest.mark.parametrize("sign", SIGNS_OF_LIFE)
async def test_consumer_that_lost_its_connection_keeps_its_queues(sign):
    path, (blipped, killed, asker) = group_of(3, lock_grace_millis=20)
    blipped.lock(Q0, Q1)
    killed.lock(Q3)
    blipped.channel.close()
    killed.channel.close()
    SIGNS_OF_LIFE[sign](path)
    path.clock.seconds += 0.02
    await until(lambda: path.services.locks.holder_of(GROUP, Q3) is None, 20)
    assert path.services.locks.holder_of(GROUP, Q0).client_id == "c0"
    path.clock.seconds += 30
    assert asker.lock(Q0, Q1, Q3) in ([Q3], None)
    assert path.services.locks.holder_of(GROUP, Q0).client_id == "c0"


async def test_connection_closed_by_the_broker_frees_no_lock_early():
    path, (idle, killed) = group_of(2, lock_grace_millis=20)
    idle.lock(Q0)
    killed.lock(Q3)
    idle.channel.is_closed_by_peer = False
    idle.channel.close()
    killed.channel.close()
    path.clock.seconds += 0.02
    await until(lambda: path.services.locks.holder_of(GROUP, Q3) is None, 20)
    assert path.services.locks.holder_of(GROUP, Q0).client_id == "c0"


async def test_end_of_an_older_connection_frees_nothing():
    path, (moved, killed) = group_of(2, lock_grace_millis=20)
    moved.lock(Q0)
    before, moved.channel = moved.channel, StubChannel(99)
    assert moved.lock(Q0) == [Q0]
    before.close()
    killed.lock(Q3)
    killed.channel.close()
    path.clock.seconds += 0.02
    await until(lambda: path.services.locks.holder_of(GROUP, Q3) is None, 20)
    assert path.services.locks.holder_of(GROUP, Q0).client_id == "c0"


async def test_locks_of_a_client_in_two_processes_stay_when_one_unregisters():
    path, (first, other) = group_of(2)
    second = Member(path, "c0", 99)
    first.lock(Q0)
    first.leave()
    assert path.services.locks.holder_of(GROUP, Q0).client_id == "c0"
    second.leave()
    assert other.lock(Q0) == [Q0]


async def test_lock_waits_for_a_reconnected_holder():
    _, (blipped, asker) = group_of(2)
    blipped.lock(Q0)
    blipped.channel.close()
    assert asker.lock(Q0) == []
    blipped.channel = StubChannel(99)
    assert blipped.lock(Q0) == [Q0]
    assert asker.lock(Q0) is None


async def lock_over(client, broker, client_id, *queues):
    body = encode_body(LockBatchBody(GROUP, client_id, list(queues)))
    answer = await ask(client, broker, RequestCode.LOCK_BATCH_MQ, None, body)
    return decode_body(LockOkBody, answer.body).lock_ok_mq_set


async def locked_at_last(client, broker, client_id, queue):
    async with asyncio.timeout(PATIENCE_S):
        while queue not in await lock_over(client, broker, client_id, queue):
            await asyncio.sleep(0.01)


async def test_end_of_a_real_connection_frees_its_locks():
    async with running_broker(lock_grace_millis=50) as broker, connected() as survivor:
        await create_topic(survivor, broker, TOPIC)
        async with connected() as killed:
            assert await lock_over(killed, broker, "c0", Q0) == [Q0]
            assert await lock_over(survivor, broker, "c1", Q0) == []
        await locked_at_last(survivor, broker, "c1", Q0)


@pytest.mark.parametrize("ended_by", ["close", "abort"])
async def test_real_connection_closed_by_the_broker_frees_no_lock_early(ended_by):
    async with running_broker(lock_grace_millis=50) as broker, connected() as survivor:
        await create_topic(survivor, broker, TOPIC)
        others = set(broker._server.channels.open)
        async with connected() as idle:
            assert await lock_over(idle, broker, "c0", Q0) == [Q0]
            (channel,) = set(broker._server.channels.open) - others
            getattr(channel, ended_by)()
        async with connected() as killed:
            assert await lock_over(killed, broker, "c2", Q1) == [Q1]
        await locked_at_last(survivor, broker, "c1", Q1)
        assert await lock_over(survivor, broker, "c1", Q0) == [Q1], "the answer has Q1, locked before"


# --- queues in the answer ---------------------------------------------------------------------------------------------


async def test_answer_includes_the_recent_locks_of_the_client():
    path, (member, other) = group_of(2)
    other.lock(Q3)
    member.lock(Q0)
    path.clock.seconds += 20
    member.lock(Q1)
    path.clock.seconds += 11
    member._ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(LockBatchBody(GROUP, "c0", [Q2])))
    # The lock on Q0 expires before the 30 s for which the client would rely on this answer.
    assert member.answer() == [Q2, Q1]
    path.clock.seconds += 30
    assert other.lock(Q0) == [Q0]


async def test_answer_does_not_grow_with_the_locks_of_the_client():
    path, (member,) = group_of(1)
    path.services.topics.update(TopicConfig("Wide", 1000, 1000))
    wide = [MessageQueue("b", queue_id, "Wide") for queue_id in range(1000)]
    assert member.lock(*wide) == wide
    member._ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(LockBatchBody(GROUP, "c0", [Q0])))
    assert len(member.answer()) <= RECENT_MAX + 1


async def test_pulls_of_other_groups_are_no_sign_of_life():
    path, (killed,) = group_of(1, lock_grace_millis=20)
    killed.lock(Q0)
    killed.channel.close()
    path.ask(RequestCode.PULL_MESSAGE, pull_header(consumer_group="another"), b"", StubChannel(99))
    path.clock.seconds += 0.02
    await until(lambda: path.services.locks.holder_of(GROUP, Q0) is None, 20)
