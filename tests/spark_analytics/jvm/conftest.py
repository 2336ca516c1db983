from typing import Any

import pytest

from pocketmq.spark_analytics.session import DEFAULT_READER


@pytest.fixture(scope="session")
def jvm_spark(spark: Any, java_built: bool) -> Any:
    """A session of the shared Spark that uses the reader in Java."""
    if not java_built:
        pytest.skip("no JDK")
    session = spark.newSession()
    session.conf.set(DEFAULT_READER, "jvm")
    return session
