"""The Grafana board and the alert rules in deploy/: every metric and label in their queries exists on live pages."""

import json
import re
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from pocketmq.broker.clients.client_registry import ClientChannelInfo
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.store.format.message import Arrival
from tests.broker.running import running_broker, running_namesrv, until
from tests.metrics.scraped import families_of, monitored, text_of

DEPLOY = Path(__file__).parents[2] / "deploy"
BY_PROMETHEUS = {"instance", "job"}
"""Labels that Prometheus adds to each series."""
FUNCTIONS = {"rate", "increase", "histogram_quantile", "sum", "max", "topk", "time", "label_values"}
WORDS = {"by", "on", "unless", "and"}


def board():
    return json.loads((DEPLOY / "grafana-pocketmq.json").read_text())


def rules():
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    return group["rules"]


def queries():
    """Yield (where, query) for all queries in deploy/."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for variable in board()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


def parsed(query):
    """Return metric name -> labels in its selectors, and the labels that the query groups, matches or lists."""
    text = re.sub(r"\[[^\]]*\]", "", query)
    named = {label for part in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", text) for label in re.findall(r"\w+", part)}
    text = re.sub(r"\b(?:by|on) ?\([^)]*\)", "", text)
    if (variable := re.fullmatch(r"label_values\((.*), (\w+)\)", text)) is not None:
        text, named = variable[1], {variable[2]}
    selectors = re.findall(r"(\w+)\{([^}]*)\}", text)
    selected = {name: set() for name in re.findall(r"\b[a-z_]\w*", re.sub(r"\{[^}]*\}", "", text))}
    selected = {name: labels for name, labels in selected.items() if name not in FUNCTIONS | WORDS}
    for name, selector in selectors:
        selected[name] |= set(re.findall(r"(\w+) ?[=!]", re.sub(r'"[^"]*"', "", selector)))
    return selected, named


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live():
    """Yield sample name -> its labels, read from the pages of a name server, a master and its slave."""
    async with (
        running_namesrv() as namesrv,
        running_broker(namesrv) as master,
        running_broker(namesrv, store={"broker_role": "SLAVE"}, broker_id=1) as slave,
        Producer(f"127.0.0.1:{namesrv.port}") as producer,
        monitored(namesrv=namesrv, broker=master) as of_master,
        monitored(broker=slave) as of_slave,
    ):
        await producer.send(Message("Orders", b"x"))
        await producer.send(Message("Orders", b"x", properties={"TIMER_DELAY_MS": "3600000"}))
        services = master.services
        services.stats.arrived([Arrival("%DLQ%billing", 0, 1, [0], 0, 50)])
        services.stats.get(("billing", "Orders", 0), 1, 50, took_s=0.0)
        services.offsets.commit("billing", "Orders", 0, 0)
        services.clients.register_producer("pg", ClientChannelInfo(await channel_of(master), "client", "JAVA", 401))
        services.clients.register_consumer(
            consumer_data("billing"), ClientChannelInfo(await channel_of(master), "client", "JAVA", 401)
        )
        await until(lambda: services.ha.replicas() and slave.services.ha_client.is_connected)
        found = {"up": set(BY_PROMETHEUS)}
        for page in (of_master, of_slave):
            for family in families_of(await text_of(page)).values():
                for sample in family.samples:
                    found.setdefault(sample.name, set()).update(sample.labels, BY_PROMETHEUS)
        yield found


async def channel_of(broker):
    """Return any connection of the broker; wait until it has one."""
    channels = broker._server.channels.open
    await until(lambda: len(channels) > 0)
    return next(iter(channels))


def consumer_data(group):
    from pocketmq.remoting.bodies import ConsumerData

    return ConsumerData(group_name=group)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_metric_and_label_in_a_query_exists(live):
    wrong, count = [], 0
    for where, query in queries():
        selected, named = parsed(query)
        assert selected, (where, query)
        for name, labels in selected.items():
            count += 1
            wrong += [f"{where}: no metric {name}"] * (name not in live)
            wrong += [f"{where}: {name} has no label {label}" for label in labels - live.get(name, labels)]
        known = set().union(*(live.get(name, set()) for name in selected))
        wrong += [f"{where}: no label {label}" for label in named - known]
    assert wrong == []
    assert count > 50


@pytest.mark.asyncio(loop_scope="module")
async def test_labels_in_legends_and_texts_exist(live):
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            selected, named = parsed(target["expr"])
            known = named or set().union(*(live[name] for name in selected))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, panel["title"]
    for rule in rules():
        selected, named = parsed(rule["expr"])
        is_summed = " by (" in rule["expr"]
        known = named if is_summed else set().union(*(live[name] for name in selected))
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= known, rule["alert"]


def test_alerts_have_a_severity_and_a_summary():
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 10
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info") and rule["annotations"]["summary"]


def test_panels_do_not_overlap():
    places = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & cells and at["x"] + at["w"] <= 24
        places |= cells


@pytest.mark.parametrize(
    ("query", "selected", "named"),
    [
        ('sum by (le, a) (rate(x_bucket{b="1", c!~"d"}[5m])) > 1', {"x_bucket": {"b", "c"}}, {"le", "a"}),
        ("x unless on (i) y", {"x": set(), "y": set()}, {"i"}),
        ('label_values(x{cluster=~"$cluster"}, node_id)', {"x": {"cluster"}}, {"node_id"}),
    ],
)
def test_metrics_and_labels_are_found_in_queries(query, selected, named):
    assert parsed(query) == (selected, named)
