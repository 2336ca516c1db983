"""Every figure of the report equals a count by plain loops, over stores of all kinds of messages and of Apache's brokers."""

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pocketmq.spark_analytics.commands.report import Report, make_report
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, TIMER_CHECKPOINT_STRUCT, TIMER_LOG_UNIT_STRUCT
from tests.spark_analytics.administered import T0_MS, Row
from tests.spark_analytics.recount import HALF, LEVELS_S, OP, SCHEDULE, TIMER, Figures, Recount
from tests.spark_analytics.spark_logs import HOST, HOST_V6, LogBuilder
from tests.spark_analytics.test_spark_report import BOTH_IN_LONG
from tests.support.amount import cases

pytestmark = pytest.mark.spark

Engine = Any
FAR_MS = 10 * 86_400_000
PENDING_LEVEL = 18
HOSTS = (HOST, bytes([10, 0, 0, 8, 0, 0, 7, 7]), HOST_V6)
QUEUE_FILE_SIZE = 20 * 400


class Scenario:
    """A broker's store in the making, with every kind of message that the report counts; and what is pending at its end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = LogBuilder(60_000)
        self.now_ms = T0_MS
        self.number = 0
        self.units: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.later: list[tuple[int, int, Callable[[], Any]]] = []
        self.pending: list[tuple[str, str, int, int]] = []
        self.timers: list[tuple[int, int, int, bool]] = []

    def put(
        self, topic: str, properties: dict[str, str], queue_id: int = 0, code: int = 0, body: bytes = b"", **fields: int
    ) -> int:
        """Store and dispatch a record; return its physical offset."""
        # A message without a unique key is recognised by its host, so its copies have the same.
        host = HOST if str(properties.get("KEYS")).startswith("no-unique-key") else self.random.choice(HOSTS)
        fields["sys_flag"] = fields.get("sys_flag", 0) | (0x10 if host is HOST_V6 else 0)
        fields.setdefault("born_timestamp_ms", self.now_ms - self.random.choice((-3, 0, 0, 1, 7, 250, 9000)))
        body = body or b"b" * self.random.choice((0, 20, 400, 3000))
        start = self.log.append(body, topic, properties, host, store_timestamp_ms=self.now_ms, queue_id=queue_id, **fields)
        self.units.setdefault((topic, queue_id), []).append((start, self.log.next_physical_offset - start, code))
        return start

    def at(self, time_ms: int, task: Callable[[], Any]) -> None:
        self.number += 1
        heapq.heappush(self.later, (time_ms, self.number, task))

    def key(self) -> dict[str, str]:
        """Return the properties of a new message: mostly unique keys, sometimes none, or one that was used before."""
        self.number += 1
        kind = self.random.randrange(10)
        keys = {"KEYS": self.random.choice(("one", "one two", "two two", f"k{self.number}"))} if kind % 2 else {}
        if kind == 8:
            return {"KEYS": f"no-unique-key-{self.number}"}
        return keys | {"UNIQ_KEY": f"U{self.random.randrange(self.number) if kind == 9 else self.number}"}

    # --- kinds of messages ------------------------------------------------------------------------------------------

    def plain(self) -> None:
        own = self.key() | self.random.choice(({}, {"XDELAY": "1"}, {"MY_TIMER_OUT_MS": "2"}))
        for _ in range(self.random.choice((1, 1, 3))):  # a batch shares its key
            self.put(self.random.choice("ABC"), own, self.random.randrange(3))

    def level(self, more: dict[str, str] | None = None, topic: str = "", times: int = 0) -> None:
        level = self.random.choice((1, 2, 3, 5, PENDING_LEVEL))
        topic = topic or self.random.choice("AB")
        own = (more or self.key()) | {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "0"}
        born_ms, due_ms = self.now_ms - 5, self.now_ms + 1000 * LEVELS_S[level - 1]
        start = self.put(SCHEDULE, own, level - 1, due_ms, born_timestamp_ms=born_ms, reconsume_times=times)
        if level == PENDING_LEVEL:
            self.pending.append(("level", topic, due_ms, start))
            return
        for again_ms in (0, 500)[: self.random.choice((1, 1, 1, 2))]:  # delivered again after a crash
            late_ms = self.random.choice((-2, 0, 3, 40, 900)) + again_ms
            self.at(due_ms + late_ms, lambda: self.put(topic, own, born_timestamp_ms=born_ms, reconsume_times=times))

    def timer(self) -> None:
        is_far, topic = self.random.random() < 0.6, self.random.choice("AB")
        due_ms = self.now_ms + (FAR_MS + self.random.randrange(9_000_000) if is_far else self.random.randrange(1, 50_000))
        out_ms, own, born_ms = (due_ms - 1) // 1000 * 1000, self.key(), self.now_ms - 1
        times = {"TIMER_DELIVER_MS": str(due_ms), "TIMER_OUT_MS": str(out_ms)}
        stored = own | times | {"REAL_TOPIC": topic, "REAL_QID": "0"}
        start = self.put(TIMER, stored, born_timestamp_ms=born_ms)
        self.timers.append((start, self.log.next_physical_offset - start, out_ms, False))
        if not is_far:
            late_ms = self.random.choice((0, 1, 77))
            self.at(due_ms + late_ms, lambda: self.put(topic, own | times, born_timestamp_ms=born_ms))
            return
        key = own.get("UNIQ_KEY")
        right = [f"@{start}"] + ([key, f"{topic}+{key}"] if key and key == f"U{self.number}" else [])
        kind = self.random.choice(("none", "none", "cancel", "other topic", "other slot"))
        if kind == "cancel":
            self.cancel(self.random.choice(right), times, topic)
            return
        self.pending.append(("timer", topic, due_ms, start))
        if kind == "other topic":
            self.cancel(f"C+{key}", times, "C")
        elif kind == "other slot":
            self.cancel(f"{topic}+{key}", {"TIMER_DELIVER_MS": "1001", "TIMER_OUT_MS": "1000"}, topic)

    def cancel(self, key: str, times: dict[str, str], topic: str) -> None:
        own = {"TIMER_DEL_UNIQKEY": key, "REAL_TOPIC": topic, "REAL_QID": "0", "UNIQ_KEY": key.rpartition("+")[2]}
        start = self.put(TIMER, own | times)
        self.timers.append((start, self.log.next_physical_offset - start, int(times["TIMER_OUT_MS"]), True))

    def transaction(self) -> None:
        own = self.key() | {
            "REAL_TOPIC": "A",
            "REAL_QID": "1",
            "PGROUP": self.random.choice(("P1", "P2")),
            "TRAN_MSG": "true",
        }
        queue_offset = self.log.queue_offsets[HALF, 0]
        half = self.put(HALF, own)
        if self.random.random() < 0.7:
            if self.random.random() < 0.5:
                self.put("A", own, 1, sys_flag=8, prepared_transaction_offset=half)
            self.put(OP, {"TAGS": "d"}, body=str(queue_offset).encode() + self.random.choice((b"", b",")))

    def failure(self) -> None:
        """A message that a consumer sends back: retried, then dead."""
        group, times = self.random.choice(("G", "G2", "Unknown")), self.random.randrange(1, 18)
        self.number += 1
        own = {
            "UNIQ_KEY": f"U{self.number}",
            "RETRY_TOPIC": self.random.choice("AB"),
            "ORIGIN_MESSAGE_ID": f"{self.number:032X}",
        }
        for number in range(1, min(times, 4)):
            self.level(own, f"%RETRY%{group}", number)
        if self.random.random() < 0.5:
            self.put(f"%DLQ%{group}", own, reconsume_times=times)

    # --- the store --------------------------------------------------------------------------------------------------

    def run(self, count: int) -> None:
        kinds = (self.plain, self.plain, self.level, self.timer, self.timer, self.transaction, self.failure)
        for _ in range(count):
            self.now_ms += self.random.choice((0, 5, 500, 3000))
            self.deliver()
            self.random.choice(kinds)()
        self.now_ms += 1_000_000
        self.deliver()

    def deliver(self) -> None:
        end_ms = self.now_ms
        while self.later and self.later[0][0] <= end_ms:
            self.now_ms, _, task = heapq.heappop(self.later)
            task()
        self.now_ms = end_ms

    def write(self, store: Path) -> Path:
        self.log.write(store)
        for (topic, queue_id), units in self.units.items():
            folder = store / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True)
            content = b"".join(CONSUME_QUEUE_UNIT_STRUCT.pack(*unit) for unit in units)
            for begin in range(0, len(content), QUEUE_FILE_SIZE):
                part = content[begin : begin + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0")
                (folder / f"{begin:020}").write_bytes(part)
        self._write_progress(store)
        for _ in range(self.random.choice((0, 0, 1))):
            min((store / "commitlog").iterdir()).unlink()
        return store

    def _write_progress(self, store: Path) -> None:
        """Write consumer groups and offsets, and the progress of levels and timers."""
        (store / "config").mkdir()
        offsets = {
            f"{topic}@{group}": {"0": self.random.randrange(20), "1": 0, "9": 5} for topic in "ABC" for group in ("G", "G2")
        }
        groups = {"G": {"retryMaxTimes": 16}, "G2": {"retryMaxTimes": 3}}
        levels = {str(level): len(self.units.get((SCHEDULE, level - 1), [])) for level in range(1, PENDING_LEVEL)}
        documents: dict[str, dict[str, Any]] = {
            "consumerOffset.json": {"offsetTable": offsets | {"A@CID_RMQ_SYS_X": {"0": 0}}},
            "subscriptionGroup.json": {"subscriptionGroupTable": groups},
            "delayOffset.json": {"offsetTable": levels},
        }
        for name, document in documents.items():
            (store / "config" / name).write_text(json.dumps(document))
        units = b"".join(
            TIMER_LOG_UNIT_STRUCT.pack(52, -1, 5 if cancels else 1, out_ms - 1000, 1000, start, size, 0, 0)
            for start, size, out_ms, cancels in self.timers
        )
        (store / "timerlog").mkdir()
        (store / "timerlog" / f"{0:020}").write_bytes(units.ljust(len(units) + 4096, b"\0"))
        check = TIMER_CHECKPOINT_STRUCT.pack(self.now_ms, len(units), len(self.timers), 0, 0, 0, 0)
        (store / "config" / "timercheck").write_bytes(check.ljust(4096, b"\0"))


# --- comparison -----------------------------------------------------------------------------------------------------


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def same(found: list[Row], expected: Figures, key: Callable[[Row], Any]) -> None:
    """Compare the rows of a table with the counted figures: the same keys, and the counted columns of each."""
    assert {key(row) for row in found} == set(expected) and len(found) == len(expected)
    for row in found:
        own = expected[key(row)]
        assert {name: row[name] for name in own} == pytest.approx(own), key(row)


def compare_log(tables: dict[str, list[Row]], plain: Recount) -> None:
    """Compare what the report says about the records of the log."""
    same(tables["volume"], plain.volume(), lambda row: (row["topic"], ms(row["time"])))
    assert all(row["messages_per_s"] == row["messages"] / row["seconds"] for row in tables["volume"])
    same(tables["hosts"], plain.hosts(), lambda row: (row["sender"], row["broker"]))
    same(tables["sizes"], plain.sizes(), lambda row: row["topic"])
    same(tables["latency"], plain.latency(), lambda row: row["topic"])
    sizes = plain.buckets(row["storeSize"] for row in plain.rows)
    assert {row["bucket"]: row["messages"] for row in tables["size_buckets"]} == sizes
    latencies = plain.buckets(value for own in plain.latencies().values() for value in own)
    assert {row["bucket"]: row["messages"] for row in tables["latency_buckets"]} == latencies
    same(tables["lateness"], plain.lateness(), lambda row: (row["topic"], row["level"]))
    late = plain.buckets((pair["late"] for pair in plain.pairs if pair["late"] is not None), 2)
    assert {row["bucket"]: row["messages"] for row in tables["late_buckets"]} == late
    same(tables["late_series"], plain.late_series(), lambda row: ms(row["time"]))
    assert [(row["late_ms"], row["delivered_physical_offset"]) for row in tables["late_worst"]] == plain.late_worst()
    same(tables["duplicates"], plain.duplicates(), lambda row: (row["topic"], row["kind"]))
    repeated = plain.repeated()
    counts = [row["messages"] for row in tables["duplicate_keys"]]
    assert counts == sorted(repeated.values(), reverse=True)[:50]
    assert all(repeated[row["topic"], row["kind"], row["text"]] == row["messages"] for row in tables["duplicate_keys"])


def compare_state(tables: dict[str, list[Row]], plain: Recount) -> None:
    """Compare what the report says about progress, failures and queues."""
    same(tables["lag"], plain.lag(), lambda row: (row["group"], row["topic"]))
    same(tables["retries"], plain.retries(), lambda row: (row["group"], row["topic"], row["times"]))
    dead = plain.dead()
    names = ("group", "reason", "lived_ms", "origin", "physicalOffset")
    assert [[row[name] for name in names] for row in tables["dead_letters"]] == [
        [row[name] for name in names] for row in dead[:200]
    ]
    causes = Counter((row["group"], row["origin_topic"], row["reason"]) for row in dead)
    assert {(row["group"], row["topic"], row["reason"]): row["messages"] for row in tables["dead_causes"]} == causes
    known = {key: own for key, own in plain.queues().items() if own["agrees"]}
    assert {key: own for key, own in plain.queues().items() if not own["agrees"]} == {}
    same([row for row in tables["queues"] if row["records"]], known, lambda row: (row["topic"], row["queueId"]))
    assert tables["findings"] == []


def tables_of(report: Report) -> dict[str, list[Row]]:
    return {name: table.to_pylist() for name, table in report.tables.items()}


@BOTH_IN_LONG
@pytest.mark.parametrize("seed", range(cases(1, 2)))
def test_every_figure_of_a_store_with_every_kind_of_message(engine: Engine, tmp_path: Path, seed: int) -> None:
    made = Scenario(seed)
    made.run(400)
    store = made.write(tmp_path / "store")
    report = make_report(engine, str(store), DelayLevels())
    tables, plain = tables_of(report), Recount(store)
    assert (report.rows, report.size) == (len(plain.rows), sum(row["storeSize"] for row in plain.rows))
    compare_log(tables, plain)
    compare_state(tables, plain)
    begin = plain.rows[0]["physicalOffset"]
    waiting = Counter((kind, topic, due // 3_600_000) for kind, topic, due, start in made.pending if start >= begin)
    assert {
        (row["kind"], row["topic"], ms(row["hour"]) // 3_600_000): row["messages"] for row in tables["pending"]
    } == waiting
    found = {(row["topic"], row["producer_group"], row["outcome"]): row["messages"] for row in tables["transactions"]}
    assert found == plain.transactions()
    # What waits by the state of the broker waits by the log, too.
    kinds = Counter((topic, kind == "timer") for kind, topic, _, start in made.pending if start >= begin)
    by_log = Counter[tuple[str, bool]]()
    for row in tables["lateness"]:
        by_log[row["topic"], row["level"] is None] += row["pending"]
    assert +by_log == kinds


@BOTH_IN_LONG
@pytest.mark.parametrize("name", cases(["v5_clean"], ["v4_clean", "v5_clean"]))
def test_every_figure_of_the_stores_of_apaches_brokers(engine: Engine, golden_stores: dict[str, Path], name: str) -> None:
    plain = Recount(golden_stores[name])
    tables = tables_of(make_report(engine, str(golden_stores[name]), DelayLevels()))
    compare_log(tables, plain)
    compare_state(tables, plain)
