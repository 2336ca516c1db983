"""gRPC clients of 5.x through Apache's proxy, which translates to remoting for PocketMQ's servers."""

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.conftest import need_java
from tests.interop.drivers import toolchain_missing
from tests.interop.servers import JAVA_OPTIONS, Cluster, Pocketmq, start_proxy
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

TOPICS = {"GrpcNormal": "NORMAL", "GrpcOrdered": "FIFO", "GrpcDelayed": "DELAY", "GrpcTransactional": "TRANSACTION"}
WANTED = {
    "all": [("m0", 1), ("m1", 1), ("m1", 2), ("m2", 1)],
    "by-tag": [("m0", 1)],
    "by-sql": [("m2", 1)],
    "simple": [("m0", 1), ("m1", 1), ("m2", 1)],
    "in-order": [("o0", 1), ("o1", 1), ("o1", 2), ("o2", 1), ("o3", 1)],
    "later": [("in 2 s", 1)],
    "decided": [("asked for", 1), ("committed", 1)],
}
"""Group -> bodies and delivery attempts."""
DELAY_MS, LATE_MS_MAX = 2000, 10_000
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster whose broker checks open transactions early."""
    need_java()
    config = {
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 1000,
        "transactionCheckMax": 60,
        "enablePropertyFilter": "true",
    }
    return Cluster(tmp_path / "servers", Pocketmq(), **config)


def test_every_kind_of_message_by_grpc(cluster: Cluster, tmp_path: Path) -> None:
    proxy = None
    try:
        cluster.start_broker()
        with Connection(cluster.broker_address) as connection:
            for topic, kind in TOPICS.items():
                connection.create_topic(topic, 1, attributes=f"+message.type={kind}")
            group = b'{"groupName":"in-order","consumeMessageOrderly":true}'
            connection.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        proxy, address = start_proxy(tmp_path / "proxy", cluster.namesrv_address)
        rows_wanted = sum(map(len, WANTED.values()))
        command = ["java", *JAVA_OPTIONS, f"-Duser.home={tmp_path}", "-Xmx256m", "-cp", toolchain.grpc_class_path(),
                   "GrpcClient", address, str(rows_wanted), f"{PATIENCE_S:.0f}", *TOPICS]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=tmp_path)
    except toolchain.ToolchainMissing as missing:
        toolchain_missing(f"Apache's proxy: {missing}")
    finally:
        if proxy:
            proxy.kill()  # it takes 30 s to stop
        cluster.close()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    waited_ms: dict[str, int] = {}
    for line in done.stdout.splitlines():
        if line.startswith("ROW\t"):
            _, group_name, body, attempt, waited = line.split("\t")
            found[group_name].append((body, int(attempt)))
            waited_ms[body] = int(waited)
    assert {name: rows if name == "in-order" else sorted(rows) for name, rows in found.items()} == WANTED, done.stderr[
        -3000:
    ]
    assert 0 <= waited_ms["in 2 s"] - DELAY_MS <= LATE_MS_MAX
