"""The cases: topic, group and expected rows of each, and the tests of those that are more than one run of a driver."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.grpc.clients import Client, environment
from tests.interop.grpc.fronts import Front
from tests.interop.grpc.runs import Run
from tests.interop.mqadmin import Mqadmin
from tests.interop.patience import wait
from tests.interop.wire import GET_CONSUMER_CONNECTION_LIST, Connection, Record
from tests.patience import PATIENCE_S

QUEUES = 4
GET_ROUTE = 105
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
DELAY_MS, INVISIBLE_MS, LATE_MS_MAX = 2000, 10_000, 20_000
HELD = 5
TAGS = "aba"


class Bench:
    """A topic and a group of their own, and the runs of the client's driver with them."""

    def __init__(self, client: Client, front: Front, case: str, folder: Path) -> None:
        self.client, self.front, self.case, self.folder = client, front, case, folder
        self.command = client.command(folder)
        self._runs: list[Run] = []
        suffix = f"{case}-{client.name}-{uuid.uuid4().hex[:6]}"
        self.topic, self.group = suffix, f"group-{suffix}"
        self.connection = Connection(front.cluster.broker_address, PATIENCE_S)
        self.connection.create_topic(self.topic, QUEUES, attributes=f"+message.type={CASES[case].kind}")
        with Connection(front.cluster.namesrv_address) as names:  # Apache's broker registers a topic after its answer
            wait(lambda: names.call(GET_ROUTE, {"topic": self.topic}).code == 0, "the topic's route", PATIENCE_S)
        settings = {"groupName": self.group, **CASES[case].group, **client.groups.get(case, {})}
        self.connection.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(settings).encode())

    def start(self, driver_case: str = "", **options: object) -> Run:
        """Start the driver, by default with the case of the bench."""
        words = [self.front.endpoint, driver_case or self.case, self.topic, self.group]
        pairs = {"wait_s": round(PATIENCE_S), **options}
        folder = self.folder / f"run-{len(self._runs)}"
        run = Run(
            [*self.command, *words, *(f"{key}={value}" for key, value in pairs.items())],
            folder,
            environment(self.client, folder),
        )
        self._runs.append(run)
        return run

    def finished(self, driver_case: str = "", **options: object) -> Run:
        run = self.start(driver_case, **options)
        run.finish()
        return run

    def stored(self, topic: str = "") -> list[Record]:
        """Return the messages of a topic, by default the bench's, read by remoting."""
        topic = topic or self.topic
        queues = self.connection.topic_table().get(topic, {}).get("readQueueNums", 0)
        return [found for queue in range(queues) for found in self.connection.read_queue(topic, queue)]

    def wait_dead(self, body: bytes) -> None:
        """Wait until the dead letters of the group are one message with this body."""
        topic = f"%DLQ%{self.group}"
        wait(lambda: [record.body for record in self.stored(topic)] == [body], f"{body!r} in {topic}", PATIENCE_S)

    def close(self) -> None:
        for run in self._runs:
            run.kill()
        self.connection.close()


def push(bench: Bench) -> None:
    assert sorted(bench.finished().rows) == [["m0", 1], ["m1", 1], ["m1", 2], ["m2", 1]]


def fifo(bench: Bench) -> None:
    assert bench.finished().rows == [list(row) for row in bench.client.in_order]


def transaction(bench: Bench) -> None:
    assert sorted(bench.finished().rows) == [["asked", 1], ["committed", 1]]


def tag(bench: Bench) -> None:
    assert sorted(bench.finished().rows) == [["m0", 1], ["m2", 1]]


def sql(bench: Bench) -> None:
    assert bench.finished().rows == [["m2", 1]]


def normal(bench: Bench) -> None:
    run = bench.finished()
    assert sorted(run.rows) == [[f"m{number}", 1, TAGS[number], f"k{number}", str(number)] for number in range(3)]
    assert run.notes["rest"] == 0
    _three_stored(bench)


def send(bench: Bench) -> None:
    bench.finished()
    _three_stored(bench)


def _three_stored(bench: Bench) -> None:
    """The three messages are found by remoting, with their properties."""
    stored = sorted(bench.stored(), key=lambda record: record.body)
    assert [record.body for record in stored] == [b"m0", b"m1", b"m2"]
    for number, record in enumerate(stored):
        found = record.properties
        assert (found["TAGS"], found["KEYS"], found["index"]) == (TAGS[number], f"k{number}", str(number))
        assert [one.body for one in bench.connection.query(bench.topic, found["UNIQ_KEY"])] == [record.body]


def delay(bench: Bench) -> None:
    [[_, attempt, waited_ms]] = bench.finished().rows
    assert attempt == 1
    assert DELAY_MS <= waited_ms <= DELAY_MS + LATE_MS_MAX


