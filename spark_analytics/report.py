"""What a store holds: messages and bytes by topic and hour, and how late its delayed messages came.

A delayed message is stored twice: in SCHEDULE_TOPIC_XXXX when it was sent, and under its real topic when it was delivered.
Both copies carry DELAY, REAL_TOPIC and the key that the client gave it, so the log itself tells the lateness: when the
delivered copy was stored, less when the scheduled copy was stored, less the level's delay. A consumer that failed sends a
message through the schedule topic again, under another real topic, level and count of reconsumptions: each such journey is
one of its own. Copies alike in all of these (a producer's retry, a delivery repeated after a crash) are paired in the order
in which they were stored.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from store.delay_level import DelayLevels
from store.message import SCHEDULE_TOPIC
from store.properties import DELAY, REAL_TOPIC

ROWS_SHOWN: Final = 40
RARE: Final = ("early", "repeated", "unpaired")


@dataclass(frozen=True, slots=True)
class Report:
    """Two pyarrow Tables, and how many records and bytes they tell of.

    Of the lateness' columns, `pending` counts scheduled copies not delivered yet, `early` deliveries before their time,
    `repeated` deliveries of what had been delivered already, `unpaired` those whose scheduled copy is no longer in the log.
    """

    rows: int
    size: int
    volume: Any  # topic, hour, messages, bytes
    lateness: Any  # topic, level, delay_ms, scheduled, delivered, pending, early, repeated, unpaired, late_{p50,p99,max}_ms


def make_report(spark: Any, store: str, levels: DelayLevels, on_step: Callable[[str], None] = lambda step: None) -> Report:
    """Read the store twice (once for sizes, once for delayed messages) and sum up. Raises what the data source raises."""
    on_step("messages and bytes")
    volume = _volume(spark, store)
    on_step("lateness of delayed messages")
    lateness = _lateness(spark, store, levels)
    rows = sum(volume.column("messages").to_pylist())
    return Report(rows, sum(volume.column("bytes").to_pylist()), volume, lateness)


def _volume(spark: Any, store: str) -> Any:
    from pyspark.sql import functions as F

    log = spark.read.format("rocketmq").schema("topic string, storeTimestamp timestamp, storeSize int").load(store)
    hours = log.groupBy("topic", F.date_trunc("hour", "storeTimestamp").alias("hour"))
    return hours.agg(F.count("*").alias("messages"), F.sum("storeSize").alias("bytes")).orderBy("topic", "hour").toArrow()


JOURNEYS: Final = f"""
SELECT topic = '{SCHEDULE_TOPIC}' AS is_scheduled,
       properties['{REAL_TOPIC}'] AS real_topic,
       least(greatest(coalesce(try_cast(properties['{DELAY}'] AS INT), 1), 1), :level_max) AS level,
       unix_millis(storeTimestamp) AS stored_ms,
       -- Clients without a unique key: the same message has the same birth and keys.
       coalesce(uniqKey, concat(unix_millis(bornTimestamp), ' ', bornHost, ' ', coalesce(keys, ''))) AS message,
       reconsumeTimes,
       physicalOffset
FROM {{log}}
WHERE properties['{DELAY}'] IS NOT NULL AND topic IN ('{SCHEDULE_TOPIC}', properties['{REAL_TOPIC}'])
"""
# One row a journey and repetition: its scheduled copy, its delivered copy, or both.
PAIRS: Final = """
SELECT real_topic, level,
       min(stored_ms) FILTER (WHERE is_scheduled) AS scheduled_ms,
       min(stored_ms) FILTER (WHERE NOT is_scheduled) AS delivered_ms,
       bool_or(NOT is_scheduled AND nth > 1) AS is_repeated
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY is_scheduled, real_topic, level, message, reconsumeTimes ORDER BY physicalOffset
  ) AS nth FROM {journeys}
)
GROUP BY real_topic, level, message, reconsumeTimes, nth
"""
LATENESS: Final = """
SELECT real_topic AS topic, level, any_value(delay_ms) AS delay_ms,
       count(scheduled_ms) AS scheduled,
       count(late_ms) AS delivered,
       count_if(delivered_ms IS NULL) AS pending,
       count_if(late_ms < 0) AS early,
       count_if(scheduled_ms IS NULL AND is_repeated) AS repeated,
       count_if(scheduled_ms IS NULL AND NOT is_repeated) AS unpaired,
       percentile(late_ms, 0.5) AS late_p50_ms,
       percentile(late_ms, 0.99) AS late_p99_ms,
       max(late_ms) AS late_max_ms
