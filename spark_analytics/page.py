"""The report as one HTML page that needs nothing else: its style, its plots and its tables are in it, and no script is.

Whatever a text is of (topics, keys, hosts), somebody else has chosen it: Jinja2 escapes every one.
"""

import importlib.resources
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jinja2
import pyarrow as pa
from markupsafe import Markup

from pocketmq.spark_analytics import charts
from pocketmq.spark_analytics.charts import byte_size
from pocketmq.spark_analytics.pipelines.cells import BUCKETS_AN_OCTAVE, NEGATIVE_BUCKET, ZERO_BUCKET
from pocketmq.spark_analytics.pipelines.lateness import LATE_BUCKETS_AN_OCTAVE

Tables = dict[str, Any]
ROWS_SHOWN: Final = 50
BARS_SHOWN: Final = 15
HOURS_SHOWN_MAX: Final = 14 * 24
RETRIES_APART: Final = charts.SERIES
# As many letters as half the page takes in a row, and those of a cell that is not broken into lines.
HALF_LENGTH: Final = 84
CELL_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether its cells are texts rather than numbers."""

    heading: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table as the page has it; `left_out` rows are in its file only."""

    name: str
    title: str
    columns: list[Column]
    rows: list[list[str]]
    left_out: int

    @property
    def is_wide(self) -> bool:
        """Whether it needs the whole width of the page."""
        texts = zip((column.heading for column in self.columns), *self.rows, strict=True)
        return sum(min(max(map(len, column)), CELL_LENGTH_MAX) + 2 for column in texts) > HALF_LENGTH


@dataclass(frozen=True, slots=True)
class Section:
    """A question. `tables`: name of a report's table -> its title; without a row in the first there is `nothing` to say."""

    name: str
    title: str
    lead: str
    nothing: str
    tables: dict[str, str]
    draw: Callable[[Tables], Iterable[str]] = field(default=lambda tables: ())


def duration(value_ms: float) -> str:
    """In the unit that fits."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if abs(value_ms) >= size:
            return f"{value_ms / size:.3g} {unit}"
    return f"{value_ms:.3g} ms"


def cell(name: str, value: Any) -> str:
    """A value of a column of that name."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}" if name == "hour" else f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_ms"):
            return duration(value)
        return byte_size(value) if name in ("bytes", "mean", "p50", "p99", "max") else f"{value:,.0f}"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))


def _heading(name: str) -> str:
    """late_max_ms -> late max, queueOffset -> queue offset"""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("_ms").replace("_", " ")).lower()


def shown_table(name: str, title: str, table: Any) -> ShownTable:
    """The first rows of a table, of the volume the largest ones. Columns in which nothing stands are left out."""
    if name == "volume":
        table = table.sort_by([("messages", "descending"), ("hour", "ascending"), ("topic", "ascending")])
    content = table.slice(0, ROWS_SHOWN).to_pylist()
    names = [own for own in table.column_names if table.column(own).null_count < table.num_rows]
    columns = [Column(_heading(own), pa.types.is_string(table.schema.field(own).type)) for own in names]
    rows = [[cell(own, row[own]) for own in names] for row in content]
    return ShownTable(name, title, columns, rows, max(0, table.num_rows - ROWS_SHOWN))


# --- plots ----------------------------------------------------------------------------------------------------------


def _bars(tables: Tables, name: str, label: Callable[[Any], str], value: str, unit: str) -> str:
    rows = sorted((row for row in tables[name].to_pylist() if row[value] > 0), key=lambda row: (-row[value], label(row)))
    return charts.bars(name, [(label(row), [row[value]]) for row in rows[:BARS_SHOWN]], [unit], unit)


def _of_kinds(tables: Tables, name: str, label: Callable[[Any], str], kind: Callable[[Any], str], unit: str) -> str:
    """A bar for each label, of a stretch for each kind."""
    counts: dict[str, Counter[str]] = {}
    for row in tables[name].to_pylist():
        counts.setdefault(label(row), Counter())[kind(row)] += row["messages"]
    kinds = sorted({found for own in counts.values() for found in own}, key=lambda found: (len(found), found))
    rows = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))[:BARS_SHOWN]
    return charts.bars(name, [(text, [own[found] for found in kinds]) for text, own in rows], kinds, unit)


