"""The queried stores, as DataFrames of their log and of their companion tables."""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.spark_analytics.decoding.derived_columns import HALF_TOPIC, TIMER_TOPIC
from pocketmq.spark_analytics.tables.transactions import GIVEN_UP_TOPIC, OP_TOPIC
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
# Topics with copies of messages that are, or will be, in a user's topic.
INNER_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC)
# SQL: from the path of a record's file, the store's name as in the companion tables.
STORE_OF_FILE: Final = r"regexp_replace(storePath, '(/commitlog)?/[^/]*$', '')"


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores to query; `paths` are as in the data source. Damaged records are skipped unless `mode` says otherwise."""

    spark: Any
    paths: tuple[str, ...]
    levels: DelayLevels = DelayLevels()
    mode: str = "DROPMALFORMED"

    @property
    def level_option(self) -> str:
        """The delay levels as a value of the data source's option delayLevel."""
        return " ".join(f"{delay_ms // 1000}s" for delay_ms in self.levels.delays_ms)

    def messages(self, *columns: str, **options: str) -> Any:
        """Return the named columns of the log; `options` are the data source's."""
        reader = self.spark.read.format("rocketmq").option("columns", ",".join(columns))
        return reader.options(**{"mode": self.mode, "ignoreUnknownTopics": "true"} | options).load(list(self.paths))

    def table(self, name: str) -> Any:
        """Return a companion table. Only for whole stores, not for single log files."""
        return self.spark.read.format("rocketmq").option("table", name).load(list(self.paths))

    def sql(self, query: str, parameters: dict[str, Any] | None = None, **frames: Any) -> Any:
        """Run a query over DataFrames, which are written `{name}` in it."""
        return self.spark.sql(query, parameters, **frames)


def property_of(name: str) -> str:
    """Return SQL for the value of one property in `rawProperties`, null if absent.

    Extracted from the stored text, which is cheaper than a map of all properties if few records are concerned.
    """
    return rf"nullif(regexp_extract(rawProperties, '(^|\\x02){name}\\x01([^\\x02]*)', 2), '')"


def has_property(name: str) -> str:
    """Return SQL for a fast test whether such a property may exist; also true for names that end the same."""
    return f"contains(rawProperties, '{name}\\u0001')"


def quoted(texts: Any) -> str:
    """Return an SQL list of constant texts."""
    return ", ".join(f"'{text}'" for text in texts)
