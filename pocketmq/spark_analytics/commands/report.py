"""Report on the contents of stores: tables on the terminal, in CSV and Parquet, and an HTML page.

After the span of its store times, the log is read in four passes: volume, sizes and latency together (`cells`), delays,
repeated keys, and the audit, which reads every body. Results of a pass that several queries need are persisted; they are
small compared with the log.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from rich.table import Table

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.spark_analytics.commands.csv_text import write_csv
from pocketmq.spark_analytics.commands.listing import listing
from pocketmq.spark_analytics.pipelines import cells, consistency, duplicates, lateness, retries, state
from pocketmq.spark_analytics.pipelines.engine import Engine
from pocketmq.spark_analytics.pipelines.stores import DLQ_PREFIX, RETRY_PREFIX, Stores
from pocketmq.spark_analytics.reading.replicas import one_of_each_log
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.offline.places import store_folders

ROWS_SHOWN: Final = 40
RARE: Final = ("early", "repeated", "unpaired")


@dataclass(frozen=True, slots=True)
class Report:
    """A report: pyarrow Tables by name (as in `page.SECTIONS`), and the number of records and bytes.

    For single log files the companion tables are missing from `tables`; `why_not` then gives the reason.
    """

    rows: int
    size: int
    tables: dict[str, Any] = field(default_factory=dict)
    why_not: str = ""

    @property
    def volume(self) -> Any:
        """Columns: topic, time, seconds, messages, bytes, messages_per_s; a row counts `seconds` from `time` on."""
        return self.tables["volume"]

    @property
    def lateness(self) -> Any:
        """Columns: see `pipelines.lateness`."""
        return self.tables["lateness"]


def make_report(
    engine: Engine,
    paths: str | Sequence[str],
    levels: DelayLevels,
    on_step: Callable[[str], None] = lambda step: None,
    period: Mapping[str, str] | None = None,
) -> Report:
    """Run all queries. Damaged records are skipped, and counted by the audit. Raises the errors of the data source."""
    stores = Stores(engine, (paths,) if isinstance(paths, str) else tuple(paths), levels, period=period or {})
    found: dict[str, Any] = {}
    on_step("messages, sizes, latency")
    step = cells.step_s(stores)
    with engine.kept(cells.cells(stores, step)) as own:
        found |= cells.tables(stores, own, step)
    on_step("lateness of delayed messages")
    with engine.kept(lateness.pairs(stores)) as own:
        found["lateness"] = lateness.lateness(stores, own)
        found["late_buckets"] = lateness.distribution(stores, own)
        found["late_series"] = lateness.series(stores, own, step)
        found["late_worst"] = lateness.offenders(stores, own)
    on_step("repeated keys")
    with engine.kept(duplicates.repeated(stores)) as own:
        found |= duplicates.tables(stores, own)
    why_not = _why_no_tables(stores)
    if not why_not:
        found |= _of_whole_stores(stores, sorted(set(found["volume"].column("topic").to_pylist())), on_step)
    volume = found["volume"]
    messages, sizes = (sum(volume.column(name).to_pylist()) for name in ("messages", "bytes"))
    return Report(messages, sizes, found, why_not)


def _of_whole_stores(stores: Stores, topics: list[str], on_step: Callable[[str], None]) -> dict[str, Any]:
    """Return the tables that need companion tables."""
    found: dict[str, Any] = {}
    on_step("pending delays, consumer lag, transactions")
    # A slave has its master's queues and consumer offsets, too.
    own = replace(stores, paths=tuple(one_of_each_log(store.root for store in store_folders(stores.paths))))
    found |= state.tables(own)
    on_step("retries and dead letters")
    nothing = pa.table({"group": pa.array([], pa.string())})
    found["retries"] = found["dead_letters"] = found["dead_causes"] = nothing
    if any(topic.startswith(RETRY_PREFIX) for topic in topics):
        found["retries"] = retries.retries(stores, topics)
    if any(topic.startswith(DLQ_PREFIX) for topic in topics):
        with stores.engine.kept(retries.dead_letters(stores, topics)) as own:
            found |= retries.dead_tables(stores, own)
    # Part of a log cannot be compared with whole queues.
    if not stores.period:
        on_step("bodies against their CRC, queues against the log")
        found["queues"] = consistency.queues(stores)
        found["findings"] = consistency.findings(stores, found["queues"])
    return found


def _why_no_tables(stores: Stores) -> str:
    try:
        store_folders(stores.paths)
    except FileNotFoundError as error:
        return f"Only available for whole stores: {error}."
    return ""


def print_report(report: Report, console: Printer) -> None:
    """Print the first rows of volume and lateness, and one line for each other finding."""
    console.print(_table("Messages and bytes by topic and time (UTC)", report.volume))
    if report.lateness.num_rows:
        console.print(_table("Delayed messages, and how late they came (ms)", report.lateness))
    else:
        console.print("No delayed messages in this log.")
    for line in remarks(report):
        console.print(line)


def remarks(report: Report) -> list[str]:
    """Return a line for each notable finding."""
    totals = summary(report, "")
    lines = []
    if totals.get("consumer_lag"):
        worst = report.tables["lag"].slice(0, 1).to_pylist()[0]
        lines.append(f"consumer lag: {totals['consumer_lag']:,} messages not consumed yet or skipped by a filter, "
                     f"{worst['lag']:,} of them in {worst['topic']} for {worst['group']}")  # fmt: skip
    if totals.get("dead_letters"):
        lines.append(f"dead letters: {totals['dead_letters']:,}")
    if totals.get("stored_twice"):
        lines.append(f"messages stored again under a unique key that is already in their topic: {totals['stored_twice']:,}")
    findings = report.tables["findings"].to_pylist() if "findings" in report.tables else []
    for severity, number in consistency.counted(findings).items():
        first = next(row for row in findings if row["severity"] == severity)
        lines.append(f"{number} consistency {severity}s, first: {first['kind']}: {first['detail']}")
    return lines


def _table(title: str, content: Any) -> Table:
    table = listing(title=title, title_justify="left")
    # Columns for rare cases are left out if they are all zero.
    names = [name for name in content.column_names if name not in RARE or any(content.column(name).to_pylist())]
    for name in names:
        is_text = pa.types.is_string(content.schema.field(name).type)
        heading = name.removeprefix("late_").removesuffix("_ms")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in content.slice(0, ROWS_SHOWN).to_pylist():
        table.add_row(*(_cell(row[name]) for name in names))
    if content.num_rows > ROWS_SHOWN:
        table.caption = f"first {ROWS_SHOWN} of {content.num_rows} rows; all rows are in the files"
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if hasattr(value, "strftime"):
        return str(value.strftime("%Y-%m-%d %H:%M:%S"))
    if isinstance(value, float) and abs(value) < 10:
        return f"{value:.2g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def write_report(
    report: Report,
    stores: str | Sequence[str],
    folder: Path,
    made_at: datetime | None = None,
    late_target_ms: int | None = None,
) -> list[Path]:
    """Write each table as CSV and Parquet, a summary as JSON, and the page; return the paths. Raises OSError.

    `late_target_ms` is drawn as a line in the plot of lateness.
    """
    from pocketmq.spark_analytics.commands.page import page  # imports Matplotlib, which is slow

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in report.tables.items():
        paths += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        write_csv(table, paths[-2])
        pyarrow.parquet.write_table(table, paths[-1])
    named = [stores] if isinstance(stores, str) else list(stores)
    totals = summary(report, ", ".join(named))
    paths += [folder / "report.json", folder / "report.html"]
    paths[-2].write_text(json.dumps(totals, indent=2) + "\n")
    shown = page(report.tables, named, _tiles(report, totals), made_at or datetime.now(UTC), report.why_not, late_target_ms)
    paths[-1].write_text(shown, encoding="utf-8")
    return paths


def summary(report: Report, store: str) -> dict[str, Any]:
    """Return the report's totals for report.json."""
    lateness = report.lateness.to_pylist()
    late_max_ms = [row["late_max_ms"] for row in lateness if row["late_max_ms"] is not None]
    rows = {name: table.to_pylist() for name, table in report.tables.items() if name in _TOLD}
    totals = {
        "store": store,
        "rows": report.rows,
        "bytes": report.size,
        "topics": len(set(report.volume.column("topic").to_pylist())),
        "delayed_delivered": sum(row["delivered"] for row in lateness),
        "delayed_pending": sum(row["pending"] for row in lateness),
        "delayed_early": sum(row["early"] for row in lateness),
        "late_max_ms": max(late_max_ms, default=None),
    }
    if "lag" in rows:
        totals["consumer_lag"] = sum(max(row["lag"], 0) for row in rows["lag"])
        totals["dead_letters"] = sum(row["messages"] for row in rows["dead_causes"])
        totals["stored_twice"] = sum(row["superfluous"] for row in rows["duplicates"] if row["kind"] == "unique key")
    if "findings" in rows:
        for severity in ("error", "note"):
            totals[f"{severity}s"] = sum(row["severity"] == severity for row in rows["findings"])
    return totals


