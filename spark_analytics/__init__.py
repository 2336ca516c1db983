"""Spark access to RocketMQ stores: a data source for the CommitLog, companion tables, and reports.

`from pocketmq import spark_analytics` makes `spark.read.format("rocketmq")` work in the active session; for another session
call `register(spark)`. Where `pyspark_rocketmq` is installed too, Spark finds the format by itself.
"""

import sys
from typing import Any


def register(spark: Any) -> None:
    """Register the format `rocketmq` with a Spark session."""
    from pocketmq.spark_analytics.source import data_source

    data_source.register(spark)


def _register_in_active_session() -> None:
    # Also runs in Spark's workers, which have no session, and without PySpark, which must not be imported then.
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        register(spark)


_register_in_active_session()
