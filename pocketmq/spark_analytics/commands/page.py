"""The report as one self-contained HTML page: style, plots and tables are embedded, and there is no script.

Topics, keys and hosts are untrusted text: Jinja2 escapes all of it.
"""

import importlib.resources
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jinja2
import pyarrow as pa
from markupsafe import Markup

from pocketmq.spark_analytics.commands import charts
from pocketmq.spark_analytics.commands.charts import byte_size
from pocketmq.spark_analytics.pipelines.cells import BUCKETS_AN_OCTAVE, NEGATIVE_BUCKET, ZERO_BUCKET
from pocketmq.spark_analytics.pipelines.lateness import LATE_BUCKETS_AN_OCTAVE

Tables = dict[str, Any]
ROWS_SHOWN: Final = 50
BARS_SHOWN: Final = 15
HOURS_SHOWN_MAX: Final = 14 * 24
RETRIES_APART: Final = charts.SERIES
# Characters that half the page's width holds, and the longest cell that is not wrapped.
HALF_LENGTH: Final = 84
CELL_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Column:
    """A column heading; `is_text` tells text columns from numeric ones."""

    heading: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table as shown on the page; `left_out` rows are in its file only."""

    name: str
    title: str
    columns: list[Column]
    rows: list[list[str]]
    left_out: int

    @property
    def is_wide(self) -> bool:
        """Whether the table needs the whole width of the page."""
        texts = zip((column.heading for column in self.columns), *self.rows, strict=True)
        return sum(min(max(map(len, column)), CELL_LENGTH_MAX) + 2 for column in texts) > HALF_LENGTH


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page. `tables`: report table -> title; `nothing` is shown if all of them are empty.

    `draw` gets the tables and the target lateness in ms.
    """

    name: str
    title: str
    lead: str
    nothing: str
    tables: dict[str, str]
    draw: Callable[[Tables, float | None], Iterable[str]]


def duration(value_ms: float) -> str:
    """Format a duration in a suitable unit."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
    return charts.in_unit(value_ms, units, f"{value_ms:.3g} ms")


def cell(name: str, value: Any) -> str:
    """Format a value of the named column."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        if name in ("hour", "time"):
            return f"{value:%Y-%m-%d %H:%M}" + (f":{value:%S}" if value.second else "")
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_per_s"):
            return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        if name.endswith("_ms"):
            return duration(value)
        return byte_size(value) if name in ("bytes", "mean", "p50", "p99", "max") else f"{value:,.0f}"
    return charts.visible(value)


def _heading(name: str) -> str:
    """Return a heading for a column: late_max_ms -> late max, queueOffset -> queue offset."""
    name = name.replace("_per_s", "_a_second").removesuffix("_ms").replace("_", " ")
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower()


def shown_table(name: str, title: str, table: Any) -> ShownTable:
    """Return the first rows of a table (of the table `volume`, the largest). Columns without any value are left out."""
    if name == "volume":
        table = table.sort_by([("messages", "descending"), ("time", "ascending"), ("topic", "ascending")])
    content = table.slice(0, ROWS_SHOWN).to_pylist()
    names = [own for own in table.column_names if table.column(own).null_count < table.num_rows]
    columns = [Column(_heading(own), pa.types.is_string(table.schema.field(own).type)) for own in names]
    rows = [[cell(own, row[own]) for own in names] for row in content]
    return ShownTable(name, title, columns, rows, max(0, table.num_rows - ROWS_SHOWN))


# --- plots ----------------------------------------------------------------------------------------------------------


def _of_kinds(tables: Tables, name: str, label: str, kind: Callable[[Any], str], unit: str) -> str:
    """Draw a stacked bar for each value of the column `label`, with a segment for each kind."""
    counts: dict[str, Counter[str]] = {}
    for row in tables[name].to_pylist():
        counts.setdefault(row[label], Counter())[kind(row)] += row["messages"]
    kinds = sorted({found for own in counts.values() for found in own}, key=lambda found: (len(found), found))
    rows = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))[:BARS_SHOWN]
    return charts.bars(name, [(text, [own[found] for found in kinds]) for text, own in rows], kinds, unit)


def _hours(name: str, rows: Sequence[dict[str, Any]], unit: str) -> str:
    """Draw messages per hour, or per day for long periods, by the topics with the most messages."""
    width, period = timedelta(hours=1), "an hour"
    rows = [row | {"time": row["hour"]} for row in rows]
    if max(row["time"] for row in rows) - min(row["time"] for row in rows) > HOURS_SHOWN_MAX * width:
        width, period = timedelta(days=1), "a day"
        rows = [row | {"time": row["time"].replace(hour=0)} for row in rows]
    return _in_time(name, rows, "messages", f"{unit} {period}", width)