_TOLD: Final = ("lag", "dead_causes", "duplicates", "findings")


def _peak(volume: Any) -> float:
    """Return the highest rate of messages a second, of all topics together."""
    rates: Counter[datetime] = Counter()
    for row in volume.to_pylist():
        rates[row["time"]] += row["messages_per_s"]
    return max(rates.values(), default=0)


def _tiles(report: Report, totals: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return (label, value, whether it is alarming) for the head of the page."""
    from pocketmq.spark_analytics.commands.charts import amount, byte_size
    from pocketmq.spark_analytics.commands.page import duration

    tiles = [
        ("messages", f"{report.rows:,}", False),
        ("in the log", byte_size(report.size), False),
        ("topics", f"{totals['topics']:,}", False),
        ("most a second", amount(_peak(report.volume)), False),
    ]
    if totals["late_max_ms"] is not None:
        tiles.append(("worst lateness", duration(totals["late_max_ms"]), False))
    if totals["delayed_early"]:
        tiles.append(("early", f"{totals['delayed_early']:,}", True))
    if "consumer_lag" in totals:
        tiles += [
            ("consumer lag", f"{totals['consumer_lag']:,}", False),
            ("dead letters", f"{totals['dead_letters']:,}", bool(totals["dead_letters"])),
        ]
    if "errors" in totals:
        errors = consistency.counted(report.tables["findings"].to_pylist()).get(consistency.ERROR, "0")
        tiles.append(("consistency errors", errors, bool(totals["errors"])))
    return tiles
