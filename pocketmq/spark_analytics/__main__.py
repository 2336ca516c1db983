"""Command line: `python -m pocketmq.spark_analytics report | audit | trace | export STORE...`.

Exit codes: 0 success; 1 failure, audit errors, or no message to trace; 2 bad arguments or a missing store; 128 + n if signal
n ended it.
"""

import importlib.util
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final

import click

from pocketmq.runtime.command_line.commands import USAGE_ERROR, Command, CommandError, Group, Lazy, call, say
from pocketmq.runtime.command_line.option_types import OneOf, WholeNumber
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.error_text import reason
from pocketmq.spark_analytics.about import ABOUT
from pocketmq.spark_analytics.session import JavaNotFoundError, local_session
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels
from pocketmq.store.offline.places import LogFile, log_files, store_folders

FOUND: Final = 1
PIPE_WIDTH: Final = 10_000
# Logs up to this size are processed in this process by default, because that is faster than Spark (docs/spark.md).
DIRECT_SIZE_MAX: Final = 1 << 30
LOCAL: Final = "local[*]"
# For a small log, most of the time goes into compiling queries.
SMALL_SIZE: Final = 256 << 20
SMALL: Final = {
    "spark_driver_defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_sql_codegen_wholeStage": "false",
    "spark_sql_adaptive_enabled": "false",
}
Step = Callable[[str], None]
# Callable that shows a command's result after the Spark session has ended; returns the exit code.
Shown = Callable[[], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    return call(TOOL, "pocketmq", arguments)


def _main(options: SimpleNamespace) -> int:
    complaints = Printer(stderr=True, soft_wrap=True)
    try:
        options.levels = DelayLevels(options.delay_level)
        files = log_files(options.stores)
        options.check(options)
    except (OSError, ValueError) as error:
        raise CommandError(reason(error), USAGE_ERROR) from error
    if not files and options.command is not _audit:
        named = ", ".join(options.stores)
        raise CommandError(f"the commit log of {named} has no files: it is empty", USAGE_ERROR)
    is_direct = options.is_direct(options, sum(file.size for file in files))
    if importlib.util.find_spec("duckdb" if is_direct else "pyspark") is None:
        raise CommandError("this needs PySpark and DuckDB: pip install 'pocketmq[spark]'", USAGE_ERROR)
    signal.signal(signal.SIGTERM, _end)
    try:
        return _run_here(options, complaints) if is_direct else _run(options, files, complaints)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (OSError, ValueError, JavaNotFoundError) as error:
        raise CommandError(reason(error)) from error


def _by_size(options: SimpleNamespace, size: int) -> bool:
    """Return whether a command runs in this process: as --engine says; for `auto` if the log is small, without a cluster."""
    if options.engine == "auto":
        return size <= DIRECT_SIZE_MAX and options.master == LOCAL
    return bool(options.engine == "direct")


def _run_here(options: SimpleNamespace, complaints: Printer) -> int:
    """Run a command without Spark."""
    from pocketmq.spark_analytics.commands import progress
    from pocketmq.spark_analytics.direct.engine import DirectEngine

    # Damage is counted by the audit, once; its log lines would be repeated in each pass.
    logging.getLogger("pocketmq.spark_analytics").setLevel(logging.ERROR)
    show: Shown = options.command(DirectEngine(), options, progress.steps(complaints))
    return show()


def _run(options: SimpleNamespace, files: list[LogFile], complaints: Printer) -> int:
    from pyspark.errors import PySparkException

    from pocketmq.spark_analytics.commands import progress
    from pocketmq.spark_analytics.pipelines.engine import SparkEngine

    # PySpark additionally logs each error that it raises, as one long line of JSON.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    complaints.print("starting Spark")
    small = SMALL if sum(file.size for file in files) < SMALL_SIZE else {}
    spark: Any = local_session(options.master, spark_sql_shuffle_partitions="4", **small)
    try:
        # Dates and hours are in UTC, also in a session that already existed.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        # The JVM also logs failed jobs, with stack traces, before the error is raised here. With Spark Connect it is remote.
        context = getattr(spark, "sparkContext", None)
        if context is not None:
            context.setLogLevel("OFF")
        with progress.job_progress(spark, complaints) as step:
            show: Shown = options.command(SparkEngine(spark), options, step)
    except PySparkException as error:
        # The last line of the Python stack wrapped by Spark is the data source's error message.
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        errors = [line.split("Error: ", 1)[1] for line in lines if "Error: " in line]
        spark.stop()
        raise CommandError((errors or lines)[-1]) from error
    except (OSError, ValueError):
        spark.stop()
        raise
    # Not in a `finally`: a signal may interrupt a call to the JVM, which then answers no other call. The JVM ends with this
    # process.
    spark.stop()
    return show()


def output() -> Printer:
    """Return a console for results. Lines in a pipe or file are not wrapped, so that other programs can read them."""
    return Printer(pipe_width=PIPE_WIDTH)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


# --- commands -------------------------------------------------------------------------------------------------------


def _report(engine: Any, options: SimpleNamespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import report

    made = report.make_report(engine, options.stores, options.levels, step, _period(options))

    def show() -> int:
        console = output()
        report.print_report(made, console)
        folder = Path(options.out)
        report.write_report(made, options.stores, folder, late_target_ms=options.late_target_ms)
        text = f"{made.rows:,} messages, {made.size:,} bytes; written to {folder}/, the page is {folder / 'report.html'}"
        console.print(text, soft_wrap=True)
        return 0

    return show


def _audit(engine: Any, options: SimpleNamespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import audit

    made = audit.make_audit(engine, options.stores, with_index=options.index, on_step=step)

    def show() -> int:
        if options.json:
            say(audit.audit_json(made))
        else:
            audit.print_audit(made, output())
        return 0 if made.is_valid else FOUND

    return show


def _trace(engine: Any, options: SimpleNamespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import trace, trace_by_index

    if options.scan:
        lives = trace.make_trace(engine, options.stores, options.key, options.levels, step)
    else:
        lives = trace_by_index.make_trace(options.stores, options.key, options.levels, step)

    more = "" if options.scan else "; --scan also finds what is not in the index"

    def show() -> int:
        if options.json:
            say(trace.trace_json(lives))
        elif lives:
            trace.print_trace(lives, output())
        else:
            output().print(f"no message has the key, unique key or id {options.key}{more}")
        return 0 if lives else FOUND

    return show


def _export(engine: Any, options: SimpleNamespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import export, export_table

    if options.table:
        rows, path = export_table.export_table(options.stores, options.table, Path(options.out), options.format)
        output().print(f"{rows:,} rows of {options.table} in {path}")
        return lambda: 0
    topics = sorted(set(options.topic))
    chosen = export.Chosen(options.format, topics, options.body_as, _period(options), options.hourly)
    done = export.export(engine.spark, options.stores, Path(options.out), chosen, mode=options.mode, on_step=step)

    def show() -> int:
        console = Printer(soft_wrap=True)
        if done.lost:
            console.print(f"retention deleted {done.lost:,} bytes of the log that were not exported yet")
        console.print(f"{done.records:,} new records in {done.files:,} files in {options.out}/")
        return 0

    return show


# --- arguments ------------------------------------------------------------------------------------------------------


_STORES: Final = click.Argument(
    ["stores"], metavar="STORE...", nargs=-1, required=True,
    help="Store root, commitlog folder or a glob; for report also one log file.",
)  # fmt: skip
_DELAY_LEVEL: Final = click.Option(
    ["--delay-level"], metavar="LEVELS", default=DEFAULT_MESSAGE_DELAY_LEVEL,
    help="The broker's messageDelayLevel, if it is not the default.",
)  # fmt: skip
_MASTER: Final = click.Option(["--master"], metavar="MASTER", default=LOCAL, help="Spark master (local[*]).")
_JSON: Final = click.Option(["--json"], is_flag=True, help="JSON, for programs.")
_SINCE: Final = click.Option(
    ["--since"], metavar="TIME",
    help="Only records stored from this time on: ISO 8601, UTC without a zone, or epoch ms.",
)  # fmt: skip
_UNTIL: Final = click.Option(["--until"], metavar="TIME", help="Only records stored before this time.")
_ENGINE: Final = click.Option(
    ["--engine"], type=OneOf(["auto", "direct", "spark"]), default="auto",
    help="direct: in this process, without Spark; auto: direct for logs up to 1 GiB (auto).",
)  # fmt: skip


def _command(
    name: str,
    run: Any,
    help: str,
    example: str,
    *params: click.Parameter,
    is_direct: Callable[[SimpleNamespace, int], bool],
    check: Callable[[SimpleNamespace], None] = lambda options: None,
) -> Command:
    """Declare a command. `check` refuses options before anything is read; `is_direct` tells if it runs without Spark."""

    def callback(**values: Any) -> int:
        stores = list(values.pop("stores"))
        return _main(SimpleNamespace(command=run, stores=stores, check=check, is_direct=is_direct, **values))

    return Command(name, callback=callback, help=help, examples=example, params=[_STORES, *params, _DELAY_LEVEL, _MASTER])


def _period(options: SimpleNamespace) -> dict[str, str]:
    """Return --since and --until as options of the data source."""
    given = {"startingTimestamp": options.since, "endingTimestamp": options.until}
    return {name: value for name, value in given.items() if value is not None}


def _whole_stores(options: SimpleNamespace) -> None:
    store_folders(options.stores)


def _local_folder(options: SimpleNamespace) -> None:
    _whole_stores(options)
    if "://" in options.out:
        raise ValueError(
            f"--out {options.out}: an export needs a local or mounted folder, because it relies on atomic renames"
        )


report: Final = _command(
    "report", _report,
    "Read stores, with or without a running broker, print notable findings, and write report.html, each table as CSV and "
    "Parquet, and a summary in report.json.",
    "pocketmq report pocketmq-store --out today",
    click.Option(["--out"], metavar="DIR", default="report", help="Output folder (report)."),
    click.Option(["--late-target-ms"], type=WholeNumber(), metavar="MS", help="Target lateness, drawn as a line in plots."),
    _SINCE, _UNTIL, _ENGINE, is_direct=_by_size,
)  # fmt: skip
audit: Final = _command(
    "audit", _audit,
    "Check bodies against their CRC and ConsumeQueues against the log. Exit code 1 if there are errors; notes are "
    "differences that a broker repairs by itself.",
    "pocketmq audit pocketmq-store --index",
    click.Option(["--index"], is_flag=True, help="Also check that each index entry points to a record."), _JSON, _ENGINE,
    check=_whole_stores, is_direct=_by_size,
)  # fmt: skip
trace: Final = _command(
    "trace", _trace,
    "Show everything in the stores about the messages with a key: sent, delayed, prepared, delivered, retried, dead; oldest "
    "first. Exit code 1 if there is no such message.",
    "pocketmq trace pocketmq-store order-7",
    click.Argument(["key"], metavar="KEY", help="A key, unique key (msgId) or offsetMsgId."), _JSON,
    click.Option(["--scan"], is_flag=True, help="Read the whole log, also for what is not in the index."), _ENGINE,
    check=_whole_stores, is_direct=lambda options, size: not options.scan or _by_size(options, size),
)  # fmt: skip
export: Final = _command(
    "export", _export,
    "Export the log as files of a table, by topic and date. Adds the records that are new since the last run to the same "
    "folder, each exactly once, even if a run is killed.",
    "pocketmq export pocketmq-store --out messages --topic Orders",
    click.Option(["--out"], metavar="DIR", required=True, help="The table's folder, on a local or mounted disk."),
    click.Option(["--format"], type=OneOf(["parquet", "json", "csv"]), default="parquet", help="File format (parquet)."),
    click.Option(["--topic"], metavar="TOPIC", multiple=True, help="Only this topic; may be repeated."),
    click.Option(
        ["--table"], type=OneOf(["offsets", "delays", "topics"]),
        help="Instead of the log, export this table as it is now, with the time of the run.",
    ),
    click.Option(["--hourly"], is_flag=True, help="Partitions by hour, below those by date."), _SINCE, _UNTIL,
    click.Option(
        ["--body-as"], type=OneOf(["stored", "plain", "string", "json"]), default="stored",
        help="plain: decompressed; string, json: as text (stored).",
    ),
    click.Option(
        ["--mode"], type=OneOf(["FAILFAST", "DROPMALFORMED"]), default="FAILFAST",
        help="Handling of damaged records (FAILFAST).",
    ),
    check=_local_folder, is_direct=lambda options, size: options.table is not None,
)  # fmt: skip
TOOL: Final = Group(
    "pocketmq",
    {name: Lazy(f"pocketmq.spark_analytics.__main__:{name}", about) for name, about in ABOUT.items()},
    help="Analyse RocketMQ stores, with Spark or without.",
    examples="pocketmq report pocketmq-store",
)


if __name__ == "__main__":
    sys.exit(main())
