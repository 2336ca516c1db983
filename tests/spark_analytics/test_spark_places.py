"""Stores on remote file systems, several stores at once, and files deleted during a read."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.spark_analytics.source.batch import CommitLogReader
from pocketmq.store.offline.file_bytes import files_of
from pocketmq.store.offline.places import LogFile, log_files
from pocketmq.store.offline.store_folder import MissingFileError
from tests.spark_analytics.spark_logs import LogBuilder, physical_offsets, read, rows_of, spark_schema

pytestmark = pytest.mark.spark


@pytest.fixture
def memory_store(golden_stores: dict[str, Path]) -> Iterator[str]:
    """A golden store in fsspec's memory file system."""
    fsspec: Any = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.put(str(golden_stores["v4_clean"]), "/stores/a", recursive=True)
    yield "memory://stores/a"
    files.rm("/stores", recursive=True)


@pytest.mark.parametrize("options", [{}, {"topic": "GoldenDelay"}, {"maxPartitionBytes": "300k"}], ids=str)
def test_a_store_at_a_url(golden_stores: dict[str, Path], memory_store: str, options: dict[str, str]) -> None:
    expected = read(golden_stores["v4_clean"], **options)
    assert read(memory_store, **options) == expected
    assert read(memory_store + "/commitlog", **options) == expected
    assert read("memory://stores/*", **options) == expected
    first = read(f"{memory_store}/commitlog/{0:020}", "storePath")[0]
    assert first["storePath"].endswith(f"/stores/a/commitlog/{0:020}")


@pytest.mark.parametrize("options", [{}, {"topic": "GoldenDelay"}], ids=str)
def test_tasks_open_urls_for_themselves(spark: Any, golden_stores: dict[str, Path], options: dict[str, str]) -> None:
    """`local://` is an fsspec URL that every process must resolve itself."""
    pytest.importorskip("fsspec")
    source = spark.read.format("rocketmq").options(columns="topic,physicalOffset,storePath", **options)
    rows = source.load(f"local://{golden_stores['v4_clean']}").orderBy("physicalOffset").collect()
    expected = sorted(read(golden_stores["v4_clean"], "physicalOffset", **options), key=lambda row: row["physicalOffset"])
    assert [row.physicalOffset for row in rows] == [row["physicalOffset"] for row in expected]
    assert {row.storePath.partition("://")[0] for row in rows} == {"local"}


def test_pyarrow_file_system_is_made_without_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    fs: Any = pytest.importorskip("pyarrow.fs")
    asked = []

    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> Any:
            asked.append(uri)
            return fs.LocalFileSystem(), "/"

    monkeypatch.setattr(fs, "FileSystem", FileSystem)
    files_of("nosuch://bucket/store/consumequeue/%RETRY%group/0")
    assert asked == ["nosuch://bucket/"]


def test_missing_remote_store_is_reported(memory_store: str) -> None:
    with pytest.raises(FileNotFoundError, match="no store at memory://stores/b"):
        log_files("memory://stores/b")


def test_unknown_url_scheme() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ImportError, match="nosuch://bucket/store: .*nosuch"):
        log_files("nosuch://bucket/store")


def test_missing_fsspec_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match="s3://bucket/store: reading s3:// needs fsspec: pip install fsspec"):
        log_files("s3://bucket/store")


@pytest.mark.parametrize("prefix", ["file:", "file://", "file://localhost"])
def test_file_urls_are_local_paths(tmp_path: Path, prefix: str) -> None:
    log = LogBuilder(1000)
    log.append()
    log.write(tmp_path)
    assert [file.path for file in log_files(f"{prefix}{tmp_path}")] == [str(tmp_path / "commitlog" / f"{0:020}")]


def test_several_stores_in_one_table(golden_stores: dict[str, Path]) -> None:
    paths = [str(golden_stores["v4_kill9"]), str(golden_stores["v5_kill9"])]
    reader = CommitLogReader(spark_schema("storePath", "topic"), {"paths": json.dumps(paths)})
    rows = list(rows_of(reader))
    assert len(rows) == 521 + 297
    assert {os.path.dirname(os.path.dirname(row["storePath"])) for row in rows} == set(paths)


def test_file_deleted_by_retention_during_a_query(tmp_path: Path) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 3:
        log.append()
    store = log.write(tmp_path)
    schema = spark_schema("physicalOffset")
    for ignored in ("false", "true"):
        reader = CommitLogReader(schema, {"path": str(store), "ignoreMissingFiles": ignored})
        partitions = reader.partitions()
        first = store / "commitlog" / f"{0:020}"
        content = first.read_bytes()
        first.unlink()
        if ignored == "false":
            with pytest.raises(MissingFileError, match="was deleted after it was listed, .*ignoreMissingFiles"):
                [list(reader.read(partition)) for partition in partitions]
        else:
            rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
            assert [row["physicalOffset"] for row in rows] == [own for own in log.physical_offsets if own >= 1000]
        first.write_bytes(content)


def test_file_deleted_during_planning_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 3:
        log.append()
    store = log.write(tmp_path)
    opened = LogFile.open

    def open_once(file: LogFile) -> Any:
        if file.path.endswith(f"{0:020}"):
            Path(file.path).unlink(missing_ok=True)
        return opened(file)

    monkeypatch.setattr(LogFile, "open", open_once)
    assert physical_offsets(store) == [own for own in log.physical_offsets if own >= 1000]
