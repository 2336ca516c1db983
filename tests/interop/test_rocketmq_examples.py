"""The examples and benchmarks of rocketmq-example, as users of Apache's tutorials start them, with the default settings.

Each example runs in a thread of one JVM per version. What it must do is seen at the broker: messages stored, or consumed by
its group. Maven Central has the examples of 5.5.0 and, of 4.x, those of 4.7.0, which run here with the client of 4.9.4.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import toolchain
from tests.interop.drivers import needed
from tests.interop.servers import Cluster, Pocketmq
from tests.interop.wire import Connection

DEADLINE_S = 120
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m")


class Stores(NamedTuple):
    """A producer: so many messages are added to the topic, at least."""

    example: str
    topic: str
    count: int


class Consumes(NamedTuple):
    """A consumer: its group consumes so many messages of the topic; None: all."""

    example: str
    topic: str
    group: str
    count: int | None = None


PRODUCERS = [
    # These catch the time-outs of a client that has just started beside some load.
    Stores("quickstart.Producer", "TopicTest", 900),
    Stores("simple.Producer", "TopicTest", 110),
    Stores("tracemessage.TraceProducer", "TopicTest", 110),
    Stores("simple.AsyncProducer", "Jodie_topic_1023", 80),
    # These end with an error at a time-out.
    Stores("ordermessage.Producer", "TopicTestjjj", 100),
    Stores("batch.SimpleBatchProducer", "BatchTest", 3),
    Stores("batch.SplitBatchProducer", "BatchTest", 100_000),
    Stores("filter.TagFilterProducer", "TagFilterTest", 60),
    Stores("filter.SqlFilterProducer", "SqlFilterTest", 10),
    Stores("schedule.ScheduledMessageProducer", "TestTopic", 100),
    Stores("schedule.TimerMessageProducer", "TimerTopic", 10),
    Stores("transaction.TransactionProducer", "TopicTest1234", 3),
]
CONSUMERS = [
    Consumes("simple.PushConsumer", "TopicTest", "CID_JODIE_1"),
    Consumes("quickstart.Consumer", "TopicTest", "please_rename_unique_group_name_4"),
    Consumes("ordermessage.Consumer", "TopicTest", "please_rename_unique_group_name_3", 20),  # pauses on purpose
    Consumes("tracemessage.TracePushConsumer", "TopicTest", "ProducerGroupName"),
    Consumes("simple.LitePullConsumerSubscribe", "TopicTest", "lite_pull_consumer_test"),
    Consumes("simple.PullScheduleService", "TopicTest", "GroupName1"),
    Consumes("filter.TagFilterConsumer", "TagFilterTest", "please_rename_unique_group_name"),
    Consumes("schedule.ScheduledMessageConsumer", "TestTopic", "ExampleConsumer"),
    Consumes("schedule.TimerMessageConsumer", "TimerTopic", "TimerMessageConsumerGroup"),
]
BENCHMARKS = [
    Stores("benchmark.Producer -n {namesrv} -t Bench1 -w 1 -s 128 {end}", "Bench1", 500),
    Stores("benchmark.TransactionProducer -n {namesrv} -t Bench3 -w 1", "Bench3", 100),
    Stores("benchmark.BatchProducer -n {namesrv} -t Bench2 -w 1 -b 16", "Bench2", 500),
]
END = {"5.5.0": "-q 2000", "4.9.4": ""}
"""Option with which the first one ends; all others, and this one of 4.x, send at full speed until their JVM ends."""
NOT_IN_4 = ("schedule.", "benchmark.BatchProducer", "simple.PullScheduleService", "tracemessage.TracePushConsumer")
"""Beginnings of the names of examples that 4.x does not have, or that have another topic or group there."""
LEFT_OUT = {
    "simple.OnewayProducer, simple.PopConsumer, simple.PullConsumer": "name server 127.0.0.1:9876 in the code",
    "rpc.*, namespace.*": "name server 127.0.0.1:9876 in the code",
    "openmessaging.*": "name server localhost:9876 in its URL",
    "lmq.*": "needs enableLmq and enableMultiDispatch",
    "filter.SqlFilterConsumer": "needs enablePropertyFilter",
    "simple.AclClient": "needs users",
    "tracemessage.OpenTracing*": "needs a tracing service",
    "operation.*": "waits for its arguments",
    "simple.LitePullConsumerAssign*": "keeps its offsets to itself, and reads a topic that no example makes",
    "broadcast.PushConsumer": "keeps its offsets to itself",
    "simple.RandomAsyncCommit, simple.CachedQueue": "have no main",
    "benchmark.timer.*": "run for minutes",
}
"""Examples that are left out, and why."""


class Examples:
    """Examples that run in one JVM, and the broker that they use."""

    def __init__(self, cluster: Cluster, version: str) -> None:
        self.version, self._namesrv = version, cluster.namesrv_address
        self._log = cluster.folder / "examples.log"
        self._connection = Connection(cluster.broker_address)
        command = ["java", *JAVA, f"-Duser.home={cluster.folder}", f"-Drocketmq.namesrv.addr={self._namesrv}",
                   "-cp", toolchain.example_class_path(version), "ExampleRunner"]  # fmt: skip
        with self._log.open("wb") as log:
            self._java = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def start(self, example: str) -> None:
        assert self._java.stdin is not None
        self._java.stdin.write(f"{example.format(namesrv=self._namesrv, end=END[self.version])}\n".encode())
        self._java.stdin.flush()

    def stored(self, topic: str) -> int:
        return sum(self._connection.max_offset(topic, queue_id) for queue_id in self._queues(topic))

    def consumed(self, group: str, topic: str) -> int:
        return sum(self._connection.consumer_offset(group, topic, queue_id) for queue_id in self._queues(topic))

    def _queues(self, topic: str) -> range:
        return range(int(self._connection.topic_table().get(topic, {}).get("writeQueueNums", 0)))

    def has(self, example: str) -> bool:
        return self.version != "4.9.4" or not example.startswith(NOT_IN_4)

    def wait_for(self, example: str, seen: Callable[[], int], wanted: Callable[[], int]) -> None:
        """Wait until so many messages are seen. An example whose client times out, as beside load, is started again."""
        deadline, name = time.monotonic() + DEADLINE_S, f"org.apache.rocketmq.example.{example.split()[0]}\n"
        failures = 0
        while (count := seen()) < wanted():
            text = self._log.read_text(errors="replace")
            traces = text.split(f"EXAMPLE FAILED: {name}")[:-1]  # each is printed before this line
            if len(traces) > failures:
                failures += 1
                trace = traces[-1].rpartition(f"EXAMPLE TRACE: {name}")[2]
                has_timed_out = "call timeout" in trace or "RemotingTimeoutException" in trace
                assert has_timed_out and failures < 20, f"{example}: {trace[:4000]}"
                self.start(example)
            assert time.monotonic() < deadline, f"{example}: {count} of {wanted()} messages\n{text[-4000:]}"
            time.sleep(0.1)

    def close(self) -> None:
        self._java.kill()
        self._java.wait()
        self._connection.close()


@pytest.fixture(params=["4.9.4", "5.5.0"])
def examples(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Examples]:
    with needed(f"examples of {request.param}"):
        toolchain.example_class_path(request.param)
    cluster = Cluster(tmp_path, Pocketmq())
    try:
        cluster.start_broker()
        running = Examples(cluster, request.param)
        yield running
        running.close()
    finally:
        cluster.close()


def test_examples_and_benchmarks_work_with_the_default_settings(examples: Examples) -> None:
    def run_producer(row: Stores) -> None:
        if examples.has(row.example):
            wanted = examples.stored(row.topic) + row.count
            examples.start(row.example)
            examples.wait_for(row.example, lambda: examples.stored(row.topic), lambda: wanted)

    def wait_for_consumer(row: Consumes) -> None:
        def seen() -> int:
            return examples.consumed(row.group, row.topic)

        examples.wait_for(row.example, seen, lambda: row.count or examples.stored(row.topic))

    for producer in PRODUCERS:
        run_producer(producer)
    consumers = [row for row in CONSUMERS if examples.has(row.example)]
    for consumer in consumers:
        examples.start(consumer.example)
    for consumer in consumers:
        wait_for_consumer(consumer)
    for benchmark in BENCHMARKS:
        run_producer(benchmark)