def _in_time(name: str, rows: Sequence[dict[str, Any]], value: str, unit: str, width: timedelta) -> str:
    """Draw a value of the rows over time, by the topics with the most messages."""
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["topic"]] += row["messages"]
    largest = [topic for topic, _ in totals.most_common(charts.SERIES)]
    times = sorted({row["time"] for row in rows})
    values: dict[str, dict[datetime, float]] = {topic: dict.fromkeys(times, 0.0) for topic in (*largest, "all others")}
    for row in rows:
        values[row["topic"] if row["topic"] in largest else "all others"][row["time"]] += row[value]
    stretches = [(topic, [own[time] for time in times]) for topic, own in values.items() if any(own.values())]
    return charts.columns_in_time(name, times, stretches, unit, width)


def _histogram(tables: Tables, name: str, steps: int, text: Callable[[float], str], axis_label: str) -> str:
    """Draw a histogram by octaves, from buckets that are parts of an octave; the two special buckets come first."""
    octaves: Counter[int] = Counter()
    special: Counter[int] = Counter()
    for row in tables[name].to_pylist():
        bucket = row["bucket"]
        if bucket < 0:
            special[bucket] += row["messages"]
        else:
            octaves[bucket // steps] += row["messages"]
    counts = [(shown, special[b]) for b, shown in ((NEGATIVE_BUCKET, "< 0"), (ZERO_BUCKET, "0")) if special[b]]
    if octaves:
        counts += [(text(math.pow(2, own)), octaves[own]) for own in range(min(octaves), max(octaves) + 1)]
    return charts.histogram(name, counts, "messages", axis_label)


def _draw_volume(tables: Tables, _: float | None) -> Iterable[str]:
    rows = tables["volume"].to_pylist()
    yield _in_time("volume", rows, "messages_per_s", "messages a second", timedelta(seconds=rows[0]["seconds"]))
    topics: Counter[str] = Counter()
    for row in rows:
        topics[row["topic"]] += row["bytes"]
    largest = [(name, [size]) for name, size in topics.most_common(BARS_SHOWN)]
    yield charts.bars("topics", largest, ["bytes"], "bytes in the log", of_bytes=True)


def _draw_lateness(tables: Tables, target_ms: float | None) -> Iterable[str]:
    if tables["late_buckets"].num_rows:
        axis_label = "late by this much or up to twice as much"
        yield _histogram(tables, "late_buckets", LATE_BUCKETS_AN_OCTAVE, duration, axis_label)
    rows = tables["late_series"].to_pylist()
    if rows:
        values = [(label, [row[name] for row in rows]) for label, name in (("p50", "late_p50_ms"), ("p99", "late_p99_ms"))]
        yield charts.lines("late_series", [row["time"] for row in rows], values, "ms late", target_ms)


def _draw_lag(tables: Tables, _: float | None) -> Iterable[str]:
    behind = [(f"{row['group']}: {row['topic']}", row["lag"]) for row in tables["lag"].to_pylist() if row["lag"] > 0]
    if behind:
        rows = sorted(behind, key=lambda one: (-one[1], one[0]))[:BARS_SHOWN]
        yield charts.bars("lag", [(label, [lag]) for label, lag in rows], ["messages behind"], "messages behind")


def _retry(row: dict[str, Any]) -> str:
    return f"retry {row['times']}" if row["times"] < RETRIES_APART else f"retry {RETRIES_APART} and later"


def _draw_dead(tables: Tables, _: float | None) -> Iterable[str]:
    if tables["retries"].num_rows:
        yield _of_kinds(tables, "retries", "group", _retry, "messages retried")
    if tables["dead_causes"].num_rows:
        yield _of_kinds(tables, "dead_causes", "group", lambda row: row["reason"], "dead letters")


def _draw_queues(tables: Tables, _: float | None) -> Iterable[str]:
    counts = Counter(f"{row['severity']}: {row['kind']}" for row in tables["findings"].to_pylist())
    if counts:
        yield charts.bars("findings", [(kind, [number]) for kind, number in counts.most_common()], ["findings"], "findings")


SECTIONS: Final = (
    Section(
        "volume",
        "Volume",
        "Records of the log by topic and time of storage. Delayed messages, retries and transactions "
        "are counted more than once, as they are also stored under system topics.",
        "The log is empty.",
        {"volume": "By topic and time, largest first", "hosts": "By sender and broker"},
        _draw_volume,
    ),
    Section(
        "sizes",
        "Sizes",
        "Whole records as stored: header, body and properties. Quantiles are accurate to 19 %.",
        "The log is empty.",
        {"sizes": "By topic"},
        lambda t, _: [_histogram(t, "size_buckets", BUCKETS_AN_OCTAVE, byte_size, "of this size or up to twice as large")],
    ),
    Section(
        "latency",
        "From birth to storage",
        "Store time minus born time, for messages that came directly from a client. The two times "
        "come from different clocks: negative values show their difference.",
        "No message came directly from a client.",
        {"latency": "By topic"},
        lambda t, _: [
            _histogram(t, "latency_buckets", BUCKETS_AN_OCTAVE, duration, "took this long or up to twice as long")
        ],
    ),
    Section(
        "lateness",
        "Lateness of delayed messages",
        "Store time of the delivered copy minus due time. Rows without a level are timers, which are delivered at any time. "
        "The series is by time of delivery, in steps of a minute or more.",
        "No delayed messages in this log.",
        {
            "lateness": "By topic and level",
            "late_series": "By time of delivery",
            "late_worst": "Latest deliveries",
        },
        _draw_lateness,
    ),
    Section(
        "pending",
        "Pending delays",
        "Messages that a broker started on these files would still deliver, by the hour in which they are due.",
        "There are no pending delayed messages.",
        {"pending": "By due hour"},
        lambda t, _: [_hours("pending", t["pending"].to_pylist(), "messages due")],
    ),
    Section(
        "lag",
        "Consumer lag",
        "Messages in the queues that a group has not confirmed, as of the broker's last write of consumer offsets.",
        "No consumer group has confirmed any messages.",
        {"lag": "By group and topic"},
        _draw_lag,
    ),
    Section(
        "retries",
        "Retries and dead letters",
        "Messages that consumers sent back, how often, and those that were given up. Times counts "
        "deliveries; origin is the record that was consumed first.",
        "No consumer sent a message back.",
        {"retries": "Retries by group", "dead_causes": "Reasons", "dead_letters": "Dead letters, newest first"},
        _draw_dead,
    ),
    Section(
        "duplicates",
        "Repeated keys",
        "Unique keys: the same message stored again in its topic, after a producer's retry or a "
        "broker crash. Keys: business keys, which may repeat on purpose.",
        "No key occurs twice in a topic.",
        {"duplicates": "By topic", "duplicate_keys": "The most frequent"},
        lambda t, _: [_of_kinds(t, "duplicates", "topic", lambda row: row["kind"], "messages with such a key")],
    ),
    Section(
        "transactions",
        "Transactions",
        "Outcomes of half messages. Resolved: the log no longer shows whether the message was committed.",
        "No transactions in this log.",
        {"transactions": "By topic and producer group"},
        lambda t, _: [_of_kinds(t, "transactions", "topic", lambda row: row["outcome"], "half messages")],
    ),
    Section(
        "consistency",
        "Consistency",
        "Every body is checked against its CRC, and every record against its unit in its queue and "
        "vice versa. Notes are differences that a broker repairs by itself.",
        "Only a whole log is compared with its queues.",
        {"findings": "Findings", "queues": "Queues"},
        _draw_queues,
    ),
)


def page(
    tables: Tables,
    stores: Sequence[str],
    tiles: Sequence[tuple[str, str, bool]],
    made_at: datetime,
    why_not: str = "",
    late_target_ms: float | None = None,
) -> str:
    """Return the HTML page. `why_not`: reason why the tables that need whole stores are missing."""
    shown = []
    for section in SECTIONS:
        nothing, pictures, content = section.nothing, [], []
        known = [name for name in section.tables if name in tables]
        if len(known) < len(section.tables):
            nothing = why_not or nothing
        elif any(tables[name].num_rows for name in known):
            nothing = ""
            pictures = [Markup(picture) for picture in section.draw(tables, late_target_ms)]
            content = [shown_table(name, section.tables[name], tables[name]) for name in known if tables[name].num_rows]
        shown.append(
            {"name": section.name, "title": section.title, "lead": section.lead, "nothing": nothing}
            | {"pictures": pictures, "tables": content}
        )
    # The package may be in a zip file, as with --py-files.
    text = importlib.resources.files("pocketmq.spark_analytics.commands").joinpath("page.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(text)
    return template.render(
        stores=[cell("store", store) for store in stores],
        tiles=tiles,
        sections=shown,
        long=CELL_LENGTH_MAX,
        made_at=f"{made_at.astimezone(UTC):%Y-%m-%d %H:%M}",
    )