def _hours(name: str, rows: Sequence[dict[str, Any]], unit: str) -> str:
    """Messages of each hour, or day where hours would be too narrow, by the topics that have most."""
    width, told = timedelta(hours=1), "an hour"
    if max(row["hour"] for row in rows) - min(row["hour"] for row in rows) > HOURS_SHOWN_MAX * width:
        width, told = timedelta(days=1), "a day"
        rows = [row | {"hour": row["hour"].replace(hour=0)} for row in rows]
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["topic"]] += row["messages"]
    largest = [topic for topic, _ in totals.most_common(charts.SERIES)]
    times = sorted({row["hour"] for row in rows})
    values = {topic: dict.fromkeys(times, 0) for topic in (*largest, "all others")}
    for row in rows:
        values[row["topic"] if row["topic"] in largest else "all others"][row["hour"]] += row["messages"]
    stretches = [(topic, [own[time] for time in times]) for topic, own in values.items() if any(own.values())]
    return charts.columns_in_time(name, times, stretches, f"{unit} {told}", width)


def _histogram(tables: Tables, name: str, steps: int, text: Callable[[float], str], told: str) -> str:
    """Of buckets that are parts of an octave, octaves; the two special ones stand in front."""
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
    return charts.histogram(name, counts, "messages", told)


def _draw_volume(tables: Tables) -> Iterable[str]:
    topics: Counter[str] = Counter()
    for row in tables["volume"].to_pylist():
        topics[row["topic"]] += row["bytes"]
    yield _hours("volume", tables["volume"].to_pylist(), "messages")
    yield charts.bars(
        "topics",
        [(name, [size]) for name, size in topics.most_common(BARS_SHOWN)],
        ["bytes"],
        "bytes in the log",
        of_bytes=True,
    )


def _draw_lateness(tables: Tables) -> Iterable[str]:
    if tables["late_buckets"].num_rows:
        yield _histogram(
            tables, "late_buckets", LATE_BUCKETS_AN_OCTAVE, duration, "late by this much or up to twice as much"
        )


def _draw_pending(tables: Tables) -> Iterable[str]:
    yield _hours("pending", tables["pending"].to_pylist(), "messages due")


def _draw_lag(tables: Tables) -> Iterable[str]:
    if any(lag > 0 for lag in tables["lag"].column("lag").to_pylist()):
        yield _bars(tables, "lag", lambda row: f"{row['group']}: {row['topic']}", "lag", "messages behind")


def _retry(row: dict[str, Any]) -> str:
    return f"retry {row['times']}" if row["times"] < RETRIES_APART else f"retry {RETRIES_APART} and later"


def _draw_dead(tables: Tables) -> Iterable[str]:
    if tables["retries"].num_rows:
        yield _of_kinds(tables, "retries", lambda row: row["group"], _retry, "messages retried")
    if tables["dead_causes"].num_rows:
        yield _of_kinds(tables, "dead_causes", lambda row: row["group"], lambda row: row["reason"], "dead letters")


def _draw_queues(tables: Tables) -> Iterable[str]:
    counts = Counter(f"{row['severity']}: {row['kind']}" for row in tables["findings"].to_pylist())
    if counts:
        yield charts.bars("findings", [(kind, [number]) for kind, number in counts.most_common()], ["findings"], "findings")


