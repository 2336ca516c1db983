"""Transactions of the producer: commit, rollback, and the broker's checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq import Message, MessageExt, Producer, RemotingError, TransactionState
from tests.client.live_cluster import Cluster, until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def delivered(cluster: Cluster) -> int:
    """Return the number of messages delivered to topic T."""
    store = cluster.broker.services.store
    return sum(store.max_offset("T", queue_id) for queue_id in range(4))


def producer(cluster: Cluster, check: Callable[[MessageExt], Any] = lambda message: UNKNOWN) -> Producer:
    return Producer(cluster.namesrv, "payments", check=check)


async def test_message_is_delivered_when_the_block_ends(cluster: Cluster) -> None:
    async with producer(cluster) as sender:
        async with sender.transaction(Message("T", b"paid", keys="order-7")) as transaction:
            assert transaction.result.status == "SEND_OK"
            assert delivered(cluster) == 0
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, True)
    assert delivered(cluster) == 1


async def test_message_is_discarded_at_an_exception(cluster: Cluster) -> None:
    async with producer(cluster) as sender:
        with pytest.raises(KeyError):
            async with sender.transaction(Message("T", b"paid")) as transaction:
                raise KeyError
        assert (transaction.state, transaction.is_confirmed) == (ROLLBACK, True)
    assert delivered(cluster) == 0
    assert cluster.broker.services.store.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1


async def test_decision_inside_of_the_block_is_final(cluster: Cluster) -> None:
    async with producer(cluster) as sender, sender.transaction(Message("T", b"paid")) as transaction:
        await transaction.rollback()
        with pytest.raises(RuntimeError, match="decided already: ROLLBACK"):
            await transaction.commit()
    assert delivered(cluster) == 0


async def answer_now(message: MessageExt) -> TransactionState:
    await asyncio.sleep(0)
    return COMMIT


@pytest.mark.parametrize("check", [lambda message: COMMIT, answer_now], ids=["function", "coroutine"])
async def test_broker_asks_about_an_open_transaction(
    cluster: Cluster, check: Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]
) -> None:
    asked: list[MessageExt] = []

    def checking(message: MessageExt) -> Any:
        asked.append(message)
        return check(message)

    async with producer(cluster, checking) as sender:
        cluster.broker.services.config.transaction_time_out = 0
        half = Message("T", b"paid", keys="order-7", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"})
        async with sender.transaction(half) as transaction:
            transaction.leave_open()
        await until(lambda: delivered(cluster) == 1)
    assert (asked[0].topic, asked[0].body, asked[0].keys) == ("T", b"paid", "order-7")
    assert asked[0].msg_id == transaction.result.msg_id


async def test_failing_check_is_repeated(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([None, COMMIT])

    async with producer(cluster, lambda message: next(answers)) as sender:
        half = Message("T", b"paid", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"})
        cluster.broker.services.config.transaction_check_interval = 100
        async with sender.transaction(half) as transaction:
            transaction.leave_open()
        await until(lambda: delivered(cluster) == 1)
    assert "check must return a TransactionState, not NoneType" in caplog.text


async def test_transaction_needs_a_check_and_no_delay(cluster: Cluster) -> None:
    async with Producer(cluster.namesrv) as sender:
        with pytest.raises(RuntimeError, match="check="):
            sender.transaction(Message("T", b""))
    async with producer(cluster) as sender:
        with pytest.raises(ValueError, match="delayed"):
            sender.transaction(Message("T", b"", delay=3))


async def test_refused_half_message_raises(cluster: Cluster) -> None:
    cluster.broker.services.config.reject_transaction_message = True
    async with producer(cluster) as sender:
        with pytest.raises(RemotingError):
            async with sender.transaction(Message("T", b"")):
                pytest.fail("the block is not entered")
