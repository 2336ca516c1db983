"""The stores that are asked, as DataFrames of their log and of their companion tables."""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.spark_analytics.derived_columns import HALF_TOPIC, TIMER_TOPIC
from pocketmq.spark_analytics.tables.transactions import GIVEN_UP_TOPIC, OP_TOPIC
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
# Where copies of messages stand that are, or will be, in a topic of somebody's own.
INNER_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC)
# The store of a record, as the companion tables name it, of the path of its file.
STORE_OF_FILE: Final = r"regexp_replace(storePath, '(/commitlog)?/[^/]*$', '')"


@dataclass(frozen=True, slots=True)
class Stores:
    """`paths` as the data source takes them. Damaged records are left out unless `mode` says otherwise."""

    spark: Any
    paths: tuple[str, ...]
    levels: DelayLevels = DelayLevels()
    mode: str = "DROPMALFORMED"

    @property
    def level_option(self) -> str:
        """The levels as the data source's option delayLevel takes them."""
        return " ".join(f"{delay_ms // 1000}s" for delay_ms in self.levels.delays_ms)

    def messages(self, *columns: str, **options: str) -> Any:
        """The log, of it the named columns; `options` are the data source's."""
        reader = self.spark.read.format("rocketmq").option("columns", ",".join(columns))
        return reader.options(**{"mode": self.mode} | options).load(list(self.paths))

    def table(self, name: str) -> Any:
        """A companion table. Only of whole stores, not of single log files."""
        return self.spark.read.format("rocketmq").option("table", name).load(list(self.paths))

    def sql(self, query: str, parameters: dict[str, Any] | None = None, **frames: Any) -> Any:
        """A query over DataFrames, which stand in it as `{name}`."""
        return self.spark.sql(query, parameters, **frames)


def property_of(name: str) -> str:
    """SQL for the value of one property in `rawProperties`, null where there is none.

    Taken out of the stored text: for some properties of few records that is cheaper than a map of all of every record.
    """
    return rf"nullif(regexp_extract(rawProperties, '(^|\\x02){name}\\x01([^\\x02]*)', 2), '')"


def has_property(name: str) -> str:
    """SQL for whether there may be such a property: quick, and right but for names that end alike."""
    return f"contains(rawProperties, '{name}\\u0001')"


def quoted(texts: Any) -> str:
    """SQL for a list of texts that are our own."""
    return ", ".join(f"'{text}'" for text in texts)
