from pathlib import Path

import pytest

from tests.spark_analytics.stream_soak import soak


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_killed_query_returns_each_row_once(quick_jvm: None, tmp_path: Path) -> None:
    """A broker writes its store; a query is killed once when new and once after a restart.

    Most of the time is spent on starting Spark.
    For more kills and messages: `python -m tests.spark_analytics.stream_soak 1000000`.
    """
    results = soak(tmp_path, messages=12_000, kills=2, file_size=1 << 19, bytes_per_trigger="200k", per_second=2_000)
    result = results["python"]
    assert (result.rows, result.distinct, result.records, result.missing) == (12_000, 12_000, 12_000, 0)