SECTIONS: Final = (
    Section(
        "volume",
        "Volume",
        "Records of the log by topic and hour of storage. Delayed messages, retries and transactions "
        "stand in it more than once, under inner topics.",
        "The log is empty.",
        {"volume": "By topic and hour, the fullest first", "hosts": "By sender and broker"},
        _draw_volume,
    ),
    Section(
        "sizes",
        "Sizes",
        "Whole records, as stored: header, body and properties. Quantiles are right within 19 %.",
        "The log is empty.",
        {"sizes": "By topic"},
        lambda t: [_histogram(t, "size_buckets", BUCKETS_AN_OCTAVE, byte_size, "of this size or up to twice as large")],
    ),
    Section(
        "latency",
        "From birth to storage",
        "Store time less born time, of messages that came straight from a client. Two "
        "clocks are compared: what is less than nothing tells of their difference.",
        "No message came straight from a client.",
        {"latency": "By topic"},
        lambda t: [_histogram(t, "latency_buckets", BUCKETS_AN_OCTAVE, duration, "took this long or up to twice as long")],
    ),
    Section(
        "lateness",
        "Lateness of delayed messages",
        "When the delivered copy was stored, less when it was due. Without a "
        "level: timers, which are delivered at any time.",
        "No delayed messages in this log.",
        {"lateness": "By topic and level", "late_worst": "Those that came latest"},
        _draw_lateness,
    ),
    Section(
        "pending",
        "Pending delays",
        "What a broker that starts on these files would still deliver, by the hour in which it is due.",
        "No delayed message waits.",
        {"pending": "By due hour"},
        _draw_pending,
    ),
    Section(
        "lag",
        "Consumer lag",
        "Messages in the queues that a group has not confirmed, as of the last note of the broker.",
        "No consumer group has confirmed anything.",
        {"lag": "By group and topic"},
        _draw_lag,
    ),
    Section(
        "retries",
        "Retries and dead letters",
        "What consumers gave back, how often, and what they never managed. Times counts "
        "deliveries; origin is the record that was consumed first.",
        "No consumer gave a message back.",
        {"retries": "Retries by group", "dead_causes": "Causes of death", "dead_letters": "Dead letters, the newest first"},
        _draw_dead,
    ),
    Section(
        "duplicates",
        "Keys that come again",
        "Unique keys: the same message stored again in its topic, by a producer that tried "
        "twice or a broker that crashed. Keys: the business keys, which may repeat on purpose.",
        "No key comes twice in a topic.",
        {"duplicates": "By topic", "duplicate_keys": "The most frequent"},
        lambda t: [
            _of_kinds(t, "duplicates", lambda row: row["topic"], lambda row: row["kind"], "messages with such a key")
        ],
    ),
    Section(
        "transactions",
        "Transactions",
        "What became of half messages. Resolved: the log no longer tells whether it was committed.",
        "No transactions in this log.",
        {"transactions": "By topic and producer group"},
        lambda t: [_of_kinds(t, "transactions", lambda row: row["topic"], lambda row: row["outcome"], "half messages")],
    ),
    Section(
        "consistency",
        "Consistency",
        "Every body against its CRC, every record against its unit in its queue and the other "
        "way round. Notes are what a broker puts right by itself.",
        "Nothing to compare.",
        {"findings": "Findings", "queues": "Queues"},
        _draw_queues,
    ),
)


def page(
    tables: Tables, stores: Sequence[str], tiles: Sequence[tuple[str, str, bool]], made_at: datetime, why_not: str = ""
) -> str:
    """The whole page. `why_not`: why tables are missing that only whole stores have."""
    shown = []
    for section in SECTIONS:
        nothing, pictures, content = section.nothing, [], []
        known = [name for name in section.tables if name in tables]
        if len(known) < len(section.tables):
            nothing = why_not or nothing
        elif any(tables[name].num_rows for name in known):
            nothing = ""
            pictures = [Markup(picture) for picture in section.draw(tables)]
            content = [shown_table(name, section.tables[name], tables[name]) for name in known if tables[name].num_rows]
        shown.append(
            {"name": section.name, "title": section.title, "lead": section.lead, "nothing": nothing}
            | {"pictures": pictures, "tables": content}
        )
    # The package may lie in a zip, as --py-files ships it.
    text = importlib.resources.files("pocketmq.spark_analytics").joinpath("page.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(text)
    return template.render(
        stores=[cell("store", store) for store in stores],
        tiles=tiles,
        sections=shown,
        long=CELL_LENGTH_MAX,
        made_at=f"{made_at.astimezone(UTC):%Y-%m-%d %H:%M}",
    )
