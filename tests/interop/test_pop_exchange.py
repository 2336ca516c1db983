"""Unacknowledged pops of one broker are redelivered by the other: Apache's 5.5.0 and PocketMQ, in both directions.

The first broker hands out messages of one queue and gets acks for some, singly and in a batch; the invisible time of one
message is prolonged. A second queue is popped in order. Then the broker ends: cleanly, or by kill -9 after its offsets and
the progress of its timers are written. The second broker hands out the rest, each once, and no acknowledged message.

PocketMQ is ended only after its timers have delivered the checkpoint and the acks of the first pop, and have saved that
progress. Otherwise Apache's broker would deliver these timers again, and if it started when they were overdue, it would
handle the checkpoint before the acks that follow it.
"""

import base64
import json
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.patience import wait
from tests.interop.servers import BROKER_NAME, SAVING_TIMERS, Apache, Cluster, Flavour, Pocketmq
from tests.interop.toolchain import jars
from tests.interop.wire import SUCCESS, Answer, Connection, Record, records
from tests.patience import PATIENCE_S
from tests.support.amount import cases

POP_MESSAGE, ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME, BATCH_ACK_MESSAGE = 200050, 200051, 200053, 200151
TIMER_TOPIC = "rmq_sys_wheel_timer"
TOPIC, ORDERED, GROUP = "Pop-exchange", "Pop-exchange-ordered", "popping"
ACKNOWLEDGED, IN_BATCH, HELD, LATER = ["ack 0", "ack 1", "ack 2"], ["batch 0", "batch 1"], ["held 0", "held 1"], "later"
SENT = [*ACKNOWLEDGED, HELD[0], *IN_BATCH, HELD[1], LATER]
IN_ORDER = ["first", "second", "third"]
CASES = [("pocketmq", "stop"), ("apache", "kill"), *cases([], [("pocketmq", "kill"), ("apache", "stop")])]
INVISIBLE_MS, LATER_MS = 8_000, 24_000
CONFIG: dict[str, object] = {
    "timerWheelEnable": "true",
    "flushConsumerOffsetInterval": 500,
    "diskMaxUsedSpaceRatio": 95,
}


def run(folder: Path, first: str, ending: str) -> None:
    """Run the exchange. Raises AssertionError for a wrong result."""
    cluster = Cluster(folder, Pocketmq(), **CONFIG, **SAVING_TIMERS)
    second = "apache" if first == "pocketmq" else "pocketmq"
    try:
        cluster.start_broker(_flavour(first))
        with Connection(cluster.broker_address) as connection:
            later_ms = _first_life(connection)
            timer_count = connection.max_offset(TIMER_TOPIC, 0)
        assert timer_count > 0, "check points and acknowledgements are timers"
        wait(lambda: _timers_written(folder)[1] >= timer_count, "the timers' progress to be written", PATIENCE_S)
        wait(lambda: _written(folder) == (len(SENT), 1), "consumer offsets to be written", PATIENCE_S)
        if first == "pocketmq":
            taken_ms = later_ms - LATER_MS + INVISIBLE_MS + 1000
            wait(
                lambda: _timers_written(folder)[0] > taken_ms and _is_revive_written(folder), "revived messages", PATIENCE_S
            )
        cluster.stop_broker() if ending == "stop" else cluster.kill_broker()
        cluster.config = CONFIG
        cluster.start_broker(_flavour(second))
        with Connection(cluster.broker_address) as connection:
            _second_life(connection, later_ms)
    finally:
        cluster.close()


def _flavour(name: str) -> Flavour:
    return Pocketmq() if name == "pocketmq" else Apache("5.5.0")


def _written(folder: Path) -> tuple[int, int]:
    """Return the group's saved offsets in the two topics; -1 and -1 until they and the file of ordered pops are saved."""
    try:
        (config,) = folder.rglob("config/consumerOffset.json")
        (config.parent / "consumerOrderInfo.json").stat()
        table = json.loads(re.sub(r"(?<=[\s{])(\d+):", r'"\1":', config.read_text()))["offsetTable"]
        return table[f"{TOPIC}@{GROUP}"]["0"], table[f"{ORDERED}@{GROUP}"]["0"]
    except (ValueError, KeyError, FileNotFoundError):
        return -1, -1


def _is_revive_written(folder: Path) -> bool:
    """Return whether the file of consumer offsets has the progress of reviving."""
    return any("REVIVE_LOG" in path.read_text() for path in folder.rglob("config/consumerOffset.json"))


def _timers_written(folder: Path) -> tuple[int, int]:
    """Return the time before which all timers are delivered and the offset of the timer queue, as written in timercheck."""
    try:
        (path,) = folder.rglob("config/timercheck")
        read_time_ms, _, queue_offset = struct.unpack_from(">3q", path.read_bytes())
        return int(read_time_ms), int(queue_offset)
    except (ValueError, struct.error, FileNotFoundError):
        return -1, -1


