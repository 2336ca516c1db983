"""Renewal of handles: which are renewed, when they are given up, and clients that do not hold up each other."""

import asyncio
from collections import Counter

import pytest

from pocketmq.proxy.clients import in_hand
from pocketmq.proxy.clients.in_hand import InHand
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.front import Front
from pocketmq.remoting.dispatch import RemotingError
from tests.broker.running import until

CONFIG = GrpcConfig(default_invisible_time_mills=60_000, renew_ahead_time_millis=10_000, max_renew_retry_times=2)


class Broker:
    """Renews the handles of messages, and counts how often, unless it fails."""

    def __init__(self):
        self.renewed = Counter()
        self.fails = False
        self.hangs = asyncio.Event()
        self.hangs.set()

    def receipt(self, name):
        return Receipt(self, name)


class Receipt:
    def __init__(self, broker, name):
        self._broker, self._name = broker, name

    def __str__(self):
        return self._name

    async def change(self, session, topic, group, invisible_ms):
        await self._broker.hangs.wait()
        self._broker.renewed[self._name] += 1
        if self._broker.fails:
            raise RemotingError(1, "down")
        return self


@pytest.fixture
def clock(monkeypatch):
    """The time in ms, as a list of one number."""
    now = [1_000_000]
    monkeypatch.setattr(in_hand, "monotonic_ms", lambda: now[0])
    return now


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def hand(broker, clock):
    """A hand with a message `a` that ends in a minute, and `b` that ends in a minute and a half."""
    hand = InHand(CONFIG)
    hand.add("t", "g", broker.receipt("a"), 60_000)
    clock[0] += 30_000
    hand.add("t", "g", broker.receipt("b"), 60_000)
    return hand


async def test_only_handles_that_end_soon_are_renewed(hand, broker, clock):
    await hand.renew("session")
    assert broker.renewed == {}
    clock[0] += 20_000
    await hand.renew("session")
    assert broker.renewed == {"a": 1}
    clock[0] += 30_000
    await hand.renew("session")
    assert broker.renewed == {"a": 1, "b": 1}


async def test_a_renewal_that_failed_is_tried_again_before_the_handle_ends(hand, broker, clock):
    clock[0] += 20_000
    broker.fails = True
    await hand.renew("session")
    broker.fails = False
    clock[0] += 5000
    await hand.renew("session")
    assert broker.renewed == {"a": 2}


async def test_a_handle_is_given_up_after_some_failures(hand, broker, clock):
    clock[0] += 20_000
    broker.fails = True
    for _ in range(10):
        await hand.renew("session")
    assert broker.renewed == {"a": 3}
    assert len(hand) == 1


async def test_a_handle_is_given_up_when_its_message_is_in_hand_for_very_long(hand, broker, clock):
    for _ in range(400):
        clock[0] += 30_000
        await hand.renew("session")
    assert len(hand) == 0
    assert broker.renewed["a"] > 100


async def test_a_client_whose_broker_hangs_keeps_no_other_waiting(clock):
    class Session:
        def __init__(self):
            self.hand, self.broker = InHand(CONFIG), Broker()
            self.hand.add("t", "g", self.broker.receipt("a"), 5000)

    hanging, other = Session(), Session()
    hanging.broker.hangs.clear()
    front = Front(CONFIG, upstream=None)
    front._sessions = {("1", ""): hanging, ("2", ""): other}
    await front._renew()
    await until(lambda: other.broker.renewed["a"] == 1)
    clock[0] += 60_000
    await front._renew()
    await until(lambda: other.broker.renewed["a"] == 2)
    hanging.broker.hangs.set()
    await until(lambda: hanging.broker.renewed["a"] == 1)
