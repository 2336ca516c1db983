"""Metrics that a broker and its name server export, read from a live port."""

import asyncio
import re
from pathlib import Path

import pytest

from pocketmq.broker.metrics import names
from pocketmq.broker.metrics.clients import version_label
from pocketmq.broker.metrics.limited import OtherTotals
from pocketmq.broker.tables.topic_config import TopicConfig
from pocketmq.client.consumer import PushConsumer
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.metrics.family import NODE_LABELS, OTHER, Declared
from pocketmq.namesrv import namesrv_source
from pocketmq.proxy import proxy_source
from pocketmq.store.format.message import Arrival
from tests.broker.running import running_broker, running_namesrv, until
from tests.metrics.metric_rules import problems_of
from tests.metrics.scraped import families_of, monitored, text_of, value_of
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
DECLARED = [value for value in vars(names).values() if isinstance(value, Declared)]
PROXY_DECLARED = [value for value in vars(proxy_source).values() if isinstance(value, Declared)]
NAMESRV_DECLARED = [value for value in vars(namesrv_source).values() if isinstance(value, Declared)]
GOLDEN = {
    name: (kind, set(labels.split(",")))
    for name, kind, labels in map(str.split, (ROOT / "tests/golden/metrics/apache_5_5_0.txt").read_text().splitlines()[1:])
}


@pytest.fixture
async def servers():
    async with running_namesrv() as namesrv, running_broker(namesrv) as broker:
        yield namesrv, broker


async def test_messages_groups_and_delayed_messages_are_counted(servers):
    namesrv, broker = servers
    address = f"127.0.0.1:{namesrv.port}"
    taken = asyncio.Event()
    async with Producer(address) as producer, monitored(namesrv=namesrv, broker=broker) as service:
        for _ in range(5):
            await producer.send(Message("Orders", b"12345"))
        await producer.send(Message("Orders", b"later", properties={"TIMER_DELAY_MS": "7200000"}))
        consumer = PushConsumer(address, "billing", "first")
        consumer.subscribe("Orders", lambda message: taken.set())
        async with consumer:
            await asyncio.wait_for(taken.wait(), PATIENCE_S)
            families = families_of(await text_of(service))
            labels = {"consumer_group": "billing", "language": "python", "version": "v4_9_4", "consume_mode": "push"}
            assert value_of(families, "rocketmq_consumer_connections", **labels) == 1
        await until(lambda: sum(broker.services.offsets.queues("billing", "Orders").values()) == 5)
        await producer.send(Message("Orders", b"one more"))
        families = families_of(await text_of(service))
    assert value_of(families, "rocketmq_messages_in_total", topic="Orders", is_system="false") == 6
    assert value_of(families, "rocketmq_messages_in_total", topic="rmq_sys_wheel_timer", message_type="delay") == 1
    assert value_of(families, "rocketmq_throughput_in_total", topic="Orders") > 6 * 5
    assert value_of(families, "rocketmq_messages_out_total", topic="Orders", consumer_group="billing") == 5
    pair = {"topic": "Orders", "consumer_group": "billing", "is_retry": "false"}
    assert value_of(families, "rocketmq_consumer_lag_messages", **pair) == 1
    assert value_of(families, "rocketmq_consumer_ready_messages", **pair) == 1
    assert value_of(families, "rocketmq_consumer_inflight_messages", **pair) == 0
    assert 0 <= value_of(families, "rocketmq_consumer_lag_latency_milliseconds", **pair) < 60_000
    assert value_of(families, "rocketmq_timing_messages", topic="Orders") == 1
    assert value_of(families, "rocketmq_timer_message_snapshot", timer_bound_s="14400") == 1
    hours = {sample.labels["due_hour"]: sample.value for sample in families["pocketmq_delayed_pending_messages"].samples}
    assert sum(hours.values()) == hours["2"] + hours["1"] + hours["3"] == 1
    assert value_of(families, "rocketmq_storage_size_bytes") == broker.services.store.max_physical_offset
    assert value_of(families, "pocketmq_ready") == 1
    assert value_of(families, "pocketmq_name_server_registered", address=address) == 1
    assert value_of(families, "pocketmq_namesrv_brokers", broker_cluster="DefaultCluster") == 1


async def test_messages_with_a_delay_level_count_as_pending(servers):
    namesrv, broker = servers
    async with Producer(f"127.0.0.1:{namesrv.port}") as producer, monitored(broker=broker) as service:
        for _ in range(3):
            await producer.send(Message("Orders", b"x", delay_level=18))  # two hours
        families = families_of(await text_of(service))
    hours = {sample.labels["due_hour"]: sample.value for sample in families["pocketmq_delayed_pending_messages"].samples}
    assert sum(hours.values()) == hours["1"] + hours["2"] + hours["3"] == 3


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
async def test_metrics_page_obeys_the_rules_of_promtool(servers, accept):
    namesrv, broker = servers
    async with Producer(f"127.0.0.1:{namesrv.port}") as producer, monitored(namesrv=namesrv, broker=broker) as service:
        await producer.send(Message("Orders", b"x"))
        found = problems_of(await text_of(service, accept))
    # These names break the rule on units, but RocketMQ and its dashboards use them.
    theirs = {name for name in GOLDEN if name.endswith("_milliseconds")}
    assert [problem for name, problem in found if name not in theirs] == []


