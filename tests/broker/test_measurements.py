"""Measurements of a broker: put times, sync times, lateness of deliveries, pulls, waiting requests."""

import time

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.runtime_info import request_backlog
from pocketmq.broker.figures.runtime_info import runtime_info as runtime_info_of
from pocketmq.broker.stats import counts, stats
from pocketmq.broker.stats.measurements import RecentCounts, RecentMaximum
from pocketmq.metrics.histogram import Histogram, quantile_s
from pocketmq.remoting import fastjson
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import encode_request
from pocketmq.remoting.frame import frame_head
from pocketmq.remoting.headers.consumer import BrokerStatsRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.message import Arrival
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.broker.sampling import sample


async def send(client: RemotingClient, broker: Broker, count: int, properties: str | None = None) -> None:
    for _ in range(count):
        header = SendMessageRequestHeaderV2("g", "T", "TBW102", 4, 0, 0, 0, 0, properties)
        assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code == 0


def test_a_histogram_counts_by_inclusive_bounds_and_interpolates() -> None:
    times = Histogram((0.001, 0.01, 0.1))
    for seconds in (-1.0, 0.0, 0.001, 0.002, 0.05, 7.0, float("-inf")):
        times.add(seconds)
    times.add(0.1, 3)
    assert (times.counts, sum(times.counts), times.max_s) == ([4, 1, 4, 1], 10, 7.0)
    assert times.sum_s == pytest.approx(7.353)
    assert quantile_s((1, 2), (0, 0, 0), 0.99) == 0.0
    assert quantile_s((1, 2), (10, 0, 0), 0.5) == 0.5
    assert quantile_s((1, 2), (50, 50, 0), 0.99) == pytest.approx(1.98)
    assert quantile_s((1, 2), (0, 0, 4), 0.5) == 2


def test_recent_figures_exclude_samples_older_than_a_minute() -> None:
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
        before = sum(measured.put_time.counts)
        began_s = time.monotonic()
        await send(client, broker, 20)
        await until(lambda: sum(measured.put_time.counts) == before + 20)
        assert 0 < measured.put_time.sum_s < 20 * (time.monotonic() - began_s)
        assert measured.dispatched_max >= 1
        if flush == "SYNC_FLUSH":
            assert sum(measured.sync_time.counts) > 0 and measured.sync_time.sum_s <= time.monotonic() - began_s + 20


async def test_deliveries_count_by_their_lateness() -> None:
    async with running_broker(store={"message_delay_level": "1s"}) as broker, connected() as client:
        await create_topic(client, broker, "T")
        measured = broker.services.measured
        await send(client, broker, 2, "DELAY\x011")
        await send(client, broker, 1, "TIMER_DELAY_MS\x01300")
        await until(lambda: sum(measured.level_lateness.counts) == 2 and sum(measured.timer_lateness.counts) == 1)
        assert 0 <= measured.level_lateness.max_s < 20 and 0 <= measured.timer_lateness.max_s < 20
        assert measured.store_recovery_s >= 0 and measured.started_cleanly


