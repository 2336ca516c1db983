"""A store's CommitLog as a Spark table, and a report over it.

`import spark_analytics` makes `spark.read.format("rocketmq")` work in the active session; for another one there is
`register(spark)`. Where `pyspark_rocketmq` is installed beside it, Spark finds the format by itself.
"""

import sys
from typing import Any


def register(spark: Any) -> None:
    """Make the format `rocketmq` known to a Spark session."""
    from pocketmq.spark_analytics import source

    source.register(spark)


def _register_in_active_session() -> None:
    # Also runs in Spark's workers, where there is no session, and without PySpark, which then must not be imported.
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        register(spark)


_register_in_active_session()
