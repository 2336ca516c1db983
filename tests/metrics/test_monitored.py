"""A service with metricsPort: liveness, readiness, and a metrics page that another thread serves."""

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pocketmq.metrics import page
from pocketmq.metrics.config import MetricsConfig
from pocketmq.metrics.exposition import Exposition
from pocketmq.metrics.family import Buckets, Family
from pocketmq.metrics.monitored import Monitored
from pocketmq.runtime.lifecycle import StartError
from tests.patience import PATIENCE_S

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def get(monitored, path, accept=""):
    """Return (status, body) of a request, which blocks the calling thread."""
    request = urllib.request.Request(f"{monitored.url}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def got(monitored, path, accept=""):
    return await asyncio.to_thread(get, monitored, path, accept)


class Service:
    def __init__(self, begin=None):
        self.begin = begin or asyncio.Event()
        self.begin.set()
        self.threads = set()
        self.found = []
        self.collected = 0

    async def start(self):
        await self.begin.wait()

    async def stop(self):
        await self.begin.wait()

    def problems(self):
        self.threads.add(threading.get_ident())
        return self.found

    def collecting(self):
        for _ in range(3):
            self.threads.add(threading.get_ident())
            yield
        self.collected += 1
        return self.collected

    def families(self, collected):
        yield Family("x_total", "counter", "Help.", ("topic",), [(('a"\\\n',), collected), (("b",), 2)])
        yield Family("x_seconds", "histogram", "Help.", (), [((), Buckets((0.1, 1.0), (1, 2, 3), 7.5))])


@pytest.fixture
async def running():
    """`await running(service, ...)` -> the started Monitored."""
    started = []

    async def start(service, **how):
        monitored = Monitored(service, MetricsConfig(metrics_port=0), lambda one: [one], **how)
        started.append(monitored)
        await monitored.start()
        return monitored

    yield start
    for monitored in started:
        await monitored.stop()


async def test_nothing_listens_unless_the_port_is_set():
    monitored = Monitored(Service(), MetricsConfig(), lambda one: [one])
    await monitored.start()
    assert monitored.url is None
    await monitored.stop()


async def test_error_names_a_port_that_is_already_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monitored = Monitored(Service(), MetricsConfig(metrics_port=port), lambda one: [one])
        with pytest.raises(StartError, match=f"metricsPort={port}"):
            await monitored.start()
        await monitored.stop()


async def test_service_is_live_but_not_ready_while_it_starts_or_stops():
    service = Service()
    service.begin.clear()
    monitored = Monitored(service, MetricsConfig(metrics_port=0), lambda one: [one])
    starting = asyncio.ensure_future(monitored.start())
    async with asyncio.timeout(PATIENCE_S):
        while monitored.url is None:
            await asyncio.sleep(0.01)
    try:
        assert await got(monitored, "/health/live") == (200, '{"status": "starting"}\n')
        status, body = await got(monitored, "/health/ready")
        assert (status, json.loads(body)["problems"]) == (503, ["the process is starting"])
        assert "x_total" not in (await got(monitored, "/metrics"))[1]
        service.begin.set()
        await starting
        assert await got(monitored, "/health/ready") == (200, '{"status": "ready"}\n')
        service.begin.clear()
        stopping = asyncio.ensure_future(monitored.stop())
        await asyncio.sleep(0)
        status, body = await got(monitored, "/health/ready")
        assert (status, json.loads(body)["problems"]) == (503, ["the process is stopping"])
        assert (await got(monitored, "/health/live"))[0] == 200
    finally:
        service.begin.set()
    await stopping


async def test_readiness_lists_the_problems_of_the_service(running):
    service = Service()
    monitored = await running(service)
    service.found = ["the disk is full"]
    status, body = await got(monitored, "/health/ready")
    assert (status, json.loads(body)) == (503, {"status": "not ready", "problems": ["the disk is full"]})
    assert (await got(monitored, "/health/live"))[0] == 200


async def test_stuck_event_loop_is_neither_live_nor_ready_and_shows_no_old_metrics(running, monkeypatch):
    monkeypatch.setattr(page, "COLLECT_MAX_S", 0.2)
    monitored = await running(Service(), stuck_s=0.5)
    deadline_s = time.monotonic() + PATIENCE_S
    # Each request blocks the event loop, so that it misses its beats.
    while (live := get(monitored, "/health/live"))[0] == 200:
        assert time.monotonic() < deadline_s
    assert json.loads(live[1])["status"] == "stuck"
    status, body = get(monitored, "/health/ready")
    assert status == 503 and "event loop gave no answer within 2 s" in body
    _, text = get(monitored, "/metrics")
    assert "x_total" not in text and "pocketmq_event_loop_silence_seconds" in text
    async with asyncio.timeout(PATIENCE_S):
        while (await got(monitored, "/health/live"))[0] != 200:
            await asyncio.sleep(0.05)
        while "x_total" not in (await got(monitored, "/metrics"))[1]:  # collected in time again
            await asyncio.sleep(0.05)


async def test_both_page_formats_are_valid_and_show_the_same_metrics(running, monkeypatch):
    monkeypatch.setattr(page, "LOOP_SHARE", 0.0001)  # both pages come from one collection
    monitored = await running(Service())
    _, open_metrics = await got(monitored, "/metrics", OPEN_METRICS)
    families = {family.name: family for family in text_string_to_metric_families(open_metrics)}
    assert {sample.labels["topic"]: sample.value for sample in families["x"].samples} == {'a"\\\n': 1, "b": 2}
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in families["x_seconds"].samples}
    assert samples == {
        ("x_seconds_bucket", "0.1"): 1, ("x_seconds_bucket", "1.0"): 3, ("x_seconds_bucket", "+Inf"): 6,
        ("x_seconds_count", None): 6, ("x_seconds_sum", None): 7.5,
    }  # fmt: skip
    assert {"process_cpu_seconds", "python_info", "pocketmq_event_loop_lag_seconds"} <= families.keys()
    _, plain = await got(monitored, "/metrics")
    assert 'x_total{topic="b"} 2.0\n' in plain and "# EOF" not in plain


