"""The data source `rocketmq` in Java: its sources in `src`, and the jar built from them (`build`).

Spark passes rows from a Python data source through a socket and copies each of them; a data source in Java decodes its
columns where Spark reads them, and receives the columns, filters, limits and aggregates of a query.
"""

from pathlib import Path
from typing import Final

JAR: Final = Path(__file__).with_name("pocketmq-spark.jar")


def jar_path() -> Path | None:
    """Return the path of the jar, None if it has not been built."""
    return JAR if JAR.is_file() else None
