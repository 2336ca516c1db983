"""The tours of examples/, as users start them: each kind of message prints a line, which tells what was seen.

One broker serves all programs in turn; the groups of one have consumed everything before the next starts.
"""

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.drivers import needed
from tests.interop.servers import JAVA_OPTIONS, Cluster, Pocketmq
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

# A check that finds no producer is repeated soon: a Go client sends its heartbeat some time after a send.
SETTINGS = {"enablePropertyFilter": "true", "traceTopicEnable": "true", "transactionCheckInterval": "5000"}
THREE = "[message 0, message 1, message 2]"
LINES = {
    "sync": f"3 sent, consumed {THREE}",
    "async": f"3 sent and answered, consumed {THREE}",
    "oneway": f"3 sent without an answer, consumed {THREE}",
    "ordered": "order 0 [created, paid, shipped], order 1 [created, paid, shipped]",
    "delay-level": "level 1, consumed after a second",
    "delay-time": "due in 700 ms, consumed then",
    "recall": "2 sent, 1 recalled, consumed [kept]",
    "batch": "30 sent in 4 requests, 30 consumed",
    "tag": "3 sent, consumed by red || blue: [a blue one, a red one]",
    "sql92": "4 sent, consumed by region = 'EU' AND price > 100: [EU 120]",
    "transaction": "3 sent, consumed [COMMIT_MESSAGE, UNKNOW]",
    "broadcast": f"3 sent, consumed by one {THREE}, by the other {THREE}",
    "request-reply": "asked 2 + 3, answered 5",
    "trace": "of the message: [Pub, SubAfter, SubBefore]",
    "pop": f"3 sent, popped {THREE}",
}
TIMED_OUT = re.compile(r"timeout|RemotingConnectException|RemotingTooMuchRequestException|tour\.Trace\.events")
"""The last one: a client drops what it cannot send of its trace in time, and only logs that."""
NOT_IN_GO = {"recall", "pop"}
NOT_IN_4_4 = {"delay-time": "DelayTime", "recall": "Recall", "request-reply": "RequestReply", "pop": "Pop"}
LOST_IN_4_4 = {"trace"}  # a consumer that is shut down loses the last records of its trace
FASTER = "-Drocketmq.client.rebalance.minInterval=50"
"""Clients of 5.x wait for this time before a new consumer gets its queues: a second by default."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("tours"), Pocketmq(), **SETTINGS)
    try:
        running.start_broker()
        yield running
    finally:
        running.close()


def lines(command: list[str | Path], home: Path, attempts: int = 6, **environment: str) -> dict[str, str]:
    """Run a program, and return its lines by their first word. If its client times out, as beside load, it is run again."""
    done = subprocess.run(
        command, env={**os.environ, "HOME": str(home), **environment}, cwd=home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=3 * PATIENCE_S,
    )  # fmt: skip
    if done.returncode != 0 and attempts > 1 and TIMED_OUT.search(done.stderr):
        return lines(command, home, attempts - 1, **environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def java(class_path: str, main_class: str, home: Path) -> list[str | Path]:
    return ["java", *JAVA_OPTIONS, "-Xmx256m", FASTER, f"-Duser.home={home}", "-cp", class_path, main_class]


def create_topics(cluster: Cluster, *topics: str) -> None:
    """Create topics whose consumers start before the first message."""
    with Connection(cluster.broker_address) as connection:
        for topic in topics:
            connection.create_topic(topic, 4)


def lines_without(kinds: Collection[str]) -> Mapping[str, str]:
    return {kind: line for kind, line in LINES.items() if kind not in kinds}


def test_java_tour(cluster: Cluster, tmp_path: Path) -> None:
    with needed("Java tour"):
        class_path = toolchain.project_class_path(toolchain.EXAMPLES / "java")
    assert lines([*java(class_path, "tour.Tour", tmp_path), cluster.namesrv_address], tmp_path) == LINES


def test_go_tour(cluster: Cluster, tmp_path: Path) -> None:
    with needed("Go tour"):
        program = toolchain.project_binary(toolchain.EXAMPLES / "go")
    assert lines([program, cluster.namesrv_address], tmp_path) == lines_without(NOT_IN_GO)


def test_java_tour_with_client_4_4_0(cluster: Cluster, tmp_path: Path) -> None:
    """The same classes with the client of the tutorial, without the kinds that it lacks."""
    with needed("Java client 4.4.0"):
        class_path = f"{older_tour(tmp_path)}:{toolchain.jars('4.4.0')}/*"
    expected = lines_without({*NOT_IN_4_4, *LOST_IN_4_4})
    assert lines([*java(class_path, "tour.Tour", tmp_path), cluster.namesrv_address], tmp_path) == expected


def older_tour(folder: Path) -> Path:
    """Return the classes of the tour, compiled with 4.4.0: a package had another name, and some kinds did not exist."""
    sources = []
    left_out = "|".join([*NOT_IN_4_4, *LOST_IN_4_4])
    for path in sorted((toolchain.EXAMPLES / "java").rglob("*.java")):
        if path.stem in NOT_IN_4_4.values():
            continue
        text = path.read_text().replace(".remoting.protocol.heartbeat.", ".common.protocol.heartbeat.")
        sources.append(folder / path.name)
        sources[-1].write_text(re.sub(rf'^ +KINDS\.put\("({left_out})", \w+::run\);\n', "", text, flags=re.MULTILINE))
    return toolchain.compiled("4.4.0", toolchain.jars("4.4.0"), sources, "tour")


def test_spring(cluster: Cluster, tmp_path: Path) -> None:
    with needed("Spring"):
        class_path = toolchain.project_class_path(toolchain.EXAMPLES / "spring")
    create_topics(cluster, "SpringPlain", "SpringOrdered", "SpringDelayed", "SpringTransaction", "SpringRequest")
    command = [*java(class_path, "tour.Application", tmp_path), f"--rocketmq.name-server={cluster.namesrv_address}"]
    assert lines(command, tmp_path) == {
        "plain": "3 sent, consumed by red || blue: first, second",
        "ordered": "order-7 [created, paid, shipped]",
        "delayed": "consumed [500 ms later, level 1 later]",
        "transaction": "3 sent, consumed [COMMIT, UNKNOWN]",
        "request-reply": "asked 2 + 3, answered 5",
    }


def test_log_appenders(cluster: Cluster, tmp_path: Path) -> None:
    with needed("log appenders"):
        class_path = toolchain.project_class_path(toolchain.EXAMPLES / "logging")
    create_topics(cluster, "LogTopic")
    came = lines(java(class_path, "tour.Logging", tmp_path), tmp_path, NAMESRV_ADDR=cluster.namesrv_address)
    assert came == {
        "log4j2": "[ERROR shop: payment of order 8 refused]",
        "logback": "[INFO shop: order 7 paid, WARN shop.stock: nothing left of tea]",
    }


def test_open_messaging(cluster: Cluster, tmp_path: Path) -> None:
    with needed("OpenMessaging"):
        class_path = toolchain.project_class_path(toolchain.EXAMPLES / "openmessaging")
    command = [*java(class_path, "tour.OpenMessaging", tmp_path), cluster.namesrv_address]
    assert lines(command, tmp_path, OMS_RMQ_DIRECT_NAME_SRV="true") == {
        "producer": "3 sent",
        "push consumer": "consumed [async, oneway, sync]",
        "pull consumer": "received [async, oneway, sync]",
    }