@pytest.mark.parametrize("accept", ["", OPEN_METRICS], ids=["plain", "openmetrics"])
def test_lines_equal_those_of_prometheus_client(accept):
    exposition = Exposition(accept)
    values = [0, 1, True, 999_999, 1_000_000, -3, 2**53, 0.25, 1e-7, 1e21, 123456.789, float("inf"), float("nan")]
    for turn in range(3):
        rows = [((f'a"\\{number}\n', "grü"), value) for number, value in enumerate(values[turn:] + values[:turn])]
        gauge, metric = Family("x", "gauge", 'Help "x" \\.', ("topic", "alpha"), rows), Metric("x", 'Help "x" \\.', "gauge")
        for (topic, alpha), value in rows:
            metric.add_sample("x", {"topic": topic, "alpha": alpha}, value)
        registry = SimpleNamespace(collect=lambda metric=metric: [metric])
        assert b"".join(exposition.chunks(gauge)) == exposition.encoded(registry)


async def test_event_loop_lag_is_measured(running):
    monitored = await running(Service())
    time.sleep(0.8)  # blocks the event loop for longer than the time between two beats
    async with asyncio.timeout(PATIENCE_S):
        while lag_sum_s(await got(monitored, "/metrics")) <= 0.3:
            await asyncio.sleep(0.05)


def lag_sum_s(answer):
    (line,) = (line for line in answer[1].splitlines() if line.startswith("pocketmq_event_loop_lag_seconds_sum"))
    return float(line.split()[1])


async def test_service_is_read_only_in_the_thread_of_its_event_loop(running):
    service = Service()
    monitored = await running(service)
    assert (await got(monitored, "/metrics"))[0] == (await got(monitored, "/health/ready"))[0] == 200
    assert service.threads == {threading.get_ident()}


async def test_frequent_scrapes_share_one_collection(running, monkeypatch):
    monkeypatch.setattr(page, "LOOP_SHARE", 0.000001)  # one collection is reused for longer than the test takes
    service = Service()
    monitored = await running(service)
    pages = await asyncio.gather(*(got(monitored, "/metrics") for _ in range(8)))
    assert {status for status, _ in pages} == {200}
    assert service.collected == 1