async def runtime_info(client: RemotingClient, broker: Broker) -> dict[str, str]:
    answer = await ask(client, broker, RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = fastjson.loads(answer.body)["table"]
    return table


async def statistic(client: RemotingClient, broker: Broker, name: str, key: str) -> dict[str, dict[str, float]] | None:
    answer = await ask(client, broker, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader(name, key))
    return None if answer.code else fastjson.loads(answer.body)


async def test_broker_status_shows_what_was_measured() -> None:
    async with running_broker() as broker, connected() as client:
        await create_topic(client, broker, "T")
        before = await runtime_info(client, broker)
        await send(client, broker, 30)
        broker.services.measured.put_time.add(1.5, 10)
        broker.services.store.commit_log.tail.longest_wait_s = 0.25
        info = await runtime_info(client, broker)
        counts = [int(part.rpartition(":")[2]) for part in info["putMessageDistributeTime"].split()]
        assert info["putMessageDistributeTime"].startswith("[<=0ms]:") and "[1~2s]:10 " in info["putMessageDistributeTime"]
        assert len(counts) == 13 and sum(counts) == sum(broker.services.measured.put_time.counts)
        assert 1000 < float(info["putLatency99"]) <= float(info["putLatency999"]) <= 2000
        assert int(info["putMessageEntireTimeMax"]) >= 1500 and info["pageCacheLockTimeMills"] == "250"
        assert float(before["putLatency999"]) < 1000 and int(info["dispatchMaxBuffer"]) >= 1
        assert (info["startAfter"], info["startRepairs"]) == ("clean stop", "0") and int(info["startRecoveryMs"]) >= 0


async def test_waiting_requests_are_shown_as_queues_in_broker_status() -> None:
    async with running_broker() as broker, connected() as client:
        await create_topic(client, broker, "T")
        channels = broker.services.channels
        assert channels is not None
        await send(client, broker, 1)
        (channel,) = channels.open
        header = SendMessageRequestHeaderV2("g", "T", "TBW102", 4, 0, 0, 0, 0, None)
        data = b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, header, b"x", 1))
        binary = (12).to_bytes(2, "big") + bytes(20)  # headers of QUERY_MESSAGE
        data += (frame_head(1, len(binary), 0) + binary) * 20
        for code in (361, 200_051, 200_151, 200_053):
            loose = b'{"code":%d,"opaque":1}' % code
            data += frame_head(0, len(loose), 0) + loose
        channel.is_costly = True
        channel.pause_requests(is_paused=True)
        channel.data_received(data)
        channel.last_active -= 3
        found = request_backlog(channels)
        lines = runtime_info_of(broker.services)
    assert found["send"].requests == 1 and found["query"].requests == 20 and found["pull"].requests == 0
    assert found["send"].wait_ms >= 3000 and found["EndTransaction"].requests == 0
    assert (lines["litePullThreadPoolQueueSize"], lines["ackThreadPoolQueueSize"]) == ("1", "3")
    assert int(lines["ackThreadPoolQueueHeadWaitTimeMills"]) >= 3000


async def test_pulls_count_by_group_with_latency_disk_and_distance() -> None:
    async with running_broker() as broker, connected() as client:
        await create_topic(client, broker, "T")
        await send(client, broker, 5)
        broker.services.store.reader.in_memory_bytes = 0  # what lies before the log's end counts as read from the disk
        pull = PullMessageRequestHeader("G", "T", 0, 0, 3, 4, 0, 0, 0, "*")
        assert (await ask(client, broker, RequestCode.PULL_MESSAGE, pull)).code == 0
        sample(broker.services.stats)
        for name, key, total in (
            ("GROUP_GET_NUMS", "T@G", 3), ("QUEUE_GET_NUMS", "T@0@G", 3), ("GROUP_GET_FROM_DISK_NUMS", "T@G", 3),
            ("BROKER_GET_FROM_DISK_NUMS", "DefaultCluster", 3), ("BROKER_GET_NUMS", "DefaultCluster", 3),
        ):  # fmt: skip
            found = await statistic(client, broker, name, key)
            assert found is not None and found["statsMinute"]["sum"] == found["statsDay"]["sum"] == total, name
        latency = await statistic(client, broker, "GROUP_GET_LATENCY", "0@T@G")
        assert latency is not None and 0 <= latency["statsMinute"]["sum"] < 20_000
        behind = await statistic(client, broker, "GROUP_GET_FALL_SIZE", "0@T@G")
        store = broker.services.store
        queue = store.queue("T", 0)
        assert behind is not None and queue is not None
        unit = queue.unit_at(3)
        assert unit is not None and behind["statsMinute"]["sum"] == store.max_physical_offset - unit[0]
        late = await statistic(client, broker, "GROUP_GET_FALL_TIME", "0@T@G")
        assert late is not None and 0 <= late["statsHour"]["sum"] < 60_000
        for key in ("0@T@other", "1@T@G", "x@T@G", "0", "99999999999@T@G"):
            assert await statistic(client, broker, "GROUP_GET_FALL_SIZE", key) is None


def test_counters_of_queues_groups_and_topics_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "COUNTERS_MAX", 3)
    counted = stats.BrokerStats("c", VirtualClock())
    for number in range(10):
        counted.arrived([Arrival(f"T{number}", 0, 1, [0], 0, 7)])
        counted.get((f"g{number}", "T", 0), 2, 20, 0.0)
        counted.send_back(f"g{number}", "T")
    sample(counted)
    assert (counted.put_total.nums, counted.put_total.size, counted.get_total.nums) == (10, 70, 20)
    found = [(name, number) for name in ("GROUP_GET_NUMS", "SNDBCK_PUT_NUMS") for number in range(10)
             if counted.samples.item(name, f"T@g{number}") is not None]  # fmt: skip
    topics = [counted.samples.item("TOPIC_PUT_NUMS", f"T{number}") for number in range(10)]
    assert (len(found), len(topics) - topics.count(None)) == (6, 3)
