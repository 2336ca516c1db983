"""The report's figures and output files."""

import csv
import io
import json
import re
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pyarrow.parquet
import pytest

from pocketmq import spark_analytics
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.spark_analytics.commands.page import SECTIONS
from pocketmq.spark_analytics.commands.report import make_report, print_report, write_report
from pocketmq.spark_analytics.direct.engine import DirectEngine
from pocketmq.spark_analytics.pipelines.retries import group_and_topic
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, write_queues
from tests.support.amount import cases

pytestmark = pytest.mark.spark

Engine = Any
T0_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


BOTH_IN_LONG = pytest.mark.parametrize("engine", cases(["direct"], ["direct", "spark"]), indirect=True)
"""`test_direct` compares whole reports of both engines; Spark's own are checked figure by figure with POCKETMQ_LONG=true."""


@BOTH_IN_LONG
def test_volume_of_a_golden_store(engine: Engine, golden_stores: dict[str, Path]) -> None:
    report = make_report(engine, str(golden_stores["v4_clean"]), DelayLevels())
    records = expected_records("v4_clean")
    messages = Counter(record["topic"] for record in records)
    sizes: Counter[str] = Counter()
    for record in records:
        sizes[record["topic"]] += record["storeSize"]
    rows = report.volume.to_pylist()
    for name, expected in (("messages", messages), ("bytes", sizes)):
        found: Counter[str] = Counter()
        for row in rows:
            found[row["topic"]] += row[name]
        assert found == expected
    assert all(row["messages_per_s"] == row["messages"] / row["seconds"] for row in rows)
    assert {row["seconds"] for row in rows} == {1}
    assert min(row["time"] for row in rows) == datetime(2026, 11, 21, 3, 26, 25, tzinfo=UTC)
    assert (report.rows, report.size) == (len(records), sizes.total())
    # 40 went through the schedule topic; the four with a delay of two hours were still there when the broker stopped.
    delayed = report.lateness.to_pylist()
    assert sum(row["scheduled"] for row in delayed) == messages[SCHEDULE_TOPIC] == 40
    assert [row for row in delayed if row["pending"]] == [
        {"topic": "GoldenDelay", "level": 18, "delay_ms": 7_200_000, "scheduled": 4, "delivered": 0, "pending": 4}
        | {"early": 0, "repeated": 0, "unpaired": 0, "late_p50_ms": None, "late_p99_ms": None, "late_max_ms": None}
    ]
    assert all(0 <= row["late_p50_ms"] <= row["late_p99_ms"] <= row["late_max_ms"] < 1000 for row in delayed[:-1])