def recall(bench: Bench) -> None:
    run = bench.finished()
    assert (run.rows, run.notes["recalled"]) == ([["y", 1]], True)


def orphan(bench: Bench) -> None:
    sender = bench.start("orphan-send")
    sender.wait_ready()
    sender.kill()
    assert bench.finished("orphan-check").rows == [["orphan", 1]]


def dlq(bench: Bench) -> None:
    assert bench.finished().rows == [["d0", 1], ["d0", 2]]
    bench.start("drain", rows=1)  # a third receive: with it the front finds that the message has no attempt left
    bench.wait_dead(b"d0")


def fifo_dlq(bench: Bench) -> None:
    """With one attempt only, the client itself gives up and has the message forwarded; the next ones follow."""
    assert bench.finished("fifo", rows=4).rows == [[f"o{number}", 1] for number in range(4)]
    [(failed, _)] = Counter(body for body, _ in bench.client.in_order).most_common(1)
    bench.wait_dead(failed.encode())


def invisible(bench: Bench) -> None:
    run = bench.finished()
    assert run.rows == [["x", 1], ["x", 2]]
    assert INVISIBLE_MS - 1000 <= run.notes["waited_ms"] <= INVISIBLE_MS + LATE_MS_MAX


def hold(bench: Bench) -> None:
    """Messages that a killed consumer held are delivered to another one.

    A receive of the killed one that is still held may take some of them and give them back, which counts as an attempt.
    """
    holder = bench.start(rows=HELD)
    bodies = [f"h{number}" for number in range(HELD)]
    for number, body in enumerate(bodies):
        bench.connection.send(bench.topic, number % QUEUES, body.encode(), {"UNIQ_KEY": uuid.uuid4().hex.upper()})
    holder.wait_ready()
    holder.kill()
    rows = sorted(bench.finished("drain", rows=HELD).rows)
    assert [body for body, _ in rows] == bodies
    assert all(attempt in (2, 3) for _, attempt in rows)


def ask(bench: Bench) -> None:
    """An administrator sees the consumer; a client that can answers questions for it."""
    run = bench.start()
    run.wait_ready()
    connections = bench.connection

    def found() -> list[dict[str, Any]]:
        answer = connections.call(GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": bench.group})
        table: list[dict[str, Any]] = json.loads(answer.body)["connectionSet"] if answer.code == 0 else []
        return table

    wait(lambda: len(found()) == 1, "the connection of the consumer", PATIENCE_S)
    [consumer] = found()
    if bench.client.answers:
        _questions(bench, run, consumer["clientId"])
    run.terminate()
    run.finish()


def _questions(bench: Bench, run: Run, client_id: str) -> None:
    sent = bench.connection.send(bench.topic, 0, b"q0", {"UNIQ_KEY": uuid.uuid4().hex.upper()})
    wait(lambda: run.rows == [["q0", 1]], "q0", PATIENCE_S)
    of = ("-g", bench.group, "-i", client_id)
    mqadmin = Mqadmin(bench.folder)
    try:
        namesrv = bench.front.cluster.namesrv_address
        if "stack" in bench.client.answers:
            printed = mqadmin.run(namesrv, "consumerStatus", *of, "-s")
            assert "#Consumer jstack#" in printed, printed
        if "verify" in bench.client.answers:
            printed = mqadmin.run(namesrv, "queryMsgById", "-i", sent.ext["msgId"], "-d", client_id, *of[:2])
            assert "CR_SUCCESS" in printed, printed
            wait(lambda: len(run.rows) == 2, "q0 once more", PATIENCE_S)
    finally:
        mqadmin.close()


@dataclass(frozen=True)
class Case:
    judge: Callable[[Bench], None]
    kind: str = "NORMAL"
    """Type of the topic."""
    group: Mapping[str, object] = field(default_factory=dict)
    """Settings of the consumer group."""


CASES = {
    "normal": Case(normal),
    "send": Case(send),
    "push": Case(push),
    "fifo": Case(fifo, "FIFO", {"consumeMessageOrderly": True}),
    "fifo-dlq": Case(fifo_dlq, "FIFO", {"consumeMessageOrderly": True, "retryMaxTimes": 0}),
    "delay": Case(delay, "DELAY"),
    "recall": Case(recall, "DELAY"),
    "transaction": Case(transaction, "TRANSACTION"),
    "orphan": Case(orphan, "TRANSACTION"),
    "tag": Case(tag),
    "sql": Case(sql),
    "dlq": Case(dlq, group={"retryMaxTimes": 1}),
    "invisible": Case(invisible),
    "hold": Case(hold),
    "ask": Case(ask),
}


def test_case(bench: Bench) -> None:
    CASES[bench.case].judge(bench)
