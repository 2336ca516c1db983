"""Stores on Hadoop's file systems: the reader in Java finds and reads them with the session's settings for Hadoop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_analytics.jvm.both_readers import java_refusal, java_rows, python_rows
from tests.spark_analytics.jvm.test_jvm_streaming import Sink
from tests.spark_analytics.spark_logs import LogBuilder, write_queues

pytestmark = pytest.mark.spark

NAMES = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "properties")
LINK = "fs.viewfs.mounttable.stores.link./logs"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a space and a percent sign in its path."""
    log = LogBuilder(64 << 10)
    for number in range(500):
        log.append(b"%d" % number * 50, "Rare" if number % 50 == 5 else "Other")
    return write_queues(log.write(tmp_path / "my 50% store"))


@pytest.fixture
def viewfs(jvm_spark: Any, store: Path) -> Iterator[str]:
    """The URL of the store in a file system that is configured only in the session's settings for Hadoop."""
    settings = jvm_spark.sparkContext._jsc.hadoopConfiguration()
    settings.set(LINK, store.parent.as_uri())
    yield f"viewfs://stores/logs/{store.name}"
    settings.unset(LINK)


def test_messages_of_a_hadoop_file_system(jvm_spark: Any, store: Path, viewfs: str) -> None:
    for options in ({}, {"topic": "Rare"}, {"maxPartitionBytes": "20k"}):
        expected = python_rows(store, *NAMES, **options)
        assert expected
        assert java_rows(jvm_spark, [viewfs], *NAMES, **options) == expected
    assert java_rows(jvm_spark, ["viewfs://stores/logs/my*"], *NAMES) == python_rows(store, *NAMES)
    first = f"{viewfs}/commitlog/{0:020}"
    assert java_rows(jvm_spark, [first], *NAMES) == python_rows(store / "commitlog" / f"{0:020}", *NAMES)


@pytest.mark.parametrize("form", ["file://{}", "file:{}"])
def test_file_urls(jvm_spark: Any, store: Path, form: str) -> None:
    assert java_rows(jvm_spark, [form.format(store)], *NAMES) == python_rows(store, *NAMES)


def test_stream_of_a_hadoop_file_system(jvm_spark: Any, store: Path, viewfs: str, tmp_path: Path) -> None:
    sink = Sink(jvm_spark, tmp_path, viewfs, maxRecordsPerTrigger=200)  # type: ignore[arg-type]
    sink.run()
    sink.run()
    assert len(sink.progress()) == 3
    assert sink.offsets() == [row["physicalOffset"] for row in python_rows(store, "physicalOffset")]


def test_missing_store_and_unknown_scheme_are_reported(jvm_spark: Any, viewfs: str) -> None:
    assert "no store at viewfs://stores/logs/none" in java_refusal(jvm_spark, ["viewfs://stores/logs/none"], *NAMES)
    assert 'No FileSystem for scheme "nofs"' in java_refusal(jvm_spark, ["nofs://a/b"], *NAMES)
