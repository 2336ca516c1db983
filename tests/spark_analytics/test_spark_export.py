"""Exports: every record exactly once, even after kills."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from pocketmq.spark_analytics.commands import export as export_module
from pocketmq.spark_analytics.commands.csv_text import write_csv
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, write_queues

pytestmark = pytest.mark.spark

Command = Callable[..., int]


def exported(folder: Path) -> Any:
    return pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()


def offsets(folder: Path) -> list[int]:
    found: list[int] = exported(folder).column("physicalOffset").to_pylist()
    return sorted(found)


def test_parquet_of_a_golden_store(command: Command, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("export", golden_stores["v4_clean"], "--out", out) == 0
    table = exported(out)
    expected = {record["physicalOffset"]: record for record in expected_records("v4_clean")}
    assert sorted(table.column("physicalOffset").to_pylist()) == sorted(expected)
    assert table.schema.field("storeTimestamp").type == pa.timestamp("us", "UTC")
    for row in table.to_pylist():
        own = expected[row["physicalOffset"]]
        assert (row["topic"], row["queueOffset"], len(row["body"])) == (own["topic"], own["queueOffset"], own["bodyLen"])
        assert dict(row["properties"]) == own["properties"]
        assert (str(row["date"]), row["store"]) == ("2026-11-21", str(golden_stores["v4_clean"]))
    before = sorted(out.rglob("*.parquet"))
    assert command("export", golden_stores["v4_clean"], "--out", out) == 0  # nothing is new
    assert sorted(out.rglob("*.parquet")) == before


class GrowingStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LogBuilder(50_000)

    def grow(self, count: int) -> "GrowingStore":
        for number in range(count):
            self.log.append(
                topic="AB"[number % 2], body=b"%d" % number, store_timestamp_ms=1_767_225_590_000 + number * 1000
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.write(self.folder)
        return self


def test_each_new_record_is_exported_once_despite_kills(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = GrowingStore(tmp_path / "store").grow(20), tmp_path / "out"
    assert command("export", store.folder, "--out", out) == 0
    assert offsets(out) == store.log.physical_offsets
    folders = {str(path.parent.relative_to(out)) for path in out.rglob("*.parquet")}
    assert folders == {f"topic={topic}/date={date}" for topic in "AB" for date in ("2025-12-31", "2026-01-01")}

    class Killed(BaseException):
        pass

    def die(*arguments: Any) -> None:
        raise Killed

    # Killed before the commit: the staging folder is full, but nothing has been exported.
    store.grow(5)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(export_module._State, "commit", die)
        command("export", store.folder, "--out", out)
    assert len(offsets(out)) == 20 and list(out.rglob("staging/**/*.parquet"))
    store.grow(5)
    # Killed after the commit, with one of several files moved: everything has been exported.
    move = export_module._State._move
    with monkeypatch.context() as patch, pytest.raises(Killed):
        moved: list[str] = []

        def move_one(state: Any, name: str) -> None:
            if moved:
                die()
            moved.append(name)
            move(state, name)

        patch.setattr(export_module._State, "_move", move_one)
        command("export", store.folder, "--out", out)
    assert 20 < len(offsets(out)) < 30
    assert command("export", store.folder, "--out", out) == 0
    assert offsets(out) == store.log.physical_offsets
    assert not (out / "_rocketmq" / "staging").exists()


def test_text_formats_topic_option_and_refused_exports(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = GrowingStore(tmp_path / "store").grow(6)
    assert command("export", store.folder, "--out", tmp_path / "j", "--format", "json", "--body-as", "string") == 0
    rows = [json.loads(line) for path in (tmp_path / "j").rglob("*.json") if path.parent.name != "_rocketmq"
            for line in path.read_text().splitlines()]  # fmt: skip
    assert sorted(row["body"] for row in rows) == [str(number) for number in range(6)]
    assert command("export", store.folder, "--out", tmp_path / "c", "--format", "csv", "--topic", "B") == 0
    lines = [line for path in (tmp_path / "c").rglob("*.csv") for line in path.read_text().splitlines()]
    assert len([line for line in lines if not line.startswith("queueId,")]) == 3
    capsys.readouterr()
    assert command("export", store.folder, "--out", tmp_path / "c", "--format", "csv") == 1
    assert "with topics ['B'], not []: export that to another folder" in capsys.readouterr().err
    shutil.rmtree(store.folder)
    LogBuilder(300).write(store.folder)
    assert command("export", store.folder, "--out", tmp_path / "j", "--format", "json", "--body-as", "string") == 1
    assert "it is another store, or its log was truncated" in capsys.readouterr().err
    assert command("export", store.folder, "--out", "s3://bucket/x") == 2


def test_text_in_csv_is_no_formula(command: Command, tmp_path: Path) -> None:
    """Neither that of a log, whose bodies may have blanks before the `=`, nor that of a table or of the report."""
    log = LogBuilder(20_000)
    formula, body = '=HYPERLINK("http://x","y")', b" =1"
    for at_ms in (1_767_225_590_000, 1_767_225_590_001):
        log.append(topic="T", body=body, properties={"TAGS": "@SUM(1)", "KEYS": "-1+2", "UNIQ_KEY": formula},
                   store_timestamp_ms=at_ms)  # fmt: skip
    store = write_queues(log.write(tmp_path / "store"))
    chosen = ("--out", tmp_path / "c", "--format", "csv", "--body-as", "string")
    assert command("export", store, *chosen) == 0
    rows = [row for path in (tmp_path / "c").rglob("*.csv") for row in csv.DictReader(path.open(), escapechar="\\")]
    assert [(row["tags"], row["keys"], row["uniqKey"], row["body"]) for row in rows] == 2 * [
        ("'@SUM(1)", "'-1+2", f"'{formula}", " =1"),
    ]  # fmt: skip
    assert {row["preparedTransactionOffset"] for row in rows} == {"0"}
    assert command("report", store, "--engine", "direct", "--out", tmp_path / "r") == 0
    repeated = csv.DictReader((tmp_path / "r" / "duplicate_keys.csv").open())
    assert {row["text"] for row in repeated} == {f"'{formula}", "'-1+2"}
    exact = pyarrow.parquet.read_table(tmp_path / "r" / "duplicate_keys.parquet")
    assert {*exact.column("text").to_pylist()} == {formula, "-1+2"}


def test_csv_keeps_numbers_and_harmless_text(tmp_path: Path) -> None:
    texts = ["=1", "+1", "-1", "@x", "\tx", "\rx", "\nx", "\uff1d1", "a=1", "", None]
    write_csv(pa.table({"number": [-1] * len(texts), "text": texts}), tmp_path / "t.csv")
    rows = list(csv.DictReader((tmp_path / "t.csv").open(newline="")))
    assert [row["text"] for row in rows] == [f"'{text}" for text in texts[:8]] + ["a=1", "", ""]
    assert {row["number"] for row in rows} == {"-1"}


def test_period_and_hourly_partitions(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, out = GrowingStore(tmp_path / "store").grow(20), tmp_path / "out"
    chosen = ("--out", out, "--hourly", "--since", "2025-12-31T23:59:55", "--until", "2026-01-01T00:00:05Z")
    assert command("export", store.folder, *chosen) == 0
    assert offsets(out) == store.log.physical_offsets[5:15]
    folders = {str(path.parent.relative_to(out / "topic=A")) for path in (out / "topic=A").rglob("*.parquet")}
    assert folders == {"date=2025-12-31/hour=23", "date=2026-01-01/hour=00"}
    assert command("export", store.folder, *chosen) == 0
    assert len(offsets(out)) == 10
    assert command("export", store.folder, "--out", out, "--hourly") == 1
    assert "has an export with period {" in capsys.readouterr().err


def test_each_export_of_a_table_adds_its_rows(command: Command, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    store = golden_stores["v4_clean"]
    for name in ("offsets", "delays", "topics"):
        for _ in range(2):
            assert command("export", store, "--out", tmp_path / name, "--table", name) == 0
        table = exported(tmp_path / name)
        runs = table.column("at").unique().to_pylist()
        assert len(runs) == 2 and all(run.tzinfo is not None for run in runs)
        first = [row for row in table.to_pylist() if row["at"] == runs[0]]
        assert len(first) == table.num_rows / 2 > 0 and {row["store"] for row in first} == {str(store)}
    assert max(exported(tmp_path / "offsets").column("lag").drop_null().to_pylist()) == 117


def test_table_as_csv(
    command: Command, golden_stores: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_stores["v5_clean"]
    assert command("export", store, "--out", tmp_path, "--table", "topics", "--format", "csv") == 0
    (path,) = tmp_path.rglob("topics-*.csv")
    assert path.parent.name.startswith("date=") and '"message.type=DELAY"' in path.read_text()
    assert command("export", store, "--out", tmp_path, "--table", "topics", "--format", "json") == 1
    assert "--format is json: a table is exported as parquet or csv" in capsys.readouterr().err