FROM (
  SELECT *, element_at({delays_ms}, level) AS delay_ms,
         delivered_ms - scheduled_ms - element_at({delays_ms}, level) AS late_ms
  FROM {pairs}
)
GROUP BY real_topic, level ORDER BY level, topic
"""


def _lateness(spark: Any, store: str, levels: DelayLevels) -> Any:
    log = (
        spark.read.format("rocketmq")
        .schema(
            "topic string, physicalOffset bigint, bornTimestamp timestamp, storeTimestamp timestamp, bornHost string, "
            "reconsumeTimes int, properties map<string,string>, keys string, uniqKey string"
        )
        .load(store)
    )
    journeys = spark.sql(JOURNEYS, {"level_max": levels.level_max}, log=log)
    pairs = spark.sql(PAIRS, journeys=journeys)
    delays_ms = f"array({', '.join(f'{delay_ms}L' for delay_ms in levels.delays_ms)})"
    return spark.sql(LATENESS.replace("{delays_ms}", delays_ms), pairs=pairs).toArrow()


def print_report(report: Report, console: Console) -> None:
    """Both tables on the terminal, of each the first rows."""
    console.print(_table("Messages and bytes by topic and hour (UTC)", report.volume))
    if report.lateness.num_rows:
        console.print(_table("Delayed messages, and how late they came (ms)", report.lateness))
    else:
        console.print("No delayed messages in this log.")


def _table(title: str, content: Any) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, collapse_padding=True)
    # Columns about rare things are left out where there is nothing to tell.
    names = [name for name in content.column_names if name not in RARE or any(content.column(name).to_pylist())]
    for name in names:
        is_text = pa.types.is_string(content.schema.field(name).type)
        heading = name.removeprefix("late_").removesuffix("_ms")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in content.slice(0, ROWS_SHOWN).to_pylist():
        table.add_row(*(_cell(row[name]) for name in names))
    if content.num_rows > ROWS_SHOWN:
        table.caption = f"the first {ROWS_SHOWN} of {content.num_rows} rows; the files hold all"
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if hasattr(value, "strftime"):
        return str(value.strftime("%Y-%m-%d %H:00"))
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def write_report(report: Report, store: str, folder: Path) -> list[Path]:
    """Write volume and lateness as CSV and Parquet, and a summary as JSON; returns the paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in (("volume", report.volume), ("lateness", report.lateness)):
        paths += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        pyarrow.csv.write_csv(table, paths[-2])
        pyarrow.parquet.write_table(table, paths[-1])
    paths.append(folder / "report.json")
    paths[-1].write_text(json.dumps(summary(report, store), indent=2) + "\n")
    return paths


def summary(report: Report, store: str) -> dict[str, Any]:
    """The report's totals, for programs."""
    lateness = report.lateness.to_pylist()
    late_max_ms = [row["late_max_ms"] for row in lateness if row["late_max_ms"] is not None]
    return {
        "store": store,
        "rows": report.rows,
        "bytes": report.size,
        "topics": len(set(report.volume.column("topic").to_pylist())),
        "delayed_delivered": sum(row["delivered"] for row in lateness),
        "delayed_pending": sum(row["pending"] for row in lateness),
        "delayed_early": sum(row["early"] for row in lateness),
        "late_max_ms": max(late_max_ms, default=None),
    }