class DelayedLog(LogBuilder):
    """A log of scheduled and delivered copies at times after T0."""

    def copy(self, topic: str, at_ms: int, level: int = 1, key: str = "", **properties: str) -> None:
        properties |= {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0"} | ({"UNIQ_KEY": key} if key else {})
        self.append(topic=topic, properties=properties, store_timestamp_ms=T0_MS + at_ms)

    def schedule(self, at_ms: int, level: int = 1, key: str = "", **properties: str) -> None:
        self.copy(SCHEDULE_TOPIC, at_ms, level, key, **properties)

    def deliver(self, at_ms: int, level: int = 1, key: str = "", **properties: str) -> None:
        self.copy("T", at_ms, level, key, **properties)


@BOTH_IN_LONG
def test_lateness_of_delayed_messages(engine: Engine, tmp_path: Path) -> None:
    log = DelayedLog(100_000)
    for number in range(100):
        log.schedule(0, key=f"k{number}")
        log.deliver(1000 + number, key=f"k{number}")  # 0 to 99 ms late
    log.schedule(0, level=2, KEYS="no-unique-key")
    log.deliver(5007, level=2, KEYS="no-unique-key")
    for at_ms in (0, 10):  # a producer's retry
        log.schedule(at_ms, level=3, key="twice")
    log.deliver(10_005, level=3, key="twice")
    log.deliver(10_020, level=3, key="twice")
    log.deliver(10_500, level=3, key="twice")  # once more, after a crash
    log.deliver(50_000, level=4, key="scheduled before the log begins")
    log.schedule(0, level=5, key="waits")
    log.schedule(0, level=99, key="above the last level")
    log.schedule(0, level=6, key="early")
    log.deliver(119_999, level=6, key="early")
    log.append(topic="%DLQ%G", properties={"DELAY": "1", "REAL_TOPIC": "T", "UNIQ_KEY": "k1"})  # no delivery
    report = make_report(engine, str(log.write(tmp_path)), DelayLevels())
    rows = {row["level"]: row for row in report.lateness.to_pylist()}
    seen = {
        level: tuple(row[name] for name in ("scheduled", "delivered", "pending", "early", "repeated", "unpaired"))
        for level, row in rows.items()
    }
    assert seen == {
        1: (100, 100, 0, 0, 0, 0),
        2: (1, 1, 0, 0, 0, 0),
        3: (2, 2, 0, 0, 1, 0),
        4: (0, 0, 0, 0, 0, 1),
        5: (1, 0, 1, 0, 0, 0),
        6: (1, 1, 0, 1, 0, 0),
        18: (1, 0, 1, 0, 0, 0),
    }
    assert (rows[1]["late_p50_ms"], rows[1]["late_max_ms"]) == (49.5, 99)
    assert rows[1]["late_p99_ms"] == pytest.approx(98.01)
    assert (rows[2]["late_max_ms"], rows[3]["late_max_ms"], rows[6]["late_max_ms"]) == (7, 10, -1)

    paths = write_report(report, "the store", tmp_path / "out")
    names = {path.name for path in paths}
    assert names >= {"lateness.csv", "lateness.parquet", "volume.csv", "volume.parquet", "report.json", "report.html"}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    with open(tmp_path / "out" / "lateness.csv") as lines:
        assert [row["pending"] for row in csv.DictReader(lines)] == ["0", "0", "0", "0", "1", "0", "1"]
    assert pyarrow.parquet.read_table(tmp_path / "out" / "volume.parquet").equals(report.volume)
    summary = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (summary["rows"], summary["delayed_pending"], summary["late_max_ms"]) == (report.rows, 2, 99)
    assert (summary["delayed_delivered"], summary["delayed_early"]) == (104, 1)

    shown = io.StringIO()
    print_report(report, Printer(width=80, file=shown))
    text = shown.getvalue()
    assert "unpaired" in text and "early" in text
    assert max(len(line) for line in text.splitlines()) <= 80


@BOTH_IN_LONG
def test_delay_levels_of_another_broker(engine: Engine, tmp_path: Path) -> None:
    log = DelayedLog(10_000)
    log.schedule(0, key="k")
    log.deliver(2003, key="k")
    report = make_report(engine, str(log.write(tmp_path)), DelayLevels("2s 4s"))
    (row,) = report.lateness.to_pylist()
    assert (row["delay_ms"], row["late_max_ms"]) == (2000, 3)


def test_table_of_deliveries_has_the_pairs_behind_the_report(golden_stores: dict[str, Path]) -> None:
    for name in ("v4_clean", "v5_clean"):
        store = golden_stores[name]
        rows = spark_analytics.arrow(store, table="deliveries").read_all().to_pylist()
        figures = make_report(DirectEngine(), str(store), DelayLevels()).lateness.to_pylist()
        assert {(row["topic"], row["level"]): (row["delivered"], row["late_max_ms"]) for row in figures} == {
            (topic, level): (len(late), max(late, default=None))
            for topic, level in {(row["topic"], row["level"]) for row in rows}
            for late in [[row["lateMs"] for row in rows if (row["topic"], row["level"]) == (topic, level) and row["sent"]
                          and row["delivered"]]]
        }  # fmt: skip
        for row in rows:
            if row["lateMs"] is not None:
                assert row["delivered"] - row["due"] == timedelta(milliseconds=row["lateMs"])
                assert row["sentPhysicalOffset"] < row["deliveredPhysicalOffset"]


def test_deliveries_of_a_broker_with_other_delay_levels(tmp_path: Path, spark: Any) -> None:
    log = DelayedLog(10_000)
    log.schedule(0, key="k")
    log.deliver(2003, key="k")
    log.deliver(9000, key="k")
    log.schedule(100, level=2, key="waits")
    frame = spark.read.format("rocketmq").option("table", "deliveries").option("delayLevel", "2s 4s")
    rows = frame.load(str(log.write(tmp_path))).orderBy("message", "delivered").collect()
    assert [(row.message, row.level, row.lateMs, row.isRepeated) for row in rows] == [
        ("k", 1, 3, False),
        ("k", 1, None, True),
        ("waits", 2, None, False),
    ]


def svgs(page: str) -> list[str]:
    return re.findall("<svg.*?</svg>", page, re.DOTALL)


@BOTH_IN_LONG
def test_page_of_a_golden_store(engine: Engine, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    store = str(golden_stores["v4_clean"])
    report = make_report(engine, store, DelayLevels())
    made_at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    page = [path for path in write_report(report, store, tmp_path, made_at) if path.suffix == ".html"][0].read_text()
    assert "2026-01-02 03:04" in page
    tables = {name: table.to_pylist() for name, table in report.tables.items()}
    for section in SECTIONS:
        assert f'<section id="{section.name}">' in page
        assert section.nothing not in page, section.name  # this store has data for every section
    assert [(row["group"], row["topic"], row["lag"]) for row in tables["lag"][:2]] == [
        ("GoldenPartGroup", "GoldenNormal", 217),
        ("GoldenConsumerGroup", "%RETRY%GoldenConsumerGroup", 0),
    ]
    assert {row["outcome"]: row["messages"] for row in tables["transactions"]} == {
        "committed": 8,
        "rolledBack": 8,
        "givenUp": 2,
    }
    assert [(row["topic"], row["messages"]) for row in tables["pending"]] == [("GoldenDelay", 4)]
    assert [(row["times"], row["deliveries"]) for row in tables["retries"]] == [(1, 8), (2, 4)]
    assert {(row["topic"], row["reason"]) for row in tables["dead_letters"]} == {
        ("GoldenConsume", "given up after 2 of 16 retries")
    }
    assert "7F000001000049DF000000000028F8E5" in {row["origin"] for row in tables["dead_letters"]}
    assert {(row["text"], row["messages"]) for row in tables["duplicate_keys"][:2]} == {("shared-0", 90), ("shared-5", 90)}
    assert tables["findings"] == [] and all(row["agrees"] for row in tables["queues"])
    assert len(svgs(page)) == 12
    for svg in svgs(page):
        minidom.parseString(svg)
        assert "var(--ink)" in svg and "#fe0" not in svg
    assert not re.search(r"<script|<link|<img|src=|url\((?!#)|@import", page)
    again = write_report(report, store, tmp_path / "again", made_at)[-1].read_text()
    assert again == page


@BOTH_IN_LONG
def test_retries_of_pop_consumption_are_those_of_their_group(engine: Engine, golden_stores: dict[str, Path]) -> None:
    report = make_report(engine, str(golden_stores["v5_clean"]), DelayLevels())
    assert [
        tuple(row[name] for name in ("group", "topic", "times", "deliveries"))
        for row in report.tables["retries"].to_pylist()
    ] == [
        ("V5ConsumeGroup", "V5Consume", 1, 2),
        ("V5PopGroup", "V5Pop", 1, 3),
        ("V5PopPushGroup", "V5PopPush", 1, 1),
    ]


@pytest.mark.parametrize(
    ("name", "group", "topic"),
    [
        ("%RETRY%a", "a", None),
        ("%RETRY%a+b_c", "a", "b_c"),
        ("%RETRY%a_b", "a_b", None),
        ("%RETRY%a_b_c", "a_b", "c"),
        ("%RETRY%a_b_Orders", "a", "b_Orders"),
        ("%RETRY%gone_b", "gone_b", None),
    ],
)
def test_group_and_topic_of_a_retry_topic(name: str, group: str, topic: str | None) -> None:
    assert group_and_topic(name, ("a", "a_b"), ("b_Orders",)) == (group, topic)


@BOTH_IN_LONG
def test_timers_of_a_golden_store(engine: Engine, golden_stores: dict[str, Path]) -> None:
    report = make_report(engine, str(golden_stores["v5_clean"]), DelayLevels())
    (timers,) = (row for row in report.lateness.to_pylist() if row["level"] is None)
    assert (timers["topic"], timers["delivered"], timers["early"], timers["pending"]) == ("V5Timer", 18, 0, 11)
    assert 0 <= timers["late_p50_ms"] <= timers["late_max_ms"] < 1000


@BOTH_IN_LONG
def test_hostile_names_are_only_text(engine: Engine, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>&$\\frac$\x1b[31m"
    log = LogBuilder(10_000)
    for at_ms in (T0_MS, T0_MS + 1):
        keys = {"KEYS": "</td><script>alert(2)</script>", "UNIQ_KEY": "'\""}
        log.append(topic=hostile, properties=keys, store_timestamp_ms=at_ms)
    for _ in range(3):  # a batch
        log.append(topic="batch", properties={"UNIQ_KEY": "same"})
    store = write_queues(log.write(tmp_path / "<b>store</b>"))
    report = make_report(engine, str(store), DelayLevels())
    page = write_report(report, str(store), tmp_path / "out")[-1].read_text()
    assert not re.search("<(img|script|b)\\b", page) and "\x1b" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page and "&lt;script&gt;alert(2)" in page
    for svg in svgs(page):
        minidom.parseString(svg)
    # Sections without data show a sentence.
    assert "No transactions in this log." in page and "There are no pending delayed messages." in page
    assert (report.rows, {row["topic"] for row in report.tables["duplicates"].to_pylist()}) == (5, {hostile})
    shown = io.StringIO()
    print_report(report, Printer(width=80, file=shown))
    assert "messages stored again under a unique key that is already in their topic: 1" in shown.getvalue().replace(
        "\n", " "
    )


@BOTH_IN_LONG
def test_report_of_one_log_file(engine: Engine, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    file = sorted((golden_stores["v4_clean"] / "commitlog").iterdir())[0]
    report = make_report(engine, str(file), DelayLevels())
    assert "lag" not in report.tables and 0 < report.rows < 2280
    assert "Only available for whole stores" in write_report(report, str(file), tmp_path)[-1].read_text()


@BOTH_IN_LONG
def test_report_of_a_period(engine: Engine, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    store, begin, end = str(golden_stores["v4_clean"]), "2026-11-21T03:26:27Z", "2026-11-21T03:26:28.500"
    report = make_report(engine, store, DelayLevels(), period={"startingTimestamp": begin, "endingTimestamp": end})
    times = [record["storeTimestamp"] for record in expected_records("v4_clean")]
    first, last = (int(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000) for time in (begin, end))
    assert report.rows == sum(first <= time < last for time in times)
    page = write_report(report, store, tmp_path)[-1].read_text()
    assert "Only a whole log is compared with its queues." in page and "consistency errors" not in page


def test_a_slave_does_not_change_the_report(golden_stores: dict[str, Path], tmp_path: Path) -> None:
    master = golden_stores["v4_clean"]
    slave = Path(shutil.copytree(master, tmp_path / "slave"))
    alone = make_report(DirectEngine(), str(master), DelayLevels())
    both = make_report(DirectEngine(), [str(slave), str(master)], DelayLevels())
    assert (both.rows, both.size) == (alone.rows, alone.size)
    of_stores = {"queues", "findings"}  # the audit checks each store
    assert {name: table.to_pylist() for name, table in both.tables.items() if name not in of_stores} == {
        name: table.to_pylist() for name, table in alone.tables.items() if name not in of_stores
    }
    assert len(both.tables["queues"]) == 2 * len(alone.tables["queues"])
    assert not any(row["severity"] == "error" for row in both.tables["findings"].to_pylist())
