"""What a broker measures of itself: put times, syncs, lateness of deliveries, the loop's lag."""

import time

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.stats.histogram import Histogram, quantile_s
from pocketmq.broker.stats.recent import RecentCounts, RecentMaximum
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.broker.running import ask, connected, create_topic, running_broker, until


async def send(client: RemotingClient, broker: Broker, count: int, properties: str | None = None) -> None:
    for _ in range(count):
        header = SendMessageRequestHeaderV2("g", "T", "TBW102", 4, 0, 0, 0, 0, properties)
        assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code == 0


def test_a_histogram_counts_by_inclusive_bounds_and_interpolates() -> None:
    times = Histogram((0.001, 0.01, 0.1))
    for seconds in (-1.0, 0.0, 0.001, 0.002, 0.05, 7.0, float("-inf")):
        times.add(seconds)
    times.add(0.1, 3)
    assert (times.counts, times.total, times.max_s) == ([4, 1, 4, 1], 10, 7.0)
    assert times.sum_s == pytest.approx(7.353)
    assert quantile_s((1, 2), (0, 0, 0), 0.99) == 0.0
    assert quantile_s((1, 2), (10, 0, 0), 0.5) == 0.5
    assert quantile_s((1, 2), (50, 50, 0), 0.99) == pytest.approx(1.98)
    assert quantile_s((1, 2), (0, 0, 4), 0.5) == 2


def test_recent_figures_forget_what_is_older_than_a_minute() -> None:
    times, longest = Histogram((1.0,)), RecentMaximum()
    recent = RecentCounts(times)
    times.add(0.5)
    longest.sample(3.0)
    assert recent.counts() == [1, 0] and longest.maximum(1.0) == 3.0 and longest.maximum(4.0) == 4.0
    for _ in range(6):
        recent.sample()
        longest.sample(0.0)
    times.add(2.0)
    assert recent.counts() == [0, 1] and longest.maximum(0.0) == 0.0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_each_stored_message_counts_once(flush: str) -> None:
    async with running_broker(store={"flush_disk_type": flush}) as broker, connected() as client:
        await create_topic(client, broker, "T")
        measured = broker.services.measured
        before = measured.put_time.total
        began_s = time.monotonic()
        await send(client, broker, 20)
        await until(lambda: measured.put_time.total == before + 20)
        assert 0 < measured.put_time.sum_s < 20 * (time.monotonic() - began_s)
        assert measured.dispatched_max >= 1
        if flush == "SYNC_FLUSH":
            assert measured.sync_time.total > 0 and measured.sync_time.sum_s <= time.monotonic() - began_s + 20


async def test_deliveries_count_by_their_lateness_and_the_loop_by_its_lag() -> None:
    async with running_broker(store={"message_delay_level": "1s"}) as broker, connected() as client:
        await create_topic(client, broker, "T")
        measured = broker.services.measured
        await send(client, broker, 2, "DELAY\x011")
        await send(client, broker, 1, "TIMER_DELAY_MS\x01300")
        await until(lambda: measured.level_lateness.total == 2 and measured.timer_lateness.total == 1)
        assert 0 <= measured.level_lateness.max_s < 20 and 0 <= measured.timer_lateness.max_s < 20
        lags = measured.loop_lag.total
        time.sleep(0.6)  # keeps the loop
        await until(lambda: measured.loop_lag.total > lags)
        assert measured.loop_lag.max_s > 0.3
        assert measured.store_recovery_s >= 0 and measured.started_cleanly
