"""The queried stores, as frames of their log and of their companion tables.

Queries are written in the SQL that Spark and DuckDB share; `direct.engine` lists the functions of Spark that may be used in
addition. Control characters are written literally, since the two interpret escapes differently; names that are keywords of
SQL, such as `group`, are put between backticks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.spark_analytics.decoding.derived_columns import HALF_TOPIC, TIMER_TOPIC
from pocketmq.spark_analytics.pipelines.engine import Engine
from pocketmq.spark_analytics.tables.transactions import GIVEN_UP_TOPIC, OP_TOPIC
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
# Topics with copies of messages that are, or will be, in a user's topic.
INNER_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC)
# SQL: from the path of a record's file, the store's name as in the companion tables.
STORE_OF_FILE: Final = "regexp_replace(storePath, '(/commitlog)?/[^/]*$', '')"


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores to query; `paths` are as in the data source. Damaged records are skipped unless `mode` says otherwise.

    `period` limits the records of the log by their store time; its keys are the data source's options.
    """

    engine: Engine
    paths: tuple[str, ...]
    levels: DelayLevels = DelayLevels()
    mode: str = "DROPMALFORMED"
    period: Mapping[str, str] = field(default_factory=dict)

    @property
    def level_option(self) -> str:
        """The delay levels as a value of the data source's option delayLevel."""
        return " ".join(f"{delay_ms // 1000}s" for delay_ms in self.levels.delays_ms)

    def messages(self, *columns: str, **options: str) -> Any:
        """Return the named columns of the log; `options` are the data source's."""
        own = {"mode": self.mode, "ignoreUnknownTopics": "true", **self.period, **options}
        return self.engine.messages(self.paths, columns, own)

    def table(self, name: str) -> Any:
        """Return a companion table. Only for whole stores, not for single log files."""
        return self.engine.table(self.paths, name)

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None, **frames: Any) -> Any:
        """Run a query over frames, which are written `{name}` in it."""
        return self.engine.sql(query, parameters or {}, frames)

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None, **frames: Any) -> Any:
        """As `sql`, and return the rows as a pyarrow.Table."""
        return self.engine.collected(self.sql(query, parameters, **frames))


def property_of(name: str) -> str:
    """Return SQL for the value of one property in `rawProperties`, null if absent.

    Extracted from the stored text, which is cheaper than a map of all properties if few records are concerned.
    """
    return f"nullif(regexp_extract(rawProperties, '(^|\x02){name}\x01([^\x02]*)', 2), '')"


def has_property(name: str) -> str:
    """Return SQL for a fast test whether a property exists, without its value."""
    return f"(startswith(rawProperties, '{name}\x01') OR contains(rawProperties, '\x02{name}\x01'))"


def quoted(texts: Any) -> str:
    """Return an SQL list of constant texts."""
    return ", ".join(f"'{text}'" for text in texts)
