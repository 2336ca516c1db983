"""Error conditions of the data source, as in docs/spark.md: names for Spark's users, with an SQLSTATE each.

Spark shows the errors of a data source in Python as text within errors of its own, so the condition is put into the text,
in the form of Spark's conditions. Types stay as they are, for users who call the readers without Spark.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.spark_analytics.reading.known_queues import UnknownTopicError
from pocketmq.spark_analytics.reading.log_reader import ColumnError
from pocketmq.store.offline.store_folder import DamagedFileError, MissingFileError

_PREFIX: Final = "[ROCKETMQ_"


class LostRecordsError(ValueError):
    """Records that the query has not read no longer exist."""


# The first that fits counts.
CONDITIONS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (DamagedRecordError, "DAMAGED_RECORD", "22023"),
    (DamagedFileError, "DAMAGED_FILE", "22023"),
    (LostRecordsError, "LOST_RECORDS", "22000"),
    (UnknownTopicError, "UNKNOWN_TOPIC", "42704"),
    (ColumnError, "INVALID_COLUMN", "42703"),
    (MissingFileError, "DELETED_FILE", "KD001"),
    (FileNotFoundError, "PATH_NOT_FOUND", "42K03"),
    (ValueError, "INVALID_OPTION", "42616"),
)


@contextmanager
def named_errors() -> Iterator[None]:
    """Put the condition's name and SQLSTATE into the text of an error that passes."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        if not text.startswith(_PREFIX):
            name, sql_state = next((name, state) for kind, name, state in CONDITIONS if isinstance(error, kind))
            error.args = (f"{_PREFIX}{name}] {text} SQLSTATE: {sql_state}",)
        raise
