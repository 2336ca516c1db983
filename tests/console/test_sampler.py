"""Samples for the charts: an hour of each broker, bounded, also if a broker tells nonsense or is gone."""

import pytest

from pocketmq.admin.api.brokers import BrokerState
from pocketmq.console.sampler import BROKERS_MAX, INTERVAL_S, SAMPLES_MAX, Sample, Sampler

MS = int(INTERVAL_S * 1000)


@pytest.fixture
def clock():
    return [1_000_000]


@pytest.fixture
def sampler(clock):
    return Sampler(None, lambda: clock[0])


def state(address, put_tps="2.5 1.0 0.5", **more):
    info = {"putTps": put_tps, "getTransferedTps": "4.0 1.0 1.0", "commitLogDiskRatio": "0.25", **more}
    return BrokerState("cluster", "broker", "0", address, info)


def test_a_sample_has_the_rates_of_the_last_seconds_and_the_disk(sampler):
    sampler.add([state("a")])
    assert list(sampler.rings["a"]) == [Sample(1_000_000, 2.5, 4.0, 0.25)]


def test_an_hour_is_kept(sampler, clock):
    for _ in range(SAMPLES_MAX + 5):
        clock[0] += MS
        sampler.add([state("a")])
    assert len(sampler.rings["a"]) == SAMPLES_MAX
    assert sampler.rings["a"][-1].time_ms == clock[0]


def test_a_broker_that_is_gone_is_forgotten_after_an_hour(sampler, clock):
    sampler.add([state("a")])
    clock[0] += MS * SAMPLES_MAX
    sampler.add([state("b")])
    assert set(sampler.rings) == {"a", "b"}
    clock[0] += 1
    sampler.add([state("b")])
    assert set(sampler.rings) == {"b"}


def test_nonsense_and_silence_of_a_broker_do_not_stop_the_others(sampler):
    silent = BrokerState("cluster", "broker", "0", "silent", {}, TimeoutError())
    sampler.add([state("odd", "many"), silent, state("a"), state("full", commitLogDiskRatio="-1")])
    assert set(sampler.rings) == {"a", "full"}
    assert sampler.rings["full"][0].disk_ratio == 0


def test_the_number_of_brokers_is_limited(sampler):
    sampler.add([state(f"broker-{number}") for number in range(BROKERS_MAX + 10)])
    assert len(sampler.rings) == BROKERS_MAX
