"""Running streams of Spark on a busy machine."""

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException

ATTEMPTS = 5


def run_stream(start: Callable[[], Any], wait: Callable[[Any], object] = lambda query: query.awaitTermination()) -> Any:
    """Start a query and wait for it; return it. Start it again if Spark's Python worker did not connect within Spark's 10 s,
    which a busy machine exceeds. It continues at its checkpoint."""
    for attempt in range(1, ATTEMPTS + 1):
        query = start()
        try:
            wait(query)
            break
        except PySparkException as error:
            if attempt == ATTEMPTS or "Python worker failed to connect back" not in str(error):
                raise
    return query