def _first_life(connection: Connection) -> int:
    for topic in (TOPIC, ORDERED):
        connection.create_topic(topic, 1)
        connection.subscribe(GROUP, topic)
    for topic, bodies in ((TOPIC, SENT), (ORDERED, IN_ORDER)):
        for body in bodies:
            connection.send(topic, 0, body.encode())
    wait(lambda: connection.max_offset(TOPIC, 0) == len(SENT), "the queue", PATIENCE_S)
    wait(lambda: connection.max_offset(ORDERED, 0) == len(IN_ORDER), "the queue popped in order", PATIENCE_S)
    answer, popped = _pop(connection, TOPIC)
    handles = {record.body.decode(): _handle(answer, record) for record in popped}
    assert list(handles) == SENT
    for body in ACKNOWLEDGED:
        _ack(connection, TOPIC, handles[body])
    _ack_batch(connection, [handles[body] for body in IN_BATCH])
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "extraInfo": handles[LATER],
              "offset": handles[LATER].split(" ")[7], "invisibleTime": LATER_MS}  # fmt: skip
    changed = connection.ask(CHANGE_MESSAGE_INVISIBLETIME, fields)
    answer, popped = _pop(connection, ORDERED, order="true")
    assert [record.body.decode() for record in popped] == IN_ORDER
    _ack(connection, ORDERED, _handle(answer, popped[0]))
    return int(changed.ext["popTime"]) + LATER_MS


def _second_life(connection: Connection, later_ms: int) -> None:
    found: Counter[str] = Counter()
    late_ms = 0
    in_order: list[str] = []

    def is_done() -> bool:
        nonlocal late_ms
        for topic, order in ((TOPIC, "false"), (ORDERED, "true")):
            answer, popped = _pop(connection, topic, order=order)
            for record in popped:
                _ack(connection, record.topic, record.properties.get("POP_CK") or _handle(answer, record))
                if topic == TOPIC:
                    found[record.body.decode()] += 1
                    late_ms = int(answer.ext["popTime"]) - later_ms
                else:
                    in_order.append(record.body.decode())
        return found.keys() >= {*HELD, LATER} and len(in_order) >= 2

    wait(is_done, "the unacknowledged messages", PATIENCE_S)
    assert found == Counter([*HELD, LATER]), "each once, and none that was acknowledged"
    assert late_ms >= 0, "the one that was to be seen later came last, and not before its time"
    assert in_order == IN_ORDER[1:]


def _pop(connection: Connection, topic: str, order: str = "false") -> tuple[Answer, list[Record]]:
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS,
              "pollTime": 0, "bornTime": int(time.time() * 1000), "initMode": 0, "order": order, "expType": "TAG",
              "exp": "*"}  # fmt: skip
    answer = connection.call(POP_MESSAGE, fields)
    return answer, records(answer.body) if answer.code == SUCCESS else []


def _handle(answer: Answer, record: Record) -> str:
    """Return the handle that clients make for a record of a topic that is not a retry topic."""
    starts = {tuple(row.split(" ")[:2]): row.split(" ")[2] for row in answer.ext["startOffsetInfo"].split(";")}
    times = answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"]
    start = starts["0", str(record.queue_id)]
    return " ".join(map(str, (start, *times, "0", BROKER_NAME, record.queue_id, record.queue_offset)))


def _ack(connection: Connection, topic: str, handle: str) -> None:
    *_, flag, _, queue_id, queue_offset = handle.split(" ")
    place = topic if flag == "0" else f"%RETRY%{GROUP}_{topic}"
    connection.ask(ACK_MESSAGE, {"consumerGroup": GROUP, "topic": place, "queueId": queue_id, "offset": queue_offset,
                                 "extraInfo": handle})  # fmt: skip


def _ack_batch(connection: Connection, handles: list[str]) -> None:
    start, pop_time, invisible_time, revive_queue = map(int, handles[0].split(" ")[:4])
    bits = 0
    for handle in handles:
        bits |= 1 << int(handle.split(" ")[7]) - start
    row = {"c": GROUP, "t": TOPIC, "r": "0", "so": start, "q": 0, "rq": revive_queue, "pt": pop_time, "it": invisible_time,
           "b": base64.b64encode(bits.to_bytes(1, "little")).decode()}  # fmt: skip
    connection.ask(BATCH_ACK_MESSAGE, {}, json.dumps({"brokerName": BROKER_NAME, "acks": [row]}).encode())


@pytest.fixture(scope="module")
def runs(apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], "Future[None]"]]:
    """Two runs at a time: they mostly wait, but each starts a JVM. The fixture `apache` skips if there is no Java."""
    jars("5.5.0-broker")
    with ThreadPoolExecutor(2) as threads:
        yield {case: threads.submit(run, tmp_path_factory.mktemp("-".join(case)), *case) for case in CASES}


@pytest.mark.parametrize(("first", "ending"), CASES)
def test_unacknowledged_messages_are_redelivered_by_the_other_broker(
    first: str, ending: str, runs: dict[tuple[str, str], "Future[None]"]
) -> None:
    runs[first, ending].result()
