"""Broker names as stores tell them, and paths of several stores in one text."""

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq import spark_analytics
from pocketmq.store.offline.broker_names import broker_name
from pocketmq.store.offline.places import separate_paths
from tests.spark_analytics.spark_logs import LogBuilder

OWN = {"perm": 7, "readQueueNums": 1, "writeQueueNums": 1}
CLUSTER = {"perm": 7, "readQueueNums": 16, "writeQueueNums": 16}
USUAL = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
TEMPLATE = {"perm": 7, "readQueueNums": 1, "writeQueueNums": 1}


def store_with(folder: Path, topics: dict[str, Any], identity: str = "") -> str:
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    if identity:
        (folder / "brokerIdentity").write_text(identity)
    return str(folder)


@pytest.mark.parametrize("name", ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"])
def test_stores_of_apache_brokers_tell_their_names(golden_stores: dict[str, Path], name: str) -> None:
    assert broker_name(str(golden_stores[name])) == ("golden-v5" if name.startswith("v5") else "golden-a")


@pytest.mark.parametrize(
    ("topics", "identity", "expected"),
    [
        ({"T": USUAL, "mine": OWN, "Cluster": CLUSTER, "TBW102": TEMPLATE}, "", "mine"),
        ({"mine": OWN, "One": OWN, "One_REPLY_TOPIC": USUAL}, "", "mine"),
        ({"mine": OWN, "old": OWN, "rmq_sys_SYNC_BROKER_MEMBER_mine": OWN | {"perm": 1}}, "", "mine"),
        ({"mine": OWN, "old": OWN}, "", "broker-x"),
        ({"mine": OWN}, "Cluster;other;2", "other"),
        ({"mine": OWN}, "damaged", "mine"),
        ({"T": USUAL}, "", "broker-x"),
        ({"T": 7, "U": {"perm": "7"}, "V": None}, "", "broker-x"),
    ],
)
def test_name_comes_from_identity_topics_or_folder(
    tmp_path: Path, topics: dict[str, Any], identity: str, expected: str
) -> None:
    assert broker_name(store_with(tmp_path / "broker-x" / "store", topics, identity)) == expected


def test_unreadable_documents_leave_the_folder(tmp_path: Path) -> None:
    root = store_with(tmp_path / "broker-x", {})
    (tmp_path / "broker-x" / "config" / "topics.json").write_text("{{{")
    assert broker_name(root) == "broker-x"
    assert broker_name("/") == ""


def test_a_log_without_its_store_is_named_by_its_folder(tmp_path: Path) -> None:
    log = LogBuilder(2048)
    log.append()
    names = ("broker-a", "broker-b")
    for name in names:
        log.write(tmp_path / name).rename(tmp_path / f"{name}-")
        (tmp_path / f"{name}-" / "commitlog").rename(tmp_path / name)
    stores = [tmp_path / name for name in names]
    table = spark_analytics.arrow(stores, "brokerName", drop_replicas=False).read_all()
    assert table.to_pydict() == {"brokerName": list(names)}
    given = {str(stores[0]): "x"}
    table = spark_analytics.arrow(stores, "brokerName", drop_replicas=False, broker_names=given).read_all()
    assert table.to_pydict() == {"brokerName": ["x", "broker-b"]}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("/a", ["/a"]),
        ("/a, /b,s3://c/d", ["/a", "/b", "s3://c/d"]),
        ("/data/broker-{a,b}/store", ["/data/broker-a/store", "/data/broker-b/store"]),
        ("/{a,b{1,2}},/c", ["/a", "/a", "/b1", "/b2", "/c"]),
        ("/{a}/b", ["/{a}/b"]),
        ("/a,", ["/a", ""]),
    ],
)
def test_commas_separate_paths(text: str, paths: list[str]) -> None:
    assert sorted(set(separate_paths(text))) == sorted(set(paths))


def test_a_path_with_a_comma_is_one_path_if_it_exists(tmp_path: Path) -> None:
    log = LogBuilder(2048)
    log.append()
    store = log.write(tmp_path / "a,{b,c}")
    assert separate_paths(str(store)) == [str(store)]
    assert spark_analytics.arrow(store, "topic").read_all().num_rows == 1