async def test_metrics_named_as_in_rocketmq_have_its_types_and_labels(servers):
    shared = {declared.name: declared for declared in DECLARED if declared.name.startswith("rocketmq_")}
    # Missing in the recording, because they need failed deliveries and a producer that sends heartbeats.
    assert shared.keys() - GOLDEN.keys() == {"rocketmq_send_to_dlq_messages_total", "rocketmq_producer_connections"}
    assert len(shared.keys() & GOLDEN.keys()) > 20
    for name in shared.keys() & GOLDEN.keys():
        assert (shared[name].kind, {*NODE_LABELS, *shared[name].labels}) == GOLDEN[name], name


def table(declared):
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |" for one in declared
    ]
    return "\n".join(["| name | type | further labels | meaning |", "|---|---|---|---|", *rows])


@pytest.mark.parametrize(
    ("section", "declared"), [("broker", DECLARED), ("namesrv", NAMESRV_DECLARED), ("mqproxy", PROXY_DECLARED)]
)
def test_operating_page_documents_every_metric(section, declared):
    text = (ROOT / "docs" / "operating.md").read_text()
    assert text.partition(f"<!-- {section} -->\n")[2].partition("\n<!-- end -->")[0] == table(declared)


async def test_every_exported_metric_is_documented_with_its_labels(servers):
    namesrv, broker = servers
    async with Producer(f"127.0.0.1:{namesrv.port}") as producer, monitored(namesrv=namesrv, broker=broker) as service:
        await producer.send(Message("Orders", b"x"))
        families = families_of(await text_of(service))
    text = (ROOT / "docs" / "operating.md").read_text()
    rows = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", text, re.MULTILINE)
    }
    for name, family in families.items():
        if name.startswith(("process_", "python_")):
            continue
        labels = {label for sample in family.samples for label in sample.labels} - {"le", *NODE_LABELS}
        assert name in rows and (rows[name][0], labels) == (family.type, rows[name][1] if family.samples else set()), name
    assert len(families) > 40


async def test_ten_thousand_topics_have_a_limited_number_of_series(servers):
    _, broker = servers
    services, topics = broker.services, [f"T{number}" for number in range(10_000)]
    services.config.metrics_topics_max = 100
    services.topics.update(*(TopicConfig(topic) for topic in topics))
    services.stats.arrived([Arrival(topic, queue, 2, [0] * 2, 0, 100) for topic in topics for queue in range(4)])
    for topic in topics:
        services.offsets.commit("billing", topic, 0, 0)
        services.stats.get(("billing", topic, 0), 1, 50, took_s=0.0)
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with monitored(broker=broker) as service:
        counting = asyncio.ensure_future(count_turns())
        first = await text_of(service)
        counting.cancel()
        services.stats.arrived([Arrival(topic, 0, 3, [0], 0, 50) for topic in topics])
        second = families_of(await text_of(service))
    assert turns > 20  # the event loop kept running while its tables were copied
    families = families_of(first)
    assert len(families["rocketmq_messages_in_total"].samples) == 101
    assert len(families["rocketmq_messages_out_total"].samples) == 101
    assert len(families["rocketmq_consumer_lag_messages"].samples) <= 101
    assert len(first.splitlines()) < 3000
    assert value_of(families, "rocketmq_messages_in_total", topic=OTHER) == 9_900 * 8
    assert value_of(families, "rocketmq_messages_out_total", topic=OTHER, consumer_group=OTHER) == 9_900
    own = {sample.labels["topic"] for sample in families["rocketmq_messages_in_total"].samples}
    assert own == {sample.labels["topic"] for sample in second["rocketmq_messages_in_total"].samples}
    assert value_of(second, "rocketmq_messages_in_total", topic=OTHER) == 9_900 * 9


def test_totals_of_topics_beyond_the_limit_never_decrease():
    others = OtherTotals(1)
    others.add("a", (5,))
    others.add("b", (7,))
    others.keep(["b"])  # a is deleted
    others.add("b", (8,))
    assert others.totals == [13]
    others.keep(["a", "b"])
    others.add("a", (1,))  # a exists again
    others.add("b", (2,))  # b was deleted and created in between
    assert others.totals == [16]


@pytest.mark.parametrize(
    ("ordinal", "label"),
    [(401, "v4_9_4"), (212, "v4_0_0_snapshot"), (513, "v5_5_0"), (137, "v3"), (612, "unknown"), (-1, "unknown")],
)
def test_client_versions_are_named_as_in_java(ordinal, label):
    assert version_label(ordinal) == label


async def test_a_broker_is_ready_only_if_a_send_would_succeed():
    async with running_namesrv() as namesrv, running_broker(namesrv) as broker, monitored(broker=broker) as service:
        source = service._page.sources[0]
        assert source.problems() == []
        broker.services.store.commit_log.refuse("disk", "the disk is full")
        broker.services.config.broker_permission = 4
        assert source.problems() == ["broker b: the disk is full", "broker b: brokerPermission=4 forbids sends"]
        broker.services.store.commit_log.refuse("disk", None)
        broker.services.config.broker_permission = 6
        await namesrv.stop()
        async with asyncio.timeout(PATIENCE_S):
            while not (problems := source.problems()):
                await asyncio.sleep(0.05)
        assert problems == [f"broker b: it is registered with none of its name servers (127.0.0.1:{namesrv.port})"]
